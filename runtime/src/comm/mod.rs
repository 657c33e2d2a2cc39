//! Collectives. On one machine: the same algorithm on a heap buffer (`local`, ranks are threads) and on a memfd
//! (`shm`, ranks are processes). Across machines: a mesh of connections (`tcp`). Sums are taken elementwise in
//! group-rank order by the same inner loop everywhere, so placement, buffering and timing change no bit.

mod call;
mod group;
mod handshake;
pub mod local;
mod reduce;
mod segment;
pub mod shm;
pub mod tcp;
mod watch;

pub use group::Member;
pub use tcp::Tcp;

use crate::contract::mesh::MAX_RANKS;
use crate::device::Real;
use crate::sys::region::Memory;
use std::ops::Range;
use std::time::Duration;

/// Longest sleep before a waiting rank gives a sign of life and looks after its peers.
const BEAT: Duration = Duration::from_millis(100);
/// A peer may take this many times the longest operation seen before it is called silent.
const PATIENCE: u32 = 20;
/// Elements to which slices are rounded: a cache line of f32.
const ALIGN: usize = 16;
/// What ranks do before their first collective, in errors.
const JOINING: &str = "joining the group";

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
    /// Time for all ranks of a `shm` or `tcp` group to come together.
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

impl Options {
    /// Time without a sign of life after which a peer is silent; `longest` operation seen in microseconds.
    fn deadline(&self, longest: u64) -> Duration {
        self.silent
            .max(PATIENCE * Duration::from_micros(longest.min(1 << 40)))
    }
}

/// What the ranks of a group agree on beforehand.
#[derive(Clone, Copy)]
pub struct Spec<'a> {
    /// The attempt's secret: who has it may join.
    pub secret: &'a [u8; 32],
    /// Name of the group, unique in the attempt.
    pub group: &'a str,
    pub rank: usize,
    pub size: usize,
    /// Bytes of gradient memory of each rank.
    pub grads_bytes: usize,
}

impl Spec<'_> {
    /// Whether there can be such a group.
    fn check(&self) -> Result<(), CommError> {
        if self.rank < self.size && self.size <= MAX_RANKS {
            return Ok(());
        }
        Err(system(
            &format!("join as rank {} of {}", self.rank, self.size),
            format!("a group has 1 to {MAX_RANKS} ranks"),
        ))
    }
}

fn system(what: &str, error: impl ToString) -> CommError {
    CommError::System {
        what: what.into(),
        error: error.to_string(),
    }
}

/// The part of `len` elements that `rank` sums.
fn slice(len: usize, rank: usize, size: usize) -> Range<usize> {
    let each = len.div_ceil(size).next_multiple_of(ALIGN);
    let start = (each * rank).min(len);
    start..(start + each).min(len)
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

    /// This rank's gradient memory, of the length given when the group was made.
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
