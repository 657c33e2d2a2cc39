//! `haul rank`: the shim of one rank; started by launch.sh.

use super::{Global, exit::Exit};
use crate::rank::{self, RankError};
use crate::supervise::core::Timing;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Run directory
    #[arg(long)]
    run: PathBuf,
    #[arg(long)]
    attempt: u32,
    /// Where the supervisor listens
    #[arg(long)]
    supervisor: SocketAddr,
    /// Number of the rank [default: the task's number under Slurm]
    #[arg(long, env = "SLURM_PROCID")]
    rank: Option<usize>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Command {
    pub(super) fn run(self, _global: &Global) -> anyhow::Result<Exit> {
        let code = rank::run(&rank::Options {
            run_dir: self.run,
            attempt: self.attempt,
            rank: self.rank.ok_or(RankError::NotLaunched("SLURM_PROCID"))?,
            supervisor: self.supervisor,
            command: self.command,
            timing: timing(),
        })?;
        Ok(Exit::Child(code))
    }
}

/// How long things may take: the defaults, or what HAUL_TIMING says in tests.
pub(super) fn timing() -> Timing {
    std::env::var("HAUL_TIMING").map_or_else(|_| Timing::default(), |text| Timing::parse(&text))
}
