//! `haul logs`.

use super::{Global, count, exit::Exit, status};
use crate::actions::logs::{Logs, Wanted};
use crate::actions::view;
use crate::store::journal::Verdict;
use crate::ui::style::{Style, visible_line, width};
use crate::ui::{self, frame};
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
    /// Lines as they stand in the files: those that several ranks wrote are not put together
    #[arg(long)]
    raw: bool,
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
            let ends = match self.raw || self.job {
                true => Vec::new(),
                false => logs.ends()?,
            };
            // On top of the log of a run that has ended; of one that goes on, where it happened.
            let on_top = !any;
            if on_top && !tell(&ends)? {
                return Ok(Exit::Done);
            }
            let lines = match (self.raw || self.job, over || !ends.is_empty()) {
                (true, _) => logs.lines(),
                (false, true) => logs.folded(),
                (false, false) => logs.settled(),
            };
            any |= !lines.is_empty();
            if !write(&lines)? || !on_top && !tell(&ends)? {
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

/// Writes how attempts ended, with the last words of the rank that was the first.
fn tell(ends: &[(u32, Verdict)]) -> std::io::Result<bool> {
    let mut text = String::new();
    for (attempt, verdict) in ends {
        let who = verdict
            .rank
            .map(|rank| format!(": rank {rank} was the first"));
        let title = format!("attempt {attempt} ended{}", who.unwrap_or_default());
        let words = format!("{}\n{}", verdict.words, verdict.log.join("\n"));
        text.push_str(&frame::frame(&title, &words, width(), Style::stdout()));
    }
    put(&text)
}

/// False when nobody reads any more.
fn write(lines: &[String]) -> std::io::Result<bool> {
    // What a program wrote must not steer the terminal; a file or a pipe gets it as it is.
    let terminal = std::io::stdout().is_terminal();
    let text = lines.iter().fold(String::new(), |text, line| {
        let shown = match terminal {
            true => Cow::Owned(visible_line(line)),
            false => Cow::Borrowed(line.as_str()),
        };
        text + &shown + "\n"
    });
    put(&text)
}

fn put(text: &str) -> std::io::Result<bool> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}
