//! Progress lines that reached no supervisor: of shims that were killed or lost it. They lie in `attempts/<n>/late/`.

use super::record::Record;
use super::say;
use crate::control::Secret;
use crate::rank::scratch;
use crate::store::RunDir;
use crate::supervise::merge::{Merge, tells_more};
use haul_runtime::contract::metrics::{Kind, LAST_STEP, Line};
use std::collections::BTreeMap;
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

/// What the ranks have left.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// With their rank, those that tell something new.
    pub lines: Vec<(usize, String)>,
    /// Lines of metrics.jsonl.
    held: Vec<Line>,
}

/// Reads what the ranks have left.
pub(super) fn read(run: &RunDir, attempt: u32, world: usize) -> Late {
    let files: Vec<(usize, String)> = (0..world)
        .filter_map(|rank| {
            let path = scratch::late(run, attempt, rank);
            Some((rank, std::fs::read_to_string(path).ok()?))
        })
        .collect();
    if files.is_empty() {
        return Late::default();
    }
    let held = std::fs::read_to_string(run.metrics(attempt)).unwrap_or_default();
    let held: Vec<Line> = held
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let mut known: BTreeMap<(Kind, u64), Vec<&Line>> = BTreeMap::new();
    for line in &held {
        if let Some(step) = line.step {
            known.entry((line.kind, step)).or_default().push(line);
        }
    }
    let is_new = |text: &&str| {
        let Ok(line) = serde_json::from_str::<Line>(text) else {
            return false;
        };
        match line.step.filter(|_| line.kind != Kind::Note) {
            None => false,
            Some(step) if step > LAST_STEP => false,
            Some(step) => match known.get(&(line.kind, step)) {
                None => true,
                Some(first) => first.iter().all(|first| tells_more(&line, first)),
            },
        }
    };
    let lines = files.iter().flat_map(|(rank, text)| {
        let new = text.lines().filter(is_new);
        new.map(|line| (*rank, line.to_owned()))
    });
    Late {
        lines: lines.collect(),
        held,
    }
}

/// Appends to metrics.jsonl what it does not hold; returns the last step told.
pub(super) fn merge(run: &RunDir, attempt: u32, world: usize) -> anyhow::Result<Option<u64>> {
    let late = read(run, attempt, world);
    let mut merge = Merge::after(attempt, world, &late.held);
    let mut lines = Vec::new();
    for (rank, line) in late.lines {
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
