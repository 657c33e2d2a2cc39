//! `haul plan`.

use super::{Global, RecipeArgs, exit::Exit};
use crate::ui::{print, style::Style};

#[derive(Debug, clap::Args)]
pub struct Command {
    #[command(flatten)]
    recipe: RecipeArgs,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let checked = match super::check::checked(global, &self.recipe, "haul.check/1") {
            Ok(checked) => checked,
            Err(exit) => return Ok(exit),
        };
        if global.json {
            print(&format!(
                "{}\n",
                serde_json::to_string_pretty(&checked.plan)?
            ))?;
        } else {
            print(&crate::actions::plan::page(&checked.plan, Style::stdout()))?;
        }
        Ok(Exit::Done)
    }
}
