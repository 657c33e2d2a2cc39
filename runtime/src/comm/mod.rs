//! Collectives over the ranks of one machine: the same algorithm on a heap buffer (`local`, ranks are threads)
//! and on a memfd (`shm`, ranks are processes). Sums are taken elementwise in group-rank order, so placement,
//! buffering and timing change no bit.

mod group;
mod handshake;
pub mod local;
mod reduce;
mod segment;
pub mod shm;
mod watch;

pub use group::Member;

use crate::device::Real;
use crate::sys::region::Memory;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CommError {
    /// The peer's process ended or its connection closed.
    #[error("rank {rank} is gone, noticed in {operation} (operation {sequence})")]
    PeerDied {
        rank: usize,
        operation: &'static str,
        sequence: u64,
    },
    /// The peer shows no progress: it neither computes nor waits.
    #[error(
        "rank {rank} has shown no progress for {seconds:.1} s, noticed in {operation} (operation {sequence})"
    )]
    PeerSilent {
        rank: usize,
        seconds: f64,
        operation: &'static str,
        sequence: u64,
    },
    /// Ranks called different operations.
    #[error(
        "rank {rank} is at another operation ({theirs}) than this rank ({ours}): the ranks' programs differ"
    )]
    OutOfStep {
        rank: usize,
        theirs: String,
        ours: String,
    },
    /// Another rank gave up first.
    #[error("rank {rank} gave up: {reason}")]
    Aborted { rank: usize, reason: String },
    #[error("cannot {what}: {error}")]
    System { what: String, error: String },
}

/// How a group waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Spin up to 20 us before sleeping; off where ranks share cores.
    pub spin: bool,
    /// A peer without progress for this long, or for 20 times the longest operation seen if that is more, is silent.
    pub silent: Duration,
    /// Time for all ranks of a `shm` group to come together.
    pub join: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            spin: false,
            silent: Duration::from_secs(30),
            join: Duration::from_secs(60),
        }
    }
}

/// Seconds a collective spent until the last peer arrived, and moving data after that.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Timing {
    pub wait: f64,
    pub transfer: f64,
}

/// One rank's end of a group. Owned by the rank's compute thread.
pub trait Comm: Send {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;

    /// This rank's gradient memory inside the segment, of the length given when the group was made.
    fn grads(&self) -> Memory;

    /// Waits for all ranks.
    fn barrier(&mut self) -> Result<Timing, CommError>;

    /// Sums elements `offset..offset + len` of every rank's gradient memory in group-rank order, the sum in all of them.
    fn all_reduce(&mut self, real: Real, offset: usize, len: usize) -> Result<Timing, CommError>;

    /// Every rank's `mine` one after the other in group-rank order: `out` has `size() * mine.len()` elements. Any length.
    fn all_gather(&mut self, mine: &[f64], out: &mut [f64]) -> Result<Timing, CommError>;

    /// Says that this rank is alive and working; called after each operation of a program. Cheap.
    fn tick(&mut self);

    /// Whether the group still stands, without waiting: called before what a failed peer must prevent, such as committing a manifest.
    fn check(&mut self) -> Result<(), CommError>;

    /// Makes every rank's next or current collective fail with [`CommError::Aborted`].
    fn abort(&mut self, reason: &str);
}

#[cfg(test)]
mod tests;
