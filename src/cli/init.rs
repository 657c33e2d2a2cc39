//! `haul init`.

use super::{Global, exit::Exit};

#[derive(Debug, clap::Args)]
pub struct Command {}

impl Command {
    pub(super) fn run(self, _global: &Global) -> anyhow::Result<Exit> {
        anyhow::bail!("`haul init` comes with a later version")
    }
}
