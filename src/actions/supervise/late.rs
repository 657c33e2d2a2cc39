//! Progress lines that reached no supervisor: of shims that were killed or lost it. They lie in `attempts/<n>/late/`.

use super::record::Record;
use super::say;
use crate::control::Secret;
use crate::rank::scratch;
use crate::store::RunDir;
use crate::supervise::merge::Merge;
use haul_runtime::contract::metrics::{Kind, Line};
use std::collections::BTreeSet;
use std::time::Duration;

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

/// Appends to metrics.jsonl what it does not hold; returns the last step told.
pub(super) fn merge(run: &RunDir, attempt: u32, world: usize) -> anyhow::Result<Option<u64>> {
    let mut merge = Merge::new(attempt, world);
    let mut lines = Vec::new();
    for (rank, line) in unheld(run, attempt, world) {
        if let Ok(line) = serde_json::from_str(&line) {
            lines.extend(merge.take(rank, line, Duration::ZERO, None));
        }
    }
    lines.extend(merge.finish());
    if !lines.is_empty() {
        Record::open(run, attempt)?.metrics(&lines);
    }
    forget(run, attempt);
    Ok(lines.iter().filter_map(|line| line.step).max())
}

/// [`merge`] for all attempts: ranks that lost their supervisor may go on, and save, while another reigns.
pub(super) fn merge_all(run: &RunDir, world: usize) -> anyhow::Result<()> {
    for attempt in run.numbers("attempts") {
        merge(run, attempt, world)?;
    }
    Ok(())
}

/// They are merged; if this fails they are merged again, which adds nothing.
pub(super) fn forget(run: &RunDir, attempt: u32) {
    let _ = std::fs::remove_dir_all(run.attempt(attempt).join("late"));
}
