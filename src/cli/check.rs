//! `haul check`.

use super::{Global, RecipeArgs, exit::Exit};
use crate::actions::check::{self, Checked, Request};
use crate::recipe::diagnostic::{Style, faults_json};
use crate::ui::{self, print};

#[derive(Debug, clap::Args)]
pub struct Command {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Print every value in force and where it came from
    #[arg(long)]
    show: bool,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let checked = match checked(global, &self.recipe, "haul.check/1") {
            Ok(checked) => checked,
            Err(exit) => return Ok(exit),
        };
        if global.json {
            let mut document = serde_json::json!({
                "schema": "haul.check/1",
                "ok": true,
                "faults": faults_json(&checked.warnings, &checked.sources),
                "fingerprint": checked.plan.fingerprint,
            });
            if self.show {
                document["resolved"] = check::show_json(&checked).into();
            }
            print(&format!("{document:#}\n"))?;
        } else if self.show {
            print(&check::show(&checked))?;
        } else {
            let plan = &checked.plan;
            print(&format!(
                "{}: no faults; {} rank{} on {}\n",
                self.recipe.recipe.display(),
                plan.world(),
                if plan.world() == 1 { "" } else { "s" },
                plan.machine.profile
            ))?;
        }
        Ok(Exit::Done)
    }
}

/// Reads and checks a recipe; prints its faults and warnings. `Err` is the exit code of a command that cannot go on.
pub(super) fn checked(global: &Global, args: &RecipeArgs, schema: &str) -> Result<Checked, Exit> {
    let request = Request::new(
        &args.recipe,
        &args.set,
        args.machine.as_deref(),
        global.root.as_deref(),
    );
    let coloured = ui::style::Style::stderr() == ui::style::Style::COLOURED;
    let style = if coloured {
        Style::Colour
    } else {
        Style::Plain
    };
    match check::load(&request) {
        Ok(checked) => {
            if !global.json {
                for warning in &checked.warnings {
                    ui::say(&format!("{}\n", warning.render(&checked.sources, style)));
                }
            }
            Ok(checked)
        }
        Err(faults) => {
            if global.json {
                let document = serde_json::json!({
                    "schema": schema,
                    "ok": false,
                    "faults": faults_json(&faults.list, &faults.sources),
                });
                // The exit code tells a reader that has gone.
                let _ = print(&format!("{document:#}\n"));
            } else {
                ui::say(faults.render(style).trim_end());
            }
            Err(Exit::Recipe)
        }
    }
}
