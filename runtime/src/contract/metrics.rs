//! Progress lines: what a rank appends to `HAUL_PROGRESS` and, merged over ranks, what metrics.jsonl holds.
//!
//! One JSON object a line. Absent means unknown, never 0. Unknown fields are ignored by readers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the line format.
pub const SCHEMA: u32 = 1;

/// What a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An optimizer step was taken.
    Step,
    /// An evaluation on the held-out split after step `step`.
    Eval,
    /// A checkpoint of step `step` is complete (its manifest is committed, or the program says so).
    Save,
    /// A step was skipped: data consumed, state untouched.
    Skip,
    /// Anything else worth keeping; `text` says it.
    Note,
    /// A kind of a newer version.
    #[serde(other)]
    Unknown,
}

/// One line. `step` counts from 1: the number of optimizer steps taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    #[serde(default = "schema")]
    pub schema: u32,
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// RFC 3339 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Seconds since the attempt's launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed: Option<f64>,
    /// Tokens consumed so far by the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Mean token loss in nats over the global batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The bits of `loss` as 16 hex digits, to compare runs exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_bits: Option<String>,
    /// Global gradient norm before clipping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lr: Option<f64>,
    /// Barrier to barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_seconds: Option<f64>,
    /// Seconds by phase name (see [`PHASES`]); the sum is `step_seconds`. Mean over ranks in metrics.jsonl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<BTreeMap<String, f64>>,
    /// The rank with the largest `compute` time of this step. Supervisor only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest: Option<Slowest>,
    /// Seconds an evaluation or save took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Bytes a save wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Directory of a save, relative to `HAUL_SAVE_DIR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Words of a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Named figures of a note, such as `gemm_peak_gflops`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<BTreeMap<String, serde_json::Value>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Slowest {
    pub rank: usize,
    pub seconds: f64,
}

/// Keys of [`Line::values`] by which a note tells why its rank is about to fail: the error in one line, and the rank that is to
/// blame where that is another.
pub const ERROR: &str = "error";
pub const PEER: &str = "peer";

/// A step beyond this is a mistake of the program.
pub const LAST_STEP: u64 = 1_000_000_000_000_000;

/// The closed list of phases; `other` is the remainder.
pub const PHASES: [&str; 11] = [
    "data",
    "compute",
    "tensor_wait",
    "tensor_transfer",
    "pipe_wait",
    "data_wait",
    "data_transfer",
    "update",
    "save",
    "eval",
    "other",
];

fn schema() -> u32 {
    SCHEMA
}

impl Line {
    /// A line of `kind` with nothing else known.
    pub fn new(kind: Kind) -> Self {
        Line {
            schema: SCHEMA,
            kind,
            attempt: None,
            step: None,
            time: None,
            elapsed: None,
            tokens: None,
            loss: None,
            loss_bits: None,
            grad_norm: None,
            lr: None,
            step_seconds: None,
            phases: None,
            slowest: None,
            seconds: None,
            bytes: None,
            path: None,
            text: None,
            values: None,
        }
    }

    /// The hex form of a loss for `loss_bits`.
    pub fn bits(loss: f64) -> String {
        format!("{:016x}", loss.to_bits())
    }
}
