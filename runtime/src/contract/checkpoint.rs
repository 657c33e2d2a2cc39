//! The manifest that makes a checkpoint valid, and the lineage it belongs to. Pure: no I/O here.

use super::mesh::Mesh;
use serde::{Deserialize, Serialize};

pub const SCHEMA: &str = "haul.checkpoint/1";
/// Name of the file that makes a checkpoint directory valid.
pub const MANIFEST: &str = "manifest.json";

/// A point in the history of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    pub attempt: u32,
    pub step: u64,
}

/// `checkpoints/<attempt>/step-<s>/manifest.json`, committed last and by exclusive creation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: String,
    pub attempt: u32,
    pub step: u64,
    /// Checkpoint this attempt started from.
    pub parent: Option<Point>,
    /// Fingerprint of the plan that wrote it.
    pub fingerprint: String,
    /// Every file with its size and checksum, relative to the manifest.
    pub files: Vec<FileEntry>,
    /// Absent for foreign programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer: Option<TrainerState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub path: String,
    pub bytes: u64,
    /// blake3 of the whole file, hex; absent for foreign programs, whose files are known by size only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

/// What the bundled trainer needs besides tensors to continue to the bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    pub mesh: Mesh,
    pub precision: super::Precision,
    /// Name of the instruction-set path the arithmetic ran on, such as `avx2`.
    pub isa: String,
    /// Optimizer steps applied (skipped ones not counted): Adam's t.
    pub applied: u64,
    /// Samples consumed by training, the whole data state.
    pub consumed: u64,
    /// Seconds of training in all attempts so far, for `until: {time}`.
    pub trained_seconds: f64,
    /// Fingerprint of the data: hash, bytes, format, sequence length, seed, split.
    pub data: String,
}
