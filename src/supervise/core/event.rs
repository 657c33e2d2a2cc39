//! What the supervisor's core is told and what it asks for.

use super::Timing;
use crate::supervise::classify::{Request, Status};
use crate::supervise::verdict::{Outcome, Verdict};
use haul_runtime::contract::checkpoint::Point;
use std::time::Duration;

/// What stands for the whole job.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Node of each rank.
    pub nodes: Vec<String>,
    /// Names of the processes that start ranks: one a virtual node, or one `srun`.
    pub launchers: Vec<String>,
    /// Failures allowed within this job.
    pub failures: u32,
    pub timing: Timing,
}

/// The outcome of the claim of the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    Won,
    /// Nothing to do here, and why: a double, or the run has ended.
    Leave(String),
}

/// The checkpoint for the next attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// There never was one.
    Fresh,
    From(Point),
    /// There were some, and none can be read; in words.
    AllUnreadable(String),
    /// It could not be prepared; in words.
    Failed(String),
}

/// What happened. Events of another attempt than the current one are late and change nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Claimed(Claimed),
    /// `attempt` is reserved for the next launch.
    Chosen {
        attempt: u32,
        choice: Choice,
    },
    LaunchFailed {
        attempt: u32,
        launcher: usize,
        words: String,
    },
    /// A shim has proved itself.
    Hello {
        attempt: u32,
        rank: usize,
    },
    /// Anything was heard from a shim.
    Heard {
        attempt: u32,
        rank: usize,
    },
    Step {
        attempt: u32,
        rank: usize,
        step: u64,
    },
    Saved {
        attempt: u32,
        step: u64,
    },
    Exit {
        attempt: u32,
        rank: usize,
        status: Status,
        asked: bool,
    },
    NotStarted {
        attempt: u32,
        rank: usize,
        words: String,
    },
    /// A rank tells why it is about to fail, and which rank is to blame where it is another.
    Troubled {
        attempt: u32,
        rank: usize,
        words: String,
        peer: Option<usize>,
    },
    /// The connection to a shim closed.
    Lost {
        attempt: u32,
        rank: usize,
    },
    ShimGone {
        attempt: u32,
        rank: usize,
        status: Status,
    },
    /// A launcher has ended and nothing it started is left.
    LauncherGone {
        attempt: u32,
        launcher: usize,
        status: Status,
    },
    Request(Request),
    Save,
    Tick,
}

/// What to tell a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    Welcome,
    Save,
    Stop,
    Abort { grace: Duration },
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Find the newest readable checkpoint and reserve an attempt; answered by [`Event::Chosen`].
    Choose,
    /// Nothing for so long; then it asks to choose.
    Pause {
        time: Duration,
    },
    Launch {
        attempt: u32,
        parent: Option<Point>,
    },
    /// To every connected rank.
    TellAll {
        attempt: u32,
        tell: Tell,
    },
    TellRank {
        attempt: u32,
        rank: usize,
        tell: Tell,
    },
    /// KILL the launchers and all they started.
    KillLaunchers {
        attempt: u32,
    },
    /// Never give this checkpoint to an attempt again.
    MarkUnreadable {
        at: Point,
        words: String,
    },
    Judge {
        attempt: u32,
        verdict: Verdict,
    },
    /// Nothing was launched and nothing is to be recorded as the run's end.
    Leave {
        words: String,
    },
    Finish {
        outcome: Outcome,
        words: String,
    },
}

impl Event {
    /// The attempt it concerns; absent when it concerns the job.
    pub fn attempt(&self) -> Option<u32> {
        match self {
            Event::LaunchFailed { attempt, .. }
            | Event::Hello { attempt, .. }
            | Event::Heard { attempt, .. }
            | Event::Step { attempt, .. }
            | Event::Saved { attempt, .. }
            | Event::Exit { attempt, .. }
            | Event::NotStarted { attempt, .. }
            | Event::Troubled { attempt, .. }
            | Event::Lost { attempt, .. }
            | Event::ShimGone { attempt, .. }
            | Event::LauncherGone { attempt, .. } => Some(*attempt),
            _ => None,
        }
    }

    /// The rank it was heard from.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Event::Hello { rank, .. }
            | Event::Heard { rank, .. }
            | Event::Step { rank, .. }
            | Event::Exit { rank, .. }
            | Event::NotStarted { rank, .. }
            | Event::Troubled { rank, .. }
            | Event::Lost { rank, .. }
            | Event::ShimGone { rank, .. } => Some(*rank),
            _ => None,
        }
    }
}
