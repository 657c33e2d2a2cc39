//! `haul launch`: one virtual node; started by launch.sh.

use super::{Global, exit::Exit};
use crate::launch;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Run directory
    #[arg(long)]
    run: PathBuf,
    #[arg(long)]
    attempt: u32,
    /// Number of the virtual node
    #[arg(long)]
    node: usize,
    /// Where the supervisor listens
    #[arg(long)]
    supervisor: SocketAddr,
    /// The program of every rank and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Command {
    pub(super) fn run(self, _global: &Global) -> anyhow::Result<Exit> {
        launch::run(&launch::Options {
            run_dir: self.run,
            attempt: self.attempt,
            node: self.node,
            supervisor: self.supervisor,
            command: self.command,
            timing: super::rank::timing(),
        })?;
        Ok(Exit::Done)
    }
}
