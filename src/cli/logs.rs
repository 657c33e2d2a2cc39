//! `haul logs`.

use super::{Global, count, exit::Exit, status};
use crate::actions::logs::{Logs, Wanted};
use crate::actions::view;
use crate::ui::{self, style::visible_line};
use serde_json::json;
use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// `last`, a run id, the start of one, or a name (its newest run)
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Go on with what is added, until the run ends
    #[arg(short, long, conflicts_with = "json")]
    follow: bool,
    /// Lines of this rank only
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    rank: Option<usize>,
    /// Lines of this attempt only
    #[arg(long, value_name = "N", value_parser = count::<u32>, allow_negative_numbers = true)]
    attempt: Option<u32>,
    /// What the job scripts and supervisors wrote, instead of the ranks
    #[arg(long, conflicts_with_all = ["rank", "attempt"])]
    job: bool,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let run = status::run(global, &self.run)?;
        let mut logs = Logs::new(
            &run,
            Wanted {
                attempt: self.attempt,
                rank: self.rank,
                job: self.job,
            },
        );
        if global.json {
            let document =
                json!({ "schema": "haul.logs/1", "run": run.id(), "lines": logs.lines() });
            ui::print(&format!("{document:#}\n"))?;
            return Ok(Exit::Done);
        }
        let mut any = false;
        loop {
            // Looked at before reading: what was written until the end is still read.
            let over = !self.follow || view::view(&run)?.state.is_over();
            let lines = logs.lines();
            any |= !lines.is_empty();
            if !write(&lines)? {
                return Ok(Exit::Done);
            }
            if over {
                break;
            }
            std::thread::sleep(Duration::from_millis(150));
        }
        if !any {
            let id = run.id();
            ui::say(&match self.job {
                true => format!("the job scripts of {id} wrote nothing"),
                false => format!(
                    "the ranks of {id} wrote no such lines; haul logs --job {id} shows what its jobs wrote"
                ),
            });
        }
        Ok(Exit::Done)
    }
}

/// False when nobody reads any more.
fn write(lines: &[String]) -> std::io::Result<bool> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // What a program wrote must not steer the terminal; a file or a pipe gets it as it is.
    let terminal = out.is_terminal();
    let text = lines.iter().fold(String::new(), |text, line| {
        let shown = match terminal {
            true => Cow::Owned(visible_line(line)),
            false => Cow::Borrowed(line.as_str()),
        };
        text + &shown + "\n"
    });
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}
