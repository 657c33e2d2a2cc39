//! `haul completions`.

use super::{Cli, Global, exit::Exit};
use clap::CommandFactory;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Shell to complete in
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Command {
    pub(super) fn run(self, _global: &Global) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "haul", &mut script);
        crate::ui::print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}
