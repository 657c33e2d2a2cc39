//! `haul resume`.

use super::{Global, exit::Exit, run, status, submit};
use crate::actions::resume::{self, Resumed, With};
use crate::actions::{script, submit::Submitted};
use crate::supervise::submission::Outcome;
use crate::ui;
use anyhow::Context;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// `last`, a run id, the start of one, or a name (its newest run)
    #[arg(value_name = "RUN")]
    run: String,
    /// Go on with this binary instead of the one the run was submitted with
    #[arg(long)]
    upgrade: bool,
    /// Follow the run to its end
    #[arg(short, long)]
    follow: bool,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let run = status::run(global, &self.run)?;
        let binary = std::env::current_exe().context("cannot find the running binary")?;
        let with = match self.upgrade {
            true => With::Upgrade(&binary),
            false => With::Own,
        };
        let id = run.id();
        match resume::resume(&run, with, &script::job)? {
            Resumed::Finished(words) if global.json => {
                let slot = run.numbers("jobs").last().copied().unwrap_or(1);
                submit::print_json(&Submitted {
                    run,
                    slot,
                    outcome: Outcome::Refused(words),
                })?;
                Ok(Exit::Done)
            }
            Resumed::Finished(words) => {
                ui::say(&format!("{id} is finished, nothing to resume: {words}"));
                Ok(Exit::Done)
            }
            Resumed::Submitted(submitted) => {
                if let (true, Outcome::Submitted(_)) = (self.follow, &submitted.outcome) {
                    return run::follow(&run, global);
                }
                if global.json {
                    submit::print_json(&submitted)?;
                } else if let Outcome::Submitted(job) = &submitted.outcome {
                    ui::print(&format!(
                        "{id} goes on as job {job}, slot {}; next: haul status {id} · haul logs -f {id}\n",
                        submitted.slot
                    ))?;
                }
                submit::outcome(&id, &submitted.outcome)
            }
        }
    }
}
