//! Use case: follows a run by reading its files, until it ends or the follower leaves. Leaving changes nothing.

use super::standing::State;
use super::view::{self, Seen, View};
use crate::plan::Plan;
use crate::scheduler::JobState;
use crate::store::journal::{self, Class, Entry, Event};
use crate::store::tail::{Tail, newest_lines};
use crate::store::{RunDir, StoreError, checkpoints};
use crate::ui::progress::RunBar;
use anyhow::Context;
use haul_runtime::contract::metrics::{Kind, Line};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(100);
/// How often the whole run is looked at; the journal and the metrics are at each poll.
const LOOK: Duration = Duration::from_millis(500);
/// How long the job may take to be gone after the run's end was written.
const GONE: Duration = Duration::from_secs(3);

/// Why following ended.
#[derive(Debug)]
pub enum Followed {
    Ended(Ended),
    /// Ctrl-C, SIGTERM or SIGHUP to the follower.
    Left(View),
}

/// A run that is over, in figures.
#[derive(Debug, serde::Serialize)]
pub struct Ended {
    pub view: View,
    /// Mean over all steps after the warm-up, of all attempts; absent where ranks share cores.
    pub tokens_per_second: Option<f64>,
    /// From the first launch to the end.
    pub seconds: Option<f64>,
    /// Of a run that failed: the end of the log of the rank that ended first, else of what the job script wrote.
    pub last_words: Vec<String>,
}

/// Follows `run` on standard error.
pub fn follow(run: &RunDir) -> anyhow::Result<Followed> {
    let leave = leave()?;
    let first = view::look(run)?;
    let plan = view::plan(run, first.view.slot);
    let mut display = Display::new(run, &first, plan.as_ref());
    let mut looked: Option<Instant> = None;
    let mut over: Option<Instant> = None;
    loop {
        let news = display.journal()?;
        display.metrics();
        if news || looked.is_none_or(|at| at.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            let seen = view::look(run)?;
            display.phase(&seen.view);
            let gone = matches!(seen.job, Some(JobState::Ended(_)) | None);
            if seen.view.state.is_over() {
                let since = *over.get_or_insert_with(Instant::now);
                if gone || since.elapsed() > GONE {
                    // What was written between the two looks.
                    display.journal()?;
                    display.metrics();
                    return Ok(Followed::Ended(display.end(seen)));
                }
                looked = None;
            }
        }
        if left(&leave)? {
            let view = view::look(run)?.view;
            display.bar.finish();
            return Ok(Followed::Left(view));
        }
    }
}

/// A descriptor that tells that the follower is asked to go.
pub fn leave() -> anyhow::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().context("cannot block signals")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("cannot open a signal descriptor")
}

/// Waits a little; true when asked to go.
pub fn left(leave: &SignalFd) -> anyhow::Result<bool> {
    let timeout = PollTimeout::try_from(POLL).unwrap_or(PollTimeout::ZERO);
    // An interrupted wait only makes the next look come sooner.
    let _ = poll(
        &mut [PollFd::new(leave.as_fd(), PollFlags::POLLIN)],
        timeout,
    );
    Ok(leave
        .read_signal()
        .context("cannot read signals")?
        .is_some())
}

struct Display {
    run: RunDir,
    bar: RunBar,
    /// Newest entry told of each epoch: several write at once.
    told: BTreeMap<u64, u64>,
    tails: BTreeMap<u32, Tail>,
    speed: Speed,
    /// The phase told last, and the phase seen last.
    said: String,
    seen: String,
    stepped: bool,
    /// Words of metrics lines that were told.
    notes: BTreeSet<String>,
    /// Attempts of before the run was resumed: they count in the figures and are not told again.
    old: BTreeSet<u32>,
}

