//! The rank shim: bind, spawn, watch, report.
//!
//! `haul rank` is the parent of every rank, bundled trainer and foreign program alike. It speaks with the
//! supervisor over one connection; its program knows only the trainer contract (docs/trainer-contract.md).

pub mod bind;
pub mod link;
pub mod log;
pub mod orphans;
pub mod placement;
pub mod program;
pub mod progress;
pub mod scratch;
pub mod shim;
pub mod signals;

pub use shim::{Options, run};

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum RankError {
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is damaged: {reason}", .path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("cannot {what} the supervisor at {at}: {source}")]
    Link {
        what: &'static str,
        at: std::net::SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the supervisor at {at} is refused: {reason}")]
    Refused {
        at: std::net::SocketAddr,
        reason: String,
    },
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("attempt {attempt} has no rank {rank}; its placement is {}", .path.display())]
    NoRank {
        attempt: u32,
        rank: usize,
        path: PathBuf,
    },
    #[error("rank {rank} was placed on {planned} and was started on {here}")]
    Elsewhere {
        rank: usize,
        planned: String,
        here: String,
    },
    #[error("{0} is not set; `haul rank` is started by launch.sh of an attempt")]
    NotLaunched(&'static str),
}

impl RankError {
    /// Whether the program cannot be started at all, however often it is tried: not there, or nothing to execute.
    pub fn is_lasting(&self) -> bool {
        use std::io::ErrorKind;
        let RankError::Io {
            what: "start",
            source,
            ..
        } = self
        else {
            return false;
        };
        let kind = matches!(
            source.kind(),
            ErrorKind::NotFound
                | ErrorKind::PermissionDenied
                | ErrorKind::NotADirectory
                | ErrorKind::IsADirectory
                | ErrorKind::ArgumentListTooLong
                | ErrorKind::InvalidInput
        );
        kind || source.raw_os_error() == Some(nix::errno::Errno::ENOEXEC as i32)
    }

    /// For `map_err`: an I/O error of `what` at `path`.
    pub fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> RankError {
        let path = path.into();
        move |source| RankError::Io { what, path, source }
    }

    /// For `map_err`: a system call that failed.
    pub fn system(what: &'static str) -> impl FnOnce(nix::Error) -> RankError {
        move |error| RankError::System {
            what,
            source: error.into(),
        }
    }
}
