//! `haul doctor`.

use super::{Global, exit::Exit};
use crate::actions::check;
use crate::actions::doctor::{self, Grade};
use crate::ui::{self, style};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Machine profile: a name or a file [default: that of the user config, else local]
    #[arg(long, env = "HAUL_MACHINE", value_name = "NAME")]
    machine: Option<String>,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let here = check::here(self.machine.as_deref(), global.root.as_deref())?;
        let checks = doctor::look(&here);
        if global.json {
            let document = json!({ "schema": doctor::SCHEMA, "machine": here.machine.name, "root": here.root, "checks": checks });
            ui::print(&format!("{document:#}\n"))?;
        } else {
            ui::print(&doctor::text(
                &checks,
                style::width(),
                style::Style::stdout(),
            ))?;
        }
        let failed = checks.iter().any(|check| check.grade == Grade::Error);
        Ok(if failed { Exit::Usage } else { Exit::Done })
    }
}
