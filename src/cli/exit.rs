//! Exit codes of `haul`.

use std::process::ExitCode;

/// What a command says by its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: usage or internal error.
    Usage,
    /// 2: the recipe is invalid or does not fit.
    Recipe,
    /// 3: the run failed.
    Failed,
    /// 4: the run was cancelled.
    Cancelled,
    /// 5: the run is not finished.
    Unfinished,
    /// 6: the scheduler cannot be reached.
    Scheduler,
    /// 7: slower or worse than the baseline it was compared with.
    Regression,
    /// Code of a child that a hidden command passes on.
    Child(u8),
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Usage => 1,
            Exit::Recipe => 2,
            Exit::Failed => 3,
            Exit::Cancelled => 4,
            Exit::Unfinished => 5,
            Exit::Scheduler => 6,
            Exit::Regression => 7,
            Exit::Child(code) => code,
        }
    }

    /// The code an error carries ([`Coded`] in its chain), else [`Exit::Usage`].
    pub fn of(error: &anyhow::Error) -> Exit {
        error
            .downcast_ref::<Coded>()
            .map_or(Exit::Usage, |coded| coded.exit)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// Attach to an error with `.context(Coded { .. })` to choose its exit code; its words are those of the context.
#[derive(Debug)]
pub struct Coded {
    pub exit: Exit,
    pub words: String,
}

impl std::fmt::Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Coded {}
