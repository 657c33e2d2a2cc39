//! `haul doctor`.

use super::{Global, exit::Exit, status};
use crate::actions::doctor::{self, Grade};
use crate::ui::{self, style};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Command {}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let checks = doctor::look(&status::root(global)?);
        if global.json {
            let document = json!({ "schema": doctor::SCHEMA, "checks": checks });
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
