//! `haul status`.

use super::{Global, exit::Exit};
use crate::actions::status::{self, Ticker};
use crate::actions::view::View;
use crate::actions::{check, follow};
use crate::store::{Root, RunDir, select};
use crate::ui::screen::Screen;
use crate::ui::{self, style};
use std::time::{Duration, Instant};

/// Runs shown unless all are asked for.
const NEWEST: usize = 20;
/// Between two looks of somebody who watches.
const AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub struct Command {
    /// One run in detail: `last`, a run id, the start of one, or a name (its newest run)
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Show all runs of the root, not only the newest 20
    #[arg(long, conflicts_with = "run")]
    all: bool,
    /// Show it again every few seconds, one run until it ends, until Ctrl-C; plain lines where there is no terminal
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
}

/// What is shown, and what it is about.
struct Shown {
    text: String,
    views: Vec<View>,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let root = root(global)?;
        let run = self.run.as_deref().map(|run| select::find(&root, run));
        let run = run.transpose()?;
        if self.watch {
            return self.watch(&root, run.as_ref());
        }
        let shown = self.look(&root, run.as_ref(), global.json)?;
        ui::print(&shown.text)?;
        Ok(Exit::Done)
    }

    fn look(&self, root: &Root, run: Option<&RunDir>, json: bool) -> anyhow::Result<Shown> {
        let (width, look) = (style::width(), style::Style::stdout());
        let Some(run) = run else {
            let runs = status::runs(root, if self.all { usize::MAX } else { NEWEST })?;
            let text = match (json, runs.total) {
                (true, _) => format!("{:#}\n", runs.to_json(root)),
                (false, 0) => format!(
                    "no runs in {}: `haul run RECIPE` makes the first\n",
                    root.path().display()
                ),
                (false, _) => runs.table(width, look),
            };
            let views = runs.views;
            return Ok(Shown { text, views });
        };
        let seen = status::details(run)?;
        let text = match json {
            true => format!("{:#}\n", status::details_json(run, &seen)),
            false => status::details_text(run, &seen, width, look),
        };
        let views = vec![seen.view];
        Ok(Shown { text, views })
    }

    fn watch(&self, root: &Root, run: Option<&RunDir>) -> anyhow::Result<Exit> {
        let leave = follow::leave()?;
        let mut screen = Screen::stdout();
        let mut ticker = Ticker::default();
        loop {
            let shown = self.look(root, run, false)?;
            let looked = Instant::now();
            match &mut screen {
                Some(screen) => screen.draw(&shown.text)?,
                None => ui::print(&ticker.news(&shown.views, looked))?,
            }
            if run.is_some() && shown.views.iter().all(|view| view.state.is_over()) {
                return Ok(Exit::Done);
            }
            while looked.elapsed() < AGAIN {
                if follow::left(&leave)? {
                    return Ok(Exit::Done);
                }
            }
        }
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
