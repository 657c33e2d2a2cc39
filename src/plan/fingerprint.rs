//! The fingerprint of a plan: what decides results, and nothing of the place it runs at.

use super::Plan;

/// blake3, hex, of the plan without the fingerprint itself, without `shared_cores`, which depends on the machine
/// at hand, and without `notify`, which decide no result. Paths under the run root start with `{root}`, so the root is not in it.
pub fn of(plan: &Plan) -> String {
    let mut document = serde_json::to_value(plan).unwrap_or_default();
    if let Some(map) = document.as_object_mut() {
        map.remove("fingerprint");
        map.remove("shared_cores");
        map.remove("notify");
    }
    // Objects are sorted by key: the bytes do not depend on the order of fields.
    blake3::hash(document.to_string().as_bytes())
        .to_hex()
        .to_string()
}
