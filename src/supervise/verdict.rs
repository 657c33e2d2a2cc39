//! How an attempt and a run ended: plain data, kept in the journal and in verdict.json.

use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Finished,
    Failed,
    Cancelled,
    /// Stopped in good order on request or before the time limit; `haul resume` goes on.
    Stopped,
    #[serde(other)]
    Unknown,
}

/// How an attempt ended, in words and in figures; also attempts/<n>/verdict.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub class: Class,
    /// Such as "rank 1 on local0 was killed by SIGKILL at step 37".
    pub words: String,
    /// The rank that ended first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Last step seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Last lines of the log of the rank that ended first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// All ranks exited 0.
    Done,
    /// All ranks exited 75: start again. Whether they saved, the words tell.
    Again,
    /// Asked to stop, and left in good order.
    Stopped,
    Cancelled,
    /// Exit 76: the checkpoint it was given is unreadable.
    BadCheckpoint,
    /// Exit 93: the program asks not to be started again.
    Never,
    /// A rank, shim or node ended or fell silent.
    Failed,
    /// No checkpoint of several can be read.
    AllUnreadable,
    #[serde(other)]
    Unknown,
}
