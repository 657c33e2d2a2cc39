//! `haul supervise`: the first process of a job; started by job.sh.

use super::{Global, exit::Exit};
use crate::actions::supervise::{self, End, Options};
use crate::supervise::verdict::Outcome;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Run directory
    #[arg(long)]
    run: PathBuf,
    #[arg(long)]
    slot: u32,
    /// The scheduler's id of this job
    #[arg(long, env = "HAUL_JOB_ID")]
    job_id: Option<String>,
    /// How often the scheduler has started this job again
    #[arg(long, env = "HAUL_RESTART_COUNT")]
    restart_count: Option<u32>,
    /// Unix seconds of the job's time limit
    #[arg(long, env = "HAUL_JOB_END")]
    job_end: Option<u64>,
}

/// A variable of the Slurm job that this process is in.
fn slurm<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

impl Command {
    pub(super) fn run(self, _global: &Global) -> anyhow::Result<Exit> {
        let end = supervise::run(Options {
            run_dir: self.run,
            slot: self.slot,
            job: self.job_id.or_else(|| slurm("SLURM_JOB_ID")),
            restart: self
                .restart_count
                .or_else(|| slurm("SLURM_RESTART_COUNT"))
                .unwrap_or(0),
            job_end: self.job_end.or_else(|| slurm("SLURM_JOB_END_TIME")),
            timing: super::rank::timing(),
        })?;
        Ok(match end {
            End::Left(_) => Exit::Done,
            End::Ended { outcome, .. } => match outcome {
                Outcome::Finished | Outcome::Stopped => Exit::Done,
                Outcome::Cancelled => Exit::Cancelled,
                Outcome::Failed | Outcome::Unknown => Exit::Failed,
            },
        })
    }
}
