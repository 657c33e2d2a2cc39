//! Checkpoints: logical tensors as pieces in safetensors files, valid by their manifest.
//!
//! A save is two-phase: every rank writes its share and a receipt of it; when all have, rank 0 checks the receipts
//! and commits the manifest by exclusive creation. Without its manifest a directory is no checkpoint. Values go
//! through one buffer of fixed size in both directions: neither a save nor a load allocates in proportion to the model.

mod load;
mod retain;
mod save;
mod tensors;

pub use load::{Loaded, load, read_manifest};
pub use save::{Order, Saved, Saver};

use crate::blueprint::program::Region;
use crate::comm::CommError;
pub use crate::contract::checkpoint::StateKind;
use std::path::PathBuf;

/// Bytes moved at a time.
const CHUNK: usize = 256 * 1024;

/// A tensor of the training state and where a device holds it. Offsets and lengths are in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Canonical name of the parameter.
    pub name: String,
    pub state: StateKind,
    /// Logical shape; its product is `len`.
    pub shape: Vec<usize>,
    pub region: Region,
    /// From the start of the region.
    pub offset: usize,
    pub len: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A fault of the checkpoint itself: the program exits 76 and the run goes on from the one before.
    #[error("the checkpoint {} is unreadable: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    /// A whole checkpoint of something else than what is asked for.
    #[error("the checkpoint {} is of another model or precision: {reason}", path.display())]
    Differs { path: PathBuf, reason: String },
    #[error("cannot {what} {}: {error}", path.display())]
    Write {
        what: &'static str,
        path: PathBuf,
        error: std::io::Error,
    },
    /// Another rank could not do its part; it tells why.
    #[error("rank {rank} could not write its part of the checkpoint {}", path.display())]
    Peer { rank: usize, path: PathBuf },
    #[error("the checkpoint {} exists already: it is kept as it is", path.display())]
    Taken { path: PathBuf },
    #[error("the receipt {} is not usable: {reason}", path.display())]
    Receipt { path: PathBuf, reason: String },
    #[error(transparent)]
    Comm(#[from] CommError),
}

#[cfg(test)]
mod tests;