impl Display {
    fn new(run: &RunDir, first: &Seen, plan: Option<&Plan>) -> Display {
        let mut bar = RunBar::new(first.view.total_steps, true);
        let shared = plan.is_some_and(|plan| plan.shared_cores);
        if shared {
            bar = bar.without_speed();
        }
        let config = plan.and_then(|plan| plan.train_config.as_ref());
        let past = past(&first.entries);
        Display {
            run: run.clone(),
            bar,
            told: past.iter().map(|entry| (entry.epoch, entry.seq)).collect(),
            tails: BTreeMap::new(),
            speed: Speed {
                warmup: config.map_or(0, |config| config.train.warmup_steps),
                tokens_per_step: config.map(|config| config.tokens_per_step()),
                shared,
                ..Speed::default()
            },
            said: String::new(),
            seen: String::new(),
            stepped: false,
            notes: BTreeSet::new(),
            old: view::attempts(past).collect(),
        }
    }

    /// Tells what has been journalled since the last look; true when there was anything.
    fn journal(&mut self) -> Result<bool, StoreError> {
        let (entries, _) = journal::read(&self.run)?;
        let mut news = false;
        for entry in entries {
            let told = self.told.entry(entry.epoch).or_default();
            if entry.seq > *told {
                *told = entry.seq;
                news = true;
                if let Some(words) = words(&entry.event) {
                    self.bar.event(&words);
                }
            }
        }
        Ok(news)
    }

    fn metrics(&mut self) {
        for attempt in self.run.numbers("attempts") {
            let path = self.run.metrics(attempt);
            self.tails.entry(attempt).or_insert_with(|| Tail::new(path));
        }
        for (attempt, tail) in &mut self.tails {
            for line in tail.lines() {
                let Ok(mut line) = serde_json::from_str::<Line>(&line) else {
                    continue;
                };
                line.attempt.get_or_insert(*attempt);
                self.speed.take(&line);
                if self.old.contains(attempt) {
                    continue;
                }
                self.stepped |= line.kind == Kind::Step;
                self.bar.update(&line);
                if let Some(words) = line.text.filter(|words| self.notes.insert(words.clone())) {
                    let at = line.step.map(|step| format!("step {step}: "));
                    self.bar
                        .event(&format!("{}{words}", at.unwrap_or_default()));
                }
            }
        }
    }

    fn phase(&mut self, view: &View) {
        let training = self.stepped && matches!(view.state, State::Training | State::Saving);
        let words = format!("{}: {}", view.state.word(), view.words);
        if training || view.state.is_over() || words == self.said {
            return;
        }
        // What stands at two looks is worth a line; most of a start is not.
        if words == self.seen {
            self.bar.phase(&words);
            self.said.clone_from(&words);
        }
        self.seen = words;
    }

    fn end(self, seen: Seen) -> Ended {
        self.bar.finish();
        let launched = seen
            .entries
            .iter()
            .find(|entry| matches!(entry.event, Event::Launched { .. }));
        let parse = |time: &str| chrono::DateTime::parse_from_rfc3339(time).ok();
        let seconds = launched
            .and_then(|entry| parse(&entry.time))
            .zip(seen.view.ended.as_deref().and_then(parse))
            .map(|(from, to)| (to - from).num_milliseconds() as f64 / 1000.0);
        Ended {
            tokens_per_second: self.speed.mean(),
            seconds,
            last_words: match seen.view.state {
                State::Failed => last_words(&self.run, &seen),
                _ => Vec::new(),
            },
            view: seen.view,
        }
    }
}

/// What stood in the journal when the run was resumed last, in order.
fn past(entries: &[Entry]) -> &[Entry] {
    let resumed = entries
        .iter()
        .rposition(|entry| matches!(entry.event, Event::Reopened { .. }));
    &entries[..resumed.unwrap_or(0)]
}

fn last_words(run: &RunDir, seen: &Seen) -> Vec<String> {
    const LINES: usize = 10;
    let mut lines = match view::verdicts(&seen.entries).last() {
        Some((_, verdict)) => verdict.log.clone(),
        None => newest_lines(&run.job(seen.view.slot).join("job.out"), 4096),
    };
    lines.drain(..lines.len().saturating_sub(LINES));
    lines
}

