//! `haul prune`.

use super::{Global, exit::Exit, status};
use crate::actions::prune::{self, Wish};
use crate::recipe::section::duration;
use crate::ui::{self, style};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Remove what is listed; without it nothing is changed
    #[arg(long)]
    yes: bool,
    /// Newest checkpoints of each run that stay
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    /// Whole runs too that ended longer ago than --older
    #[arg(long)]
    runs: bool,
    /// How old a run must be to go as a whole, such as 90d
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration, requires = "runs")]
    older: u64,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let root = status::root(global)?;
        let wish = Wish {
            keep: self.keep as usize,
            runs_older: self.runs.then(|| Duration::from_secs(self.older)),
        };
        let mut items = prune::find(&root, wish)?;
        if self.yes {
            items = prune::remove(&root, wish, items);
        }
        match global.json {
            true => ui::print(&format!("{:#}\n", prune::to_json(&root, &items, self.yes)))?,
            false => ui::print(&prune::text(
                &root,
                &items,
                self.yes,
                style::width(),
                style::Style::stdout(),
            ))?,
        }
        let failed = items.iter().any(|item| item.error.is_some());
        Ok(if failed { Exit::Usage } else { Exit::Done })
    }
}
