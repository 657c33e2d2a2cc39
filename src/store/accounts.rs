//! What a scheduler's accounting told of the jobs of a slot, kept in `jobs/<slot>/accounting.json` once it is final. A cache.

use super::layout::RunDir;
use super::publish::{cache, is_ours};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub const SCHEMA: &str = "haul.accounting/1";

/// One start of a job; a requeue is another. Times in seconds since the epoch; absent is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    pub job: String,
    pub submitted: Option<i64>,
    /// When nothing but the queue kept it from starting.
    pub eligible: Option<i64>,
    pub started: Option<i64>,
    pub ended: Option<i64>,
    /// From start to end, or until now.
    pub elapsed_seconds: Option<u64>,
    /// That it got.
    pub nodes: Option<u64>,
}

impl Account {
    pub fn node_hours(&self) -> Option<f64> {
        Some(self.nodes? as f64 * self.elapsed_seconds? as f64 / 3600.0)
    }

    /// From eligible to start; absent where it never got nodes.
    pub fn queue_seconds(&self) -> Option<f64> {
        let nodes = self.nodes.filter(|nodes| *nodes > 0);
        nodes.and(Some((self.started? - self.eligible?).max(0) as f64))
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    schema: String,
    starts: Vec<Account>,
}

fn path(run: &RunDir, slot: u32) -> PathBuf {
    run.job(slot).join("accounting.json")
}

/// What was kept of a slot.
pub fn kept(run: &RunDir, slot: u32) -> Option<Vec<Account>> {
    let document: Document = serde_json::from_slice(&std::fs::read(path(run, slot)).ok()?).ok()?;
    (document.schema == SCHEMA).then_some(document.starts)
}

/// Keeps it, in one's own run.
pub fn keep(run: &RunDir, slot: u32, starts: &[Account]) {
    let document = Document {
        schema: SCHEMA.into(),
        starts: starts.to_vec(),
    };
    if is_ours(&run.job(slot)) {
        // It can be asked for again.
        let _ = serde_json::to_vec_pretty(&document).map(|text| cache(&path(run, slot), &text));
    }
}
