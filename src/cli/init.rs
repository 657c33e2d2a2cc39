//! `haul init`.

use super::{Global, exit::Exit};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Directory to write it into
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let recipe = crate::actions::init::init(&self.directory)?;
        if global.json {
            let document = serde_json::json!({"schema": "haul.init/1", "recipe": recipe.display().to_string()});
            crate::ui::print(&format!("{document:#}\n"))?;
        } else {
            let recipe = recipe.display();
            crate::ui::print(&format!("wrote {recipe}; next: haul plan {recipe}\n"))?;
        }
        Ok(Exit::Done)
    }
}