/// Tokens over seconds of the steps after the warm-up.
#[derive(Debug, Default)]
struct Speed {
    warmup: u64,
    tokens_per_step: Option<u64>,
    shared: bool,
    steps: u64,
    seconds: f64,
}

impl Speed {
    fn take(&mut self, line: &Line) {
        if let (Kind::Step, Some(step), Some(seconds)) = (line.kind, line.step, line.step_seconds)
            && step > self.warmup
        {
            self.steps += 1;
            self.seconds += seconds;
        }
    }

    fn mean(&self) -> Option<f64> {
        let tokens = (self.tokens_per_step? * self.steps) as f64;
        (!self.shared && self.seconds > 0.0).then(|| tokens / self.seconds)
    }
}

/// What is told of an event while following.
fn words(event: &Event) -> Option<String> {
    Some(match event {
        Event::Submitted { job, slot: 1 } => format!("job {job} submitted"),
        Event::Submitted { job, slot } => format!("job {job} submitted for slot {slot}"),
        Event::Refused { reason, .. } => format!("refused: {reason}"),
        Event::Double { job, of, .. } => format!(
            "job {job} is a double of {} and has left",
            of.as_deref()
                .map_or("another".into(), |of| format!("job {of}"))
        ),
        Event::Attempt {
            attempt, parent, ..
        } => match parent {
            Some(at) => format!(
                "attempt {attempt} starts from the checkpoint of step {} (attempt {})",
                at.step, at.attempt
            ),
            None if *attempt == 1 => return None,
            None => format!("attempt {attempt} starts from nothing: no checkpoint yet"),
        },
        Event::Launched {
            attempt,
            nodes,
            world,
        } => format!(
            "attempt {attempt}: {world} rank{} on {}",
            if *world == 1 { "" } else { "s" },
            nodes.join(", ")
        ),
        Event::Saved { step, .. } => format!("checkpoint at step {step}"),
        Event::Unreadable { at, reason } => checkpoints::refused(*at, reason),
        Event::Judged { verdict, .. } if verdict.class == Class::Done => return None,
        Event::Judged { attempt, verdict } => format!("attempt {attempt} ended: {}", verdict.words),
        Event::Tombstone { reason } => reason.clone(),
        Event::Link { slot } => format!("the time of its job is over; goes on in slot {slot}"),
        Event::Reopened { slot, upgrade } => format!(
            "resumed as slot {slot}{}",
            if *upgrade { " with another binary" } else { "" }
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_run_is_told_from_its_resumption_on() {
        let reopened = |slot| Event::Reopened {
            slot,
            upgrade: false,
        };
        let submitted = Event::Submitted {
            job: "1".into(),
            slot: 1,
        };
        let events = [
            submitted,
            reopened(2),
            reopened(3),
            Event::Tombstone { reason: "x".into() },
        ];
        let entries: Vec<Entry> = (1..)
            .zip(events)
            .map(|(epoch, event)| Entry {
                epoch,
                seq: 1,
                time: String::new(),
                role: String::new(),
                event,
            })
            .collect();
        assert!(past(&entries[..1]).is_empty());
        assert_eq!(past(&entries).len(), 2);
    }

    #[test]
    fn speed_leaves_out_the_warm_up_and_shared_cores() {
        let mut speed = Speed {
            warmup: 2,
            tokens_per_step: Some(1000),
            ..Speed::default()
        };
        for (step, seconds) in [(1, 9.0), (2, 9.0), (3, 0.5), (4, 1.5)] {
            speed.take(&Line {
                step: Some(step),
                step_seconds: Some(seconds),
                ..Line::new(Kind::Step)
            });
        }
        assert_eq!(speed.mean(), Some(1000.0));
        speed.shared = true;
        assert_eq!(speed.mean(), None);
    }
}
