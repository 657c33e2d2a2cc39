//! `haul archive`.

use super::{Global, exit::Exit, status};
use crate::actions::archive;
use crate::ui::{self, units};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Run: `last`, its id, or the start of it
    #[arg(value_name = "RUN")]
    run: String,
    /// FILE.tar, or a directory where the name has no suffix [default: the run's id, with .tar]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let run = status::run(global, &self.run)?;
        let path = self
            .file
            .unwrap_or_else(|| format!("{}.tar", run.id()).into());
        let archived = archive::archive(&run, &path)?;
        if global.json {
            let document = json!({
                "schema": archive::SCHEMA,
                "run": run.id(),
                "path": archived.path,
                "files": archived.files,
                "bytes": archived.bytes,
            });
            ui::print(&format!("{document:#}\n"))?;
        } else {
            ui::print(&format!(
                "{}: {} files of {}, {}, without checkpoints\n",
                archived.path.display(),
                archived.files,
                run.id(),
                units::bytes(archived.bytes)
            ))?;
        }
        Ok(Exit::Done)
    }
}
