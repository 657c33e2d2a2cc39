//! `haul status`.

use super::{Global, exit::Exit};
use crate::actions::{check, status};
use crate::store::{Root, RunDir, select};
use crate::ui::{self, style};

/// Runs shown unless all are asked for.
const NEWEST: usize = 20;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// One run in detail: `last`, a run id, the start of one, or a name (its newest run)
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Show all runs of the root, not only the newest 20
    #[arg(long, conflicts_with = "run")]
    all: bool,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let root = root(global)?;
        let (width, look) = (style::width(), style::Style::stdout());
        let text = match &self.run {
            Some(selector) => {
                let run = select::find(&root, selector)?;
                let seen = status::details(&run)?;
                match global.json {
                    true => format!("{:#}\n", status::details_json(&run, &seen)),
                    false => status::details_text(&run, &seen, width, look),
                }
            }
            None => {
                let runs = status::runs(&root, if self.all { usize::MAX } else { NEWEST })?;
                match (global.json, runs.total) {
                    (true, _) => format!("{:#}\n", runs.to_json(&root)),
                    (false, 0) => format!(
                        "no runs in {}: `haul run RECIPE` makes the first\n",
                        root.path().display()
                    ),
                    (false, _) => runs.table(width, look),
                }
            }
        };
        ui::print(&text)?;
        Ok(Exit::Done)
    }
}

/// The run root of a command without a recipe.
pub(super) fn root(global: &Global) -> anyhow::Result<Root> {
    Ok(Root::new(check::root(global.root.as_deref())?))
}

/// The run that a command is about.
pub(super) fn run(global: &Global, selector: &str) -> anyhow::Result<RunDir> {
    Ok(select::find(&root(global)?, selector)?)
}
