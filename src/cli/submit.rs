//! `haul submit`.

use super::{Global, RecipeArgs, exit::Coded, exit::Exit};
use crate::actions::submit::{self, Order, Submitted};
use crate::actions::{provenance, script};
use crate::store::Root;
use crate::supervise::submission::Outcome;
use crate::ui;
use anyhow::Context;
use serde_json::json;

const SCHEMA: &str = "haul.submit/1";

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
        let submitted = match submit(&self.recipe, self.here, global)? {
            Ok(submitted) => submitted,
            Err(exit) => return Ok(exit),
        };
        let id = submitted.run.id();
        if global.json {
            print_json(&submitted)?;
        } else if let Outcome::Submitted(job) = &submitted.outcome {
            ui::print(&format!(
                "{id}\njob {job} runs by itself; next: haul status {id} · haul logs -f {id} · haul cancel {id}\n"
            ))?;
        }
        outcome(&id, &submitted.outcome)
    }
}

/// Reads the recipe and submits it; `Err` is the exit code of a recipe with faults, which have been told.
pub(super) fn submit(
    recipe: &RecipeArgs,
    here: bool,
    global: &Global,
) -> anyhow::Result<Result<Submitted, Exit>> {
    let mut checked = match super::check::checked(global, recipe, SCHEMA) {
        Ok(checked) => checked,
        Err(exit) => return Ok(Err(exit)),
    };
    checked.plan.machine.here = here;
    let binary = std::env::current_exe().context("cannot find the running binary")?;
    submit::submit(&Order {
        root: Root::new(checked.root),
        plan: &checked.plan,
        recipe: &checked.recipe_text,
        resolved: &checked.resolved_yaml,
        provenance: provenance::of_this_process(&recipe.recipe),
        binary: &binary,
        script: &script::job,
    })
    .map(Ok)
}

pub(super) fn print_json(submitted: &Submitted) -> anyhow::Result<()> {
    let (job, reason) = match &submitted.outcome {
        Outcome::Submitted(job) => (Some(job), None),
        Outcome::Refused(reason) | Outcome::Unclear(reason) => (None, Some(reason)),
    };
    let document = json!({
        "schema": SCHEMA,
        "run": submitted.run.id(),
        "directory": submitted.run.path(),
        "slot": submitted.slot,
        "job": job,
        "reason": reason,
    });
    ui::print(&format!("{document:#}\n"))?;
    Ok(())
}

/// The exit code of a submission; an error where there is no job.
pub(super) fn outcome(id: &str, outcome: &Outcome) -> anyhow::Result<Exit> {
    match outcome {
        Outcome::Submitted(_) => Ok(Exit::Done),
        Outcome::Refused(reason) => Err(Coded {
            exit: Exit::Failed,
            words: format!("the job of {id} was refused: {reason}"),
        }
        .into()),
        Outcome::Unclear(reason) => Err(Coded {
            exit: Exit::Scheduler,
            words: format!(
                "whether the job of {id} was taken is not known: {reason}; `haul resume {id}` asks again and submits it if it was not"
            ),
        }
        .into()),
    }
}
