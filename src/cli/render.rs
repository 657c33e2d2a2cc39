//! `haul render`.

use super::{Global, RecipeArgs, exit::Exit};
use crate::actions::render::scripts;
use crate::ui::print;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Command {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Templates of your own: job.sbatch.tera, job.sh.tera, launch.sh.tera
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let checked = match super::check::checked(global, &self.recipe, "haul.render/1") {
            Ok(checked) => checked,
            Err(exit) => return Ok(exit),
        };
        let scripts = scripts(&checked, self.templates.as_deref())?;
        if global.json {
            let document = serde_json::json!({
                "schema": "haul.render/1",
                "ok": true,
                "job": scripts.job,
                "launch": scripts.launch,
            });
            print(&format!("{document:#}\n"))?;
        } else {
            print(&format!(
                "--- job.sh\n{}\n--- launch.sh (of each attempt, made by the supervisor)\n{}",
                scripts.job, scripts.launch
            ))?;
        }
        Ok(Exit::Done)
    }
}
