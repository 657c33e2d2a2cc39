//! `haul keep`: the steps of a local job's keeper.

use super::{Global, exit::Exit};
use crate::actions::keep;
use anyhow::Context;
use haul_runtime::sys::fd::keep_from_children;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Command {
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, clap::Subcommand)]
enum Step {
    /// Start the keeper of a job in a session of its own
    Detach { directory: PathBuf },
    /// Be the keeper
    Run { directory: PathBuf },
    /// Be the job's own process
    Job { directory: PathBuf, script: PathBuf },
}

impl Command {
    pub(super) fn run(self, _global: &Global) -> anyhow::Result<Exit> {
        match self.step {
            Step::Detach { directory } => {
                // A pipe of the submitter's shell would stay open as long as the job, and its reader would wait.
                keep_from_children()
                    .context("cannot keep the submitter's descriptors from the keeper")?;
                keep::detach(&directory)?;
            }
            Step::Run { directory } => keep::keep(&directory)?,
            Step::Job { directory, script } => keep::become_job(&directory, &script)?,
        }
        Ok(Exit::Done)
    }
}
