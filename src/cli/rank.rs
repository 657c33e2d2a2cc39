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
    #[arg(long)]
    rank: Option<usize>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Command {
    pub(super) fn run(self, _global: &Global) -> anyhow::Result<Exit> {
        // A task of srun is told its number and its node by Slurm.
        let (rank, node) = match self.rank {
            Some(rank) => (rank, None),
            None => {
                let number = std::env::var("SLURM_PROCID")
                    .ok()
                    .and_then(|n| n.parse().ok());
                let rank = number.ok_or(RankError::NotLaunched("SLURM_PROCID"))?;
                (rank, std::env::var("SLURMD_NODENAME").ok())
            }
        };
        let code = rank::run(&rank::Options {
            run_dir: self.run,
            attempt: self.attempt,
            rank,
            node,
            supervisor: self.supervisor,
            command: self.command,
            timing: timing(),
        })?;
        Ok(Exit::Child(code))
    }
}

/// How long things may take: the defaults of the scheduler, or what HAUL_TIMING says in tests.
pub(super) fn timing() -> Timing {
    // A local job inside an allocation has an id of its own.
    let set = |name| std::env::var_os(name).is_some();
    match std::env::var("HAUL_TIMING") {
        Ok(text) => Timing::parse(&text),
        Err(_) if set("SLURM_JOB_ID") && !set("HAUL_JOB_ID") => Timing::cluster(),
        Err(_) => Timing::default(),
    }
}
