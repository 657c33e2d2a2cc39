//! `haul worker`: the only way to a device. Reads a plan and its surroundings, trains, samples or measures.

mod control;
mod device;
mod dump;
mod peak;
mod sample;
mod surroundings;
mod train;

pub use sample::SampleArgs;

use crate::blueprint::{Problem, Sabotage};
use crate::checkpoint::CheckpointError;
use crate::comm::CommError;
use crate::contract::config::WorkerPlan;
use crate::contract::exit;
use crate::data::DataError;
use crate::device::DeviceError;
use crate::train::TrainError;
use std::path::PathBuf;
use surroundings::Surroundings;

/// What to do.
#[derive(Debug, Clone)]
pub enum Mode {
    /// Train as the plan says, under the trainer contract.
    Train,
    /// Continue a text from a checkpoint, which knows its own configuration.
    Sample(SampleArgs),
    /// Measure what this machine's cores can do, on so many threads.
    Peak { threads: usize },
    /// Train up to a step and write the gradients of all parameters at that step to a safetensors file.
    DumpGradients { step: u64, out: PathBuf },
}

/// Arguments of the worker.
#[derive(Debug, Clone)]
pub struct WorkerArgs {
    /// Needed by all modes that train.
    pub plan: Option<PathBuf>,
    pub mode: Mode,
    /// Print the arena and how much the heap grew.
    pub memory: bool,
    pub sabotage: Sabotage,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("this mode needs a plan: give --plan FILE")]
    NoPlan,
    #[error("cannot read the plan {}: {error}", path.display())]
    Plan { path: PathBuf, error: String },
    #[error("the plan cannot be carried out: {}", tell(.0))]
    Problems(Vec<Problem>),
    #[error("the variable {name} is `{value}`: {expected}")]
    Variable {
        name: &'static str,
        value: String,
        expected: String,
    },
    #[error("cannot read the secret of the attempt, {}: {error}", path.display())]
    Secret { path: PathBuf, error: String },
    #[error("cannot continue: {0}")]
    Refused(String),
    #[error("rank {rank} could not load the checkpoint {}", path.display())]
    PeerCheckpoint {
        rank: usize,
        unreadable: bool,
        path: PathBuf,
    },
    #[error("cannot write {}: {error}", path.display())]
    Output { path: PathBuf, error: String },
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Comm(#[from] CommError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Train(#[from] TrainError),
}

fn tell(problems: &[Problem]) -> String {
    let one = |p: &Problem| format!("{}: {} ({})", p.field, p.message, p.help);
    problems.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl WorkerError {
    /// The rank that made this one fail.
    fn peer(&self) -> Option<usize> {
        match self {
            WorkerError::Comm(error)
            | WorkerError::Train(TrainError::Comm(error))
            | WorkerError::Checkpoint(CheckpointError::Comm(error)) => match error {
                CommError::PeerDied { rank, .. }
                | CommError::PeerSilent { rank, .. }
                | CommError::Aborted { rank, .. } => Some(*rank),
                CommError::OutOfStep { .. } | CommError::System { .. } => None,
            },
            _ => None,
        }
    }

    /// What the exit code says to the supervisor.
    fn exit(&self) -> i32 {
        match self {
            // The same again would end the same way.
            WorkerError::NoPlan
            | WorkerError::Plan { .. }
            | WorkerError::Problems(_)
            | WorkerError::Variable { .. }
            | WorkerError::Refused(_)
            | WorkerError::Checkpoint(CheckpointError::Differs { .. })
            | WorkerError::Train(
                TrainError::Token { .. }
                | TrainError::Precision { .. }
                | TrainError::NotFinite { .. },
            )
            | WorkerError::PeerCheckpoint {
                unreadable: false, ..
            } => exit::NEVER,
            WorkerError::Data(error) | WorkerError::Train(TrainError::Data(error)) => match error {
                DataError::Io { .. } => 1,
                _ => exit::NEVER,
            },
            WorkerError::Checkpoint(CheckpointError::Unreadable { .. })
            | WorkerError::PeerCheckpoint {
                unreadable: true, ..
            } => exit::BAD_CHECKPOINT,
            _ => 1,
        }
    }
}

/// Does what `args` ask for and returns the exit code (see [`exit`]); an error is one line on stderr.
pub fn main(args: &WorkerArgs) -> i32 {
    let surroundings = match Surroundings::read(|name| std::env::var_os(name)) {
        Ok(surroundings) => surroundings,
        Err(error) => {
            eprintln!("{error}");
            return error.exit();
        }
    };
    let outcome = std::panic::catch_unwind(|| carry_out(args, &surroundings));
    let prefix = match surroundings.world {
        1 => String::new(),
        _ => format!("rank {}: ", surroundings.rank),
    };
    match outcome {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            let words = one_line(&error);
            eprintln!("{prefix}{words}");
            surroundings.tell(&words, error.peer());
            error.exit()
        }
        Err(_) => {
            let words = "the worker met a bug in itself";
            eprintln!("{prefix}{words}, told above; please report it");
            surroundings.tell(words, None);
            1
        }
    }
}

/// An error and what caused it, on one line.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text.replace('\n', " ")
}

fn carry_out(args: &WorkerArgs, surroundings: &Surroundings) -> Result<i32, WorkerError> {
    match &args.mode {
        Mode::Train => train::run(args, &read_plan(args)?, surroundings),
        Mode::DumpGradients { step, out } => {
            dump::run(args, &read_plan(args)?, surroundings, *step, out)
        }
        Mode::Sample(sample) => sample::run(sample, &mut std::io::stdout().lock()),
        Mode::Peak { threads } => peak::run(*threads, &mut std::io::stdout().lock()),
    }
}

fn read_plan(args: &WorkerArgs) -> Result<WorkerPlan, WorkerError> {
    let path = args.plan.as_ref().ok_or(WorkerError::NoPlan)?;
    let fail = |error: String| WorkerError::Plan {
        path: path.clone(),
        error,
    };
    let text = std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| fail(e.to_string()))
}
