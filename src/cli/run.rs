//! `haul run`: submit, then follow.

use super::{Global, RecipeArgs, exit::Exit, submit};
use crate::actions::follow::{self, Ended, Followed};
use crate::actions::standing::State;
use crate::actions::{report, sample, status, view};
use crate::report::records::Sampled;
use crate::store::RunDir;
use crate::supervise::submission::Outcome;
use crate::ui::style::{self, Style, visible};
use crate::ui::{self, frame, units};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Command {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Run in the Slurm allocation that this shell holds (salloc)
    #[arg(long)]
    here: bool,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let submitted = match submit::submit(&self.recipe, self.here, global)? {
            Ok(submitted) => submitted,
            Err(exit) => return Ok(exit),
        };
        let id = submitted.run.id();
        if !matches!(submitted.outcome, Outcome::Submitted(_)) {
            return submit::outcome(&id, &submitted.outcome);
        }
        ui::say(&format!("run {id} in {}", submitted.run.path().display()));
        follow(&submitted.run, global)
    }
}

/// Follows a run and tells how it ended; the exit code says it too.
pub(super) fn follow(run: &RunDir, global: &Global) -> anyhow::Result<Exit> {
    let id = run.id();
    match follow::follow(run)? {
        Followed::Ended(ended) => {
            let sampled = sampled(run, &ended);
            if global.json {
                let document = json!({ "schema": "haul.run/1", "run": ended, "sample": sampled });
                ui::print(&format!("{document:#}\n"))?;
            } else {
                ui::print(&summary(run, &ended, sampled.as_ref()))?;
            }
            Ok(exit(ended.view.state))
        }
        Followed::Left(view) => {
            let words = format!("the run goes on ({})", view.state.word());
            ui::say(&format!(
                "\n{words}: haul status {id} · haul logs -f {id} · haul cancel {id}"
            ));
            Ok(Exit::Unfinished)
        }
    }
}

/// What the model of a finished run writes; the report shows it too.
fn sampled(run: &RunDir, ended: &Ended) -> Option<Sampled> {
    // A login node is not for computing.
    let elsewhere = view::plan(run, ended.view.slot).is_some_and(|plan| plan.machine.is_slurm());
    if ended.view.state != State::Finished || elsewhere {
        return None;
    }
    sample::keep(run).unwrap_or_else(|error| {
        ui::say(&format!("note: no sample was made: {error:#}"));
        None
    })
}

fn summary(run: &RunDir, ended: &Ended, sampled: Option<&Sampled>) -> String {
    let view = &ended.view;
    let progress = &view.progress;
    let figures = [
        progress
            .loss
            .map(|loss| format!("loss {}", units::loss(loss))),
        progress
            .validation_loss
            .map(|loss| format!("validation loss {}", units::loss(loss))),
        ended
            .tokens_per_second
            .map(|speed| units::rate(speed, "tokens/s")),
        ended.seconds.map(units::duration),
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    let mut text = format!("{} {}: {}\n", view.id, view.state.word(), view.words);
    if !figures.is_empty() {
        text.push_str(&format!("{}\n", figures.join(" · ")));
    }
    for line in &ended.last_words {
        text.push_str(&format!("  | {}\n", visible(line)));
    }
    if let Some(sampled) = sampled {
        let title = format!("sample of step {}", units::grouped(sampled.step));
        text.push_str(&frame::frame(
            &title,
            &sampled.text,
            style::width(),
            Style::stdout(),
        ));
    }
    if progress.step.is_some() {
        match report::write(run) {
            Ok(written) => text.push_str(&format!("report: {}\n", written.html.display())),
            Err(error) => ui::say(&format!("note: no report was made: {error:#}")),
        }
    }
    text.push_str(&format!("{}\n", status::next(run, view)));
    text
}

/// The exit code of a run's state.
pub(super) fn exit(state: State) -> Exit {
    match state {
        State::Finished => Exit::Done,
        State::Failed => Exit::Failed,
        State::Cancelled => Exit::Cancelled,
        _ => Exit::Unfinished,
    }
}
