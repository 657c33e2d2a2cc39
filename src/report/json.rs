//! The report as one JSON document, `haul.report/1`.

use super::summary::Summary;

/// Pretty-printed, with a newline at its end.
pub fn render(summary: &Summary) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(summary)? + "\n")
}
