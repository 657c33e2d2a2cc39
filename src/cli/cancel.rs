//! `haul cancel`.

use super::{Global, exit::Exit, status};
use crate::actions::cancel::{self, How};
use crate::actions::standing::State;
use crate::ui;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// `last`, a run id, the start of one, or a name (its newest run)
    #[arg(value_name = "RUN")]
    run: String,
    /// Save a checkpoint first; `haul resume` goes on from it
    #[arg(long)]
    save: bool,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let run = status::run(global, &self.run)?;
        let how = if self.save { How::Save } else { How::Now };
        let view = cancel::cancel(&run, how, &mut |words| ui::say(words))?;
        if global.json {
            let document = json!({ "schema": "haul.cancel/1", "run": view });
            ui::print(&format!("{document:#}\n"))?;
        } else {
            let text = format!("{} {}: {}\n", view.id, view.state.word(), view.words);
            ui::print(&text)?;
        }
        Ok(match view.state {
            State::Unknown => Exit::Scheduler,
            state if state.is_over() => Exit::Done,
            _ => Exit::Unfinished,
        })
    }
}
