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
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "haul", &mut script);
        let script = String::from_utf8_lossy(&script);
        match global.json {
            true => {
                let document = serde_json::json!({
                    "schema": "haul.completions/1",
                    "shell": self.shell.to_string(),
                    "script": script,
                });
                crate::ui::print(&format!("{document:#}\n"))?;
            }
            false => crate::ui::print(&script)?,
        }
        Ok(Exit::Done)
    }
}
