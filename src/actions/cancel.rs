//! Use case: ends a run and waits until it has ended. First a record that outlives everybody, then the supervisor, then the scheduler.

use super::standing::State;
use super::view::{self, View};
use crate::scheduler::{Cancel, JobState};
use crate::store::claim;
use crate::store::identity::{Life, Process};
use crate::store::journal::{Event, Journal, Outcome};
use crate::store::publish::publish;
use crate::store::{RunDir, StoreError};
use anyhow::Context;
use std::time::{Duration, Instant};

/// How a run is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Now,
    /// After a checkpoint; `haul resume` goes on from it.
    Save,
}

/// How long the supervisor may take before the scheduler is asked.
const SUPERVISOR: Duration = Duration::from_secs(15);
/// How long the scheduler may take before it is asked to kill.
const SCHEDULER: Duration = Duration::from_secs(20);
/// How long after that the run is given up on.
const KILL: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// How often it is told that a checkpoint is still waited for.
const REMIND: Duration = Duration::from_secs(30);

/// Ends `run`; `say` is told what is being waited for. A run that has ended already is left as it is.
pub fn cancel(run: &RunDir, how: How, say: &mut dyn FnMut(&str)) -> anyhow::Result<View> {
    let seen = view::look(run)?;
    if seen.view.state == State::Planned {
        return never_submitted(run);
    }
    if seen.view.state.is_over() {
        return Ok(seen.view);
    }
    ask(run, how)?;
    match how {
        How::Save => say("asked for a checkpoint and a stop; waiting for it"),
        How::Now => say("asked to stop; waiting for it"),
    }
    let begin = Instant::now();
    let scheduler = view::scheduler_of(run, view::plan(run, seen.view.slot).as_ref())?;
    let mut asked = 0;
    let mut reminders = 0;
    loop {
        let seen = view::look(run)?;
        let job_over = matches!(seen.job, Some(JobState::Ended(_)) | None);
        if seen.view.state.is_over() && job_over {
            return Ok(seen.view);
        }
        let waited = begin.elapsed();
        let owned = claim::newest(run, seen.view.slot)
            .flatten()
            .is_some_and(|owner| owner.process.life() != Life::Dead);
        // Without a supervisor there is nobody to ask but the scheduler.
        let due = match (how, owned) {
            (How::Save, true) => None,
            (_, true) => Some(SUPERVISOR),
            (_, false) => Some(Duration::from_millis(500)),
        };
        if due.is_none() && waited >= REMIND * (reminders + 1) {
            reminders += 1;
            say(&reminder(&seen.view, waited));
        }
        if let (Some(job), Some(due)) = (&seen.view.job, due) {
            if asked == 0 && waited >= due {
                asked = 1;
                scheduler.cancel(job, Cancel::Term)?;
            } else if asked == 1 && waited >= due + SCHEDULER {
                asked = 2;
                say("it does not end by itself; killing it");
                scheduler.cancel(job, Cancel::Kill)?;
            } else if asked == 2 && waited >= due + SCHEDULER + KILL {
                return Ok(seen.view);
            }
        }
        std::thread::sleep(POLL);
    }
}

/// What is told of a save that takes long: nobody ends a program that is saving, however long it takes.
fn reminder(view: &View, waited: Duration) -> String {
    let step = view.progress.step;
    format!(
        "waited {} s for the program to save and leave ({}); `haul cancel {}` ends it at once without a checkpoint, Ctrl-C here leaves it asked",
        waited.as_secs(),
        step.map_or("no step seen".into(), |step| format!(
            "last step seen: {step}"
        )),
        view.id
    )
}

/// Writes the tombstone and the request, unless they stand.
fn ask(run: &RunDir, how: How) -> anyhow::Result<()> {
    let (word, reason) = match how {
        How::Now => ("cancel", "cancelled by `haul cancel`"),
        How::Save => ("stop", "stopped by `haul cancel --save`"),
    };
    let directory = run.control();
    let stands = std::fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().ends_with(&format!("-{word}"))
        });
    if stands {
        return Ok(());
    }
    std::fs::create_dir_all(&directory).map_err(StoreError::io("create", &directory))?;
    let mut journal = Journal::open(run, "canceller")?;
    journal.append(Event::Tombstone {
        reason: reason.into(),
    })?;
    let name = format!("{}-{word}", journal.epoch());
    publish(&directory.join(name), reason.as_bytes())?;
    Ok(())
}

/// Nobody was asked to run it: closing its slot ends it.
fn never_submitted(run: &RunDir) -> anyhow::Result<View> {
    let mut journal = Journal::open(run, "canceller")?;
    let own = Process::own().context("cannot read /proc/self/stat")?;
    for slot in run.numbers("jobs") {
        claim::close(run, slot, &own, journal.epoch())?;
    }
    journal.append(Event::Finished {
        outcome: Outcome::Cancelled,
        words: "cancelled before it was submitted".into(),
    })?;
    Ok(view::look(run)?.view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_save_is_told_with_what_ends_it() {
        let view: View = serde_json::from_value(serde_json::json!({
            "id": "own-261130-aaaa", "state": "stopping", "words": "", "slot": 1, "bundled": false,
            "progress": {"step": 12},
        }))
        .unwrap();
        let words = reminder(&view, Duration::from_secs(60));
        for part in [
            "waited 60 s",
            "last step seen: 12",
            "`haul cancel own-261130-aaaa` ends it at once",
        ] {
            assert!(words.contains(part), "`{part}` in `{words}`");
        }
    }
}
