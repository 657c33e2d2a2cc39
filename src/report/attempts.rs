//! Attempts and the state of the run in words, as the journal tells them.

use super::ledger::clock;
use super::lineage::Lineage;
use super::records::Records;
use super::steps::Steps;
use crate::store::journal::{Class, Event, Outcome};
use haul_runtime::contract::checkpoint::Point;
use serde::Serialize;

/// Said of an attempt without a verdict that is over, where nobody saw how.
pub const ORPHANED: &str = "its supervisor was gone first";

/// One launch of all ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Attempt {
    pub attempt: u32,
    pub slot: Option<u32>,
    /// Id of the job, as the scheduler calls it.
    pub job: Option<String>,
    /// RFC 3339 UTC.
    pub launched: Option<String>,
    /// From launch to verdict or last record.
    pub seconds: Option<f64>,
    /// The checkpoint it began from.
    pub parent: Option<Point>,
    pub nodes: Vec<String>,
    pub first_step: Option<u64>,
    pub last_step: Option<u64>,
    /// Steps of it that count.
    pub steps_kept: usize,
    pub steps_lost: usize,
    pub in_lineage: bool,
    pub class: Option<Class>,
    /// The verdict.
    pub words: String,
    /// Last lines of the log of the rank that ended first.
    pub log: Vec<String>,
}

/// Where the run stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct State {
    /// Absent: not finished, as far as these records go.
    pub outcome: Option<Outcome>,
    pub words: String,
    /// Time of the last record, RFC 3339 UTC.
    pub last_record: Option<String>,
}

pub fn attempts(records: &Records, lineage: &Lineage, steps: &Steps) -> Vec<Attempt> {
    records
        .attempts
        .keys()
        .map(|number| attempt(*number, records, lineage, steps))
        .collect()
}

fn attempt(number: u32, records: &Records, lineage: &Lineage, steps: &Steps) -> Attempt {
    let mut one = Attempt {
        attempt: number,
        ..Attempt::default()
    };
    let mut ended = None;
    for entry in &records.entries {
        match &entry.event {
            Event::Attempt {
                attempt,
                slot,
                parent,
            } if *attempt == number => {
                one.slot = Some(*slot);
                one.parent = *parent;
                one.job = records.entries.iter().rev().find_map(|e| match &e.event {
                    Event::Claimed { job, .. } if e.epoch == entry.epoch => Some(job.clone()),
                    _ => None,
                });
            }
            Event::Launched { attempt, nodes, .. } if *attempt == number => {
                one.launched = Some(entry.time.clone());
                one.nodes.clone_from(nodes);
            }
            Event::Judged { attempt, .. } if *attempt == number => {
                ended = clock(Some(&entry.time));
            }
            _ => {}
        }
    }
    let own = || steps.steps.iter().filter(|s| s.attempt == number);
    one.first_step = own().map(|s| s.step).min();
    one.last_step = own().map(|s| s.step).max();
    one.steps_kept = own().filter(|s| s.kept).count();
    one.steps_lost = own().filter(|s| !s.kept).count();
    one.in_lineage = one.steps_kept > 0 || lineage.head == Some(number);
    let elapsed = own()
        .filter_map(|s| s.elapsed)
        .fold(None, |m: Option<f64>, e| Some(m.map_or(e, |m| m.max(e))));
    one.seconds = ended
        .zip(clock(one.launched.as_deref()))
        .map(|(end, begin)| (end - begin).max(0.0))
        .or(elapsed);
    match records.verdict(number) {
        Some(verdict) => {
            one.class = Some(verdict.class);
            one.words.clone_from(&verdict.words);
            one.log.clone_from(&verdict.log);
        }
        None => {
            let state = state(records, steps);
            let newest = records.attempts.keys().next_back() == Some(&number);
            (one.class, one.words) = match state.outcome {
                Some(Outcome::Failed) if newest => (Some(Class::Failed), state.words),
                Some(Outcome::Cancelled) if newest => (Some(Class::Cancelled), state.words),
                None if newest => (None, "no verdict yet".into()),
                _ => (None, ORPHANED.into()),
            };
            if let Some(step) = one.last_step {
                one.words.push_str(&format!("; last step seen: {step}"));
            }
        }
    }
    one
}

pub fn state(records: &Records, steps: &Steps) -> State {
    let mut outcome = None;
    let mut words = String::new();
    for entry in &records.entries {
        match &entry.event {
            Event::Finished {
                outcome: how,
                words: why,
            } => {
                outcome = Some(*how);
                words.clone_from(why);
            }
            Event::Reopened { .. } | Event::Attempt { .. } => outcome = None,
            _ => {}
        }
    }
    let journalled = records.entries.iter().map(|e| &e.time);
    let lines = steps.steps.iter().filter_map(|s| s.line.time.as_ref());
    let last_record = journalled
        .chain(lines)
        .filter(|time| clock(Some(time.as_str())).is_some())
        .max_by(|a, b| {
            let seconds = |t: &str| clock(Some(t)).unwrap_or(0.0);
            seconds(a).total_cmp(&seconds(b))
        })
        .cloned();
    if let (None, Some((how, why))) = (outcome, &records.ended) {
        outcome = Some(*how);
        words.clone_from(why);
    }
    if outcome.is_none() {
        let tombstone = records.entries.iter().rev().find_map(|e| match &e.event {
            Event::Tombstone { reason } => Some(Some(reason.clone())),
            Event::Reopened { .. } => Some(None),
            _ => None,
        });
        words = match tombstone.flatten() {
            Some(reason) => format!("asked to end: {reason}; not ended as far as these records go"),
            None if steps.steps.is_empty() => "no step yet".into(),
            None => "not finished as far as these records go".into(),
        };
    }
    State {
        outcome,
        words,
        last_record,
    }
}

/// One word for an outcome.
pub fn outcome_word(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::Finished) => "finished",
        Some(Outcome::Failed) => "failed",
        Some(Outcome::Cancelled) => "cancelled",
        Some(Outcome::Stopped) => "stopped",
        Some(Outcome::Unknown) => "unknown",
        None => "unfinished",
    }
}

/// One word for a verdict.
pub fn class_word(class: Option<Class>) -> &'static str {
    match class {
        Some(Class::Done) => "done",
        Some(Class::Again) => "start again",
        Some(Class::Stopped) => "stopped",
        Some(Class::Cancelled) => "cancelled",
        Some(Class::BadCheckpoint) => "bad checkpoint",
        Some(Class::Never) => "asked to end",
        Some(Class::Failed) => "failed",
        Some(Class::AllUnreadable) => "no readable checkpoint",
        Some(Class::Unknown) | None => "unknown",
    }
}
