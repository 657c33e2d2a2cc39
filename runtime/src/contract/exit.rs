//! Exit codes of trainers.

/// What a trainer says by its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainerExit {
    /// 0: training reached its end.
    Done,
    /// 75: state is saved, start me again.
    StartAgain,
    /// 76: the checkpoint in `HAUL_LOAD_FROM` is unreadable.
    BadCheckpoint,
    /// 93: do not start me again.
    Never,
    /// Any other code: a failure.
    Failed(i32),
}

pub const DONE: i32 = 0;
pub const START_AGAIN: i32 = 75;
pub const BAD_CHECKPOINT: i32 = 76;
pub const NEVER: i32 = 93;

impl From<i32> for TrainerExit {
    fn from(code: i32) -> Self {
        match code {
            DONE => Self::Done,
            START_AGAIN => Self::StartAgain,
            BAD_CHECKPOINT => Self::BadCheckpoint,
            NEVER => Self::Never,
            other => Self::Failed(other),
        }
    }
}
