//! Progress lines that reached no supervisor: of shims that were killed or lost it. They lie in `attempts/<n>/late/`.

use super::say;
use crate::control::Secret;
use crate::rank::scratch;
use crate::store::RunDir;
use haul_runtime::contract::metrics::{Kind, Line};
use std::collections::BTreeSet;

/// Takes what killed shims have left on this machine.
pub(super) fn gather(run: &RunDir, attempt: u32, secret: &Secret, world: usize) {
    for rank in 0..world {
        if let Err(error) = scratch::rescue(secret, rank, &scratch::late(run, attempt, rank)) {
            say(&format!(
                "progress lines of rank {rank} may be lost: {error}"
            ));
        }
    }
}

/// The lines, with their rank, that metrics.jsonl does not hold.
pub(super) fn unheld(run: &RunDir, attempt: u32, world: usize) -> Vec<(usize, String)> {
    let files: Vec<(usize, String)> = (0..world)
        .filter_map(|rank| {
            let path = scratch::late(run, attempt, rank);
            Some((rank, std::fs::read_to_string(path).ok()?))
        })
        .collect();
    if files.is_empty() {
        return Vec::new();
    }
    let key = |text: &str| {
        let line: Line = serde_json::from_str(text).ok()?;
        Some((line.kind, line.step?)).filter(|(kind, _)| *kind != Kind::Note)
    };
    let held = std::fs::read_to_string(run.metrics(attempt)).unwrap_or_default();
    let held: BTreeSet<(Kind, u64)> = held.lines().filter_map(key).collect();
    let mut lines = Vec::new();
    for (rank, text) in &files {
        let new = |line: &&str| key(line).is_some_and(|key| !held.contains(&key));
        lines.extend(
            text.lines()
                .filter(new)
                .map(|line| (*rank, line.to_owned())),
        );
    }
    lines
}

/// They are merged; if this fails they are merged again, which adds nothing.
pub(super) fn forget(run: &RunDir, attempt: u32) {
    let _ = std::fs::remove_dir_all(run.attempt(attempt).join("late"));
}
