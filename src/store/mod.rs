//! The run directory: layout, publication, journal, claims, identity of processes. One door to the files of a run.

pub mod accounts;
pub mod binary;
pub mod checkpoints;
pub mod claim;
pub mod identity;
pub mod journal;
pub mod layout;
pub mod publish;
pub mod select;
pub mod tail;
pub mod unfinished;

pub use layout::{Root, RunDir};

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is damaged: {reason}", .path.display())]
    Damaged { path: PathBuf, reason: String },
}

impl StoreError {
    /// For `map_err`: an I/O error of `what` at `path`.
    pub fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::Io { what, path, source }
    }
}
