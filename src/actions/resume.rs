//! Use case: continues a run: completes a submission that was cut off, or opens the next slot once every earlier one is over.

use super::standing::State;
use super::submit::{self, Script, Submitted};
use super::view::{self, Seen};
use crate::plan::Plan;
use crate::scheduler::JobState;
use crate::store::claim::{self, Claim};
use crate::store::identity::Process;
use crate::store::journal::{Event, Journal};
use crate::store::{RunDir, StoreError, binary};
use crate::supervise::submission::{Held, Opening, opening};
use anyhow::{Context, bail};
use std::path::Path;
use std::time::{Duration, Instant};

/// With which binary a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With<'a> {
    /// The copy it was submitted with.
    Own,
    /// This one; journalled.
    Upgrade(&'a Path),
}

/// What came of it.
#[derive(Debug)]
pub enum Resumed {
    /// The run is finished: there is nothing to continue.
    Finished(String),
    Submitted(Submitted),
}

/// Continues `run`; an error that names who holds it when somebody does or may.
pub fn resume(run: &RunDir, with: With, script: Script) -> anyhow::Result<Resumed> {
    let seen = settled(run)?;
    if seen.view.state == State::Finished {
        return Ok(Resumed::Finished(seen.view.words));
    }
    if let Opening::Held { slot, by } = opening(&view::slots(run, &seen.entries)) {
        bail!(held(run, slot, &by, &seen.view.words));
    }
    let mut journal = Journal::open(run, "resumer")?;
    // Again, now that the epoch is taken: what is seen is no older than it.
    let seen = view::look(run)?;
    let (slot, close, fresh) = match opening(&view::slots(run, &seen.entries)) {
        Opening::Complete(slot) => (slot, Vec::new(), false),
        Opening::Open { close, slot } => (slot, close, true),
        Opening::Held { slot, by } => bail!(held(run, slot, &by, &seen.view.words)),
    };
    let own = Process::own().context("cannot read /proc/self/stat")?;
    for earlier in &close {
        if let Claim::Double(owner) = claim::close(run, *earlier, &own, journal.epoch())? {
            let job = owner.map_or("an unknown job".into(), |owner| {
                format!("job {}", owner.job)
            });
            bail!(
                "{} is held: {job} took slot {earlier} this moment",
                run.id()
            );
        }
    }
    let plan = plan(run, slot)?;
    let haul = match with {
        With::Own => submit::own_binary(run)?,
        With::Upgrade(path) => binary::keep(&run.root(), path)?,
    };
    let mine = match fresh {
        true => submit::open(run, slot)?,
        false => submit::take_over(run, slot)?,
    };
    if !mine {
        bail!("{} is being resumed by somebody else this moment", run.id());
    }
    let opened = |event: &Event| matches!(event, Event::Reopened { slot: s, .. } if *s == slot);
    if slot > 1 && !seen.entries.iter().any(|entry| opened(&entry.event)) {
        forget_requests(run)?;
        journal.append(Event::Reopened {
            slot,
            upgrade: matches!(with, With::Upgrade(_)),
        })?;
    }
    submit::prepare(run, slot, &plan, &haul, script)?;
    let known = view::known(&seen.entries, slot);
    let outcome = submit::drive(run, slot, &plan, &haul, &mut journal, known)?;
    Ok(Resumed::Submitted(Submitted {
        run: run.clone(),
        slot,
        outcome,
    }))
}

/// Looks at the run once what its job left running is gone, or after half a minute.
fn settled(run: &RunDir) -> Result<Seen, StoreError> {
    let begin = Instant::now();
    loop {
        let seen = view::look(run)?;
        let ending = matches!(seen.job, Some(JobState::Ending(_)))
            || (seen.view.state.is_over() && matches!(seen.job, Some(JobState::Running)));
        if !ending || begin.elapsed() > Duration::from_secs(30) {
            return Ok(seen);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The slot's plan, else that of the newest slot before it that has one.
fn plan(run: &RunDir, slot: u32) -> anyhow::Result<Plan> {
    let anew = format!(
        "the run cannot be continued without it; `haul submit {}` begins it again as a new run, `haul report {}` tells what this one did",
        run.resolved().display(),
        run.id()
    );
    let path = (1..=slot)
        .rev()
        .map(|slot| run.plan(slot))
        .find(|path| path.exists());
    let Some(path) = path else {
        bail!(
            "the plan {} is missing, though a run is made with it: it was removed or not copied; {anew}",
            run.plan(1).display()
        );
    };
    let text = std::fs::read(&path).map_err(StoreError::io("read", &path))?;
    serde_json::from_slice(&text).with_context(|| {
        format!(
            "the plan {} is damaged or of another version of haul; {anew}",
            path.display()
        )
    })
}

/// Requests to end the job before are not for the next one.
fn forget_requests(run: &RunDir) -> Result<(), StoreError> {
    let directory = run.control();
    for entry in std::fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten()
    {
        let path = entry.path();
        std::fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
    }
    Ok(())
}

fn held(run: &RunDir, slot: u32, by: &Held, words: &str) -> String {
    let id = run.id();
    let owner = claim::newest(run, slot).flatten();
    match by {
        Held::Alive => {
            let who = owner.map_or(String::new(), |owner| {
                format!(
                    " (job {}, process {} on {})",
                    owner.job, owner.process.pid, owner.process.host
                )
            });
            format!("{id} is running{who}: {words}; `haul cancel {id}` ends it")
        }
        Held::Queued => format!("{id} is queued and will start by itself: {words}"),
        Held::Running => format!("{id} is starting: {words}"),
        Held::Submitting => {
            let who = submit::submitter(run, slot).map_or(String::new(), |process| {
                format!(" by process {} on {}", process.pid, process.host)
            });
            format!("{id} is being submitted{who}")
        }
        Held::Unknown(reason) => format!(
            "{id} may still be running, so it is not resumed: {reason}; look at it from the machine its job runs on"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_is_missing_or_torn_is_told_with_what_to_do_instead() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path().join("own-261130-aaaa"));
        std::fs::create_dir_all(run.job(1)).unwrap();
        let told = |what: &str| {
            let words = format!("{:#}", plan(&run, 2).unwrap_err());
            for part in [what, "jobs/1/plan.json", "haul submit", "resolved.yaml"] {
                assert!(words.contains(part), "`{part}` in `{words}`");
            }
        };
        told("is missing");
        std::fs::write(run.plan(1), "{torn").unwrap();
        told("is damaged");
    }
}
