//! What a run is doing: a state word and a sentence, as a pure function of what is seen of it.

use super::progress::Progress;
use crate::scheduler::{Because, End, How, JobState, signal_name};
use crate::store::identity::Life;
use crate::store::journal::{Entry, Event, Outcome};
use serde::{Deserialize, Serialize};

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The run directory exists, no scheduler has been asked.
    Planned,
    Submitting,
    Queued,
    /// The job runs, no step has been taken yet by the newest attempt.
    Starting,
    Training,
    /// The bundled trainer writes a checkpoint; of other programs it is not known.
    Saving,
    Stopping,
    /// Saved and stopped; `haul resume` goes on.
    Waiting,
    Finished,
    Failed,
    Cancelled,
    /// It cannot be told from here.
    #[serde(other)]
    Unknown,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Planned => "planned",
            State::Submitting => "submitting",
            State::Queued => "queued",
            State::Starting => "starting",
            State::Training => "training",
            State::Saving => "saving",
            State::Stopping => "stopping",
            State::Waiting => "waiting",
            State::Finished => "finished",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Unknown => "unknown",
        }
    }

    /// Nothing more will happen by itself.
    pub fn is_over(self) -> bool {
        matches!(
            self,
            State::Planned | State::Waiting | State::Finished | State::Failed | State::Cancelled
        )
    }
}

/// Who holds the newest slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    Nobody,
    Closed,
    Unreadable,
    Owner { job: String, life: Life },
}

/// What is seen of a run.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The journal, in order.
    pub entries: Vec<Entry>,
    /// The newest slot.
    pub slot: u32,
    /// Whether the process that submits it lives; absent when it is not known.
    pub submitter: Option<Life>,
    pub claim: Claimed,
    /// The slot's job: its owner's, else the newest.
    pub job: Option<(String, JobState)>,
    /// `cancel` or `stop` when one is asked for.
    pub request: Option<String>,
    pub progress: Progress,
    /// Steps of the whole run, where they are known.
    pub total_steps: Option<u64>,
}

/// What a run is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub state: State,
    /// A sentence without a full stop.
    pub words: String,
}

fn standing(state: State, words: impl Into<String>) -> Standing {
    Standing {
        state,
        words: words.into(),
    }
}

/// Events of the run's newest life: since it was last opened again.
fn life(entries: &[Entry]) -> &[Entry] {
    let opened = entries
        .iter()
        .rposition(|entry| matches!(entry.event, Event::Reopened { .. }));
    &entries[opened.map_or(0, |at| at + 1)..]
}

/// Judges a run by what is seen of it. Unknown is not failed.
pub fn judge(facts: &Facts) -> Standing {
    let life = life(&facts.entries);
    let finished = life.iter().rev().find_map(|entry| match &entry.event {
        Event::Finished { outcome, words } => Some((*outcome, words.clone())),
        _ => None,
    });
    if let Some((outcome, mut words)) = finished {
        // The supervisor saw a signal; why it was sent only the scheduler knows.
        if let (Outcome::Failed, Some((job, JobState::Ended(end)))) = (outcome, &facts.job)
            && matches!(
                end.because,
                Some(Because::Nodes | Because::Memory | Because::Preempted)
            )
        {
            words = format!("{words}; job {job} {}", end.words());
        }
        let state = match outcome {
            Outcome::Finished => State::Finished,
            Outcome::Failed => State::Failed,
            Outcome::Cancelled => State::Cancelled,
            Outcome::Stopped => State::Waiting,
            Outcome::Unknown => State::Unknown,
        };
        return standing(state, words);
    }
    match (&facts.claim, &facts.job) {
        (Claimed::Owner { job, life }, state) => {
            owned(facts, job, *life, state.as_ref().map(|s| &s.1))
        }
        (_, Some((job, state))) => unclaimed(facts, job, state),
        (_, None) => unsubmitted(facts),
    }
}

/// The slot has an owner.
fn owned(facts: &Facts, job: &str, life: Life, state: Option<&JobState>) -> Standing {
    match (life, state) {
        (Life::Alive | Life::Unknown, Some(JobState::Unwatched(reason))) => {
            let mut live = live(facts);
            live.words.push_str(&format!(
                "; {reason}, so nobody holds job {job} to its time limit"
            ));
            live
        }
        (Life::Alive, _) => live(facts),
        (_, Some(JobState::Ended(end))) => over(facts, job, end),
        (_, Some(JobState::Ending(end))) => standing(
            State::Stopping,
            format!(
                "the supervisor {}; what it left running is being ended",
                by(end)
            ),
        ),
        (Life::Unknown, Some(JobState::Running)) => live(facts),
        (
            Life::Dead,
            Some(
                JobState::Running
                | JobState::Unwatched(_)
                | JobState::Queued
                | JobState::Waiting(_),
            ),
        ) => standing(
            State::Stopping,
            format!("the supervisor has ended; job {job} is being ended"),
        ),
        (Life::Unknown, Some(JobState::Queued | JobState::Waiting(_))) => standing(
            State::Queued,
            format!("job {job} was put back into the queue"),
        ),
        (Life::Dead, None) => standing(
            State::Failed,
            format!("the supervisor of job {job} was killed, and nobody saw how"),
        ),
        (_, Some(JobState::Unknown(reason))) => standing(
            State::Unknown,
            format!("the end of job {job} was not seen: {reason}"),
        ),
        (Life::Unknown, _) => standing(
            State::Unknown,
            format!("the supervisor of job {job} cannot be seen from here"),
        ),
    }
}

/// The supervisor lives.
fn live(facts: &Facts) -> Standing {
    let life = life(&facts.entries);
    match facts.request.as_deref() {
        Some("cancel") => return standing(State::Stopping, "being cancelled"),
        Some("stop") => return standing(State::Stopping, "being stopped with a checkpoint"),
        _ => {}
    }
    let newest = life.iter().rev().find_map(|entry| match &entry.event {
        Event::Judged { verdict, .. } => Some(Err(format!(
            "{}; the next attempt is prepared",
            verdict.words
        ))),
        Event::Attempt { attempt, .. } => Some(Err(format!("attempt {attempt} is being launched"))),
        Event::Launched { attempt, world, .. } => Some(Ok((*attempt, *world))),
        _ => None,
    });
    match newest {
        None => standing(State::Starting, "the supervisor prepares the first attempt"),
        Some(Err(words)) => standing(State::Starting, words),
        Some(Ok((attempt, world))) => match facts.progress.step {
            Some(step) if facts.progress.attempt == Some(attempt) => {
                let of = facts
                    .total_steps
                    .map_or(String::new(), |total| format!(" of {total}"));
                let state = match facts.progress.saving_step {
                    Some(_) => State::Saving,
                    None => State::Training,
                };
                standing(state, format!("step {step}{of}, attempt {attempt}"))
            }
            _ => {
                let plural = if world == 1 { "" } else { "s" };
                standing(
                    State::Starting,
                    format!("attempt {attempt}: {world} rank{plural} launched, no step yet"),
                )
            }
        },
    }
}

/// There is a job and nobody has claimed the slot for it.
fn unclaimed(facts: &Facts, job: &str, state: &JobState) -> Standing {
    match state {
        JobState::Queued => standing(State::Queued, format!("job {job} waits to start")),
        JobState::Waiting(why) => standing(State::Queued, format!("job {job}: {why}")),
        JobState::Running => standing(
            State::Starting,
            format!("job {job} has started, its supervisor not yet"),
        ),
        JobState::Unwatched(reason) => standing(
            State::Starting,
            format!("job {job} has started, its supervisor not yet; {reason}"),
        ),
        JobState::Ending(end) => standing(
            State::Stopping,
            format!(
                "job {job} {}; what it left running is being ended",
                end.words()
            ),
        ),
        JobState::Ended(end) => {
            let mut standing = over(facts, job, end);
            if matches!(end.how, How::Exited(_)) && standing.state == State::Failed {
                standing.words = format!(
                    "job {job} {} before a supervisor started; jobs/{}/job.out tells why",
                    end.words(),
                    facts.slot
                );
            }
            standing
        }
        JobState::Unknown(reason) => standing(
            State::Unknown,
            format!("the state of job {job} is not known: {reason}"),
        ),
    }
}

/// The scheduler knows no job.
fn unsubmitted(facts: &Facts) -> Standing {
    let life = life(&facts.entries);
    let newest = life.iter().rev().map(|entry| &entry.event);
    let mut newest = newest.filter(|event| {
        matches!(
            event,
            Event::Intent { .. } | Event::Submitted { .. } | Event::Refused { .. }
        )
    });
    let gone = "the submitter was killed";
    match (newest.next(), facts.submitter) {
        (Some(Event::Refused { reason, .. }), _) => standing(State::Failed, reason.clone()),
        (Some(Event::Submitted { job, .. }), _) => standing(
            State::Unknown,
            format!("the scheduler knows nothing of job {job}"),
        ),
        (_, Some(Life::Alive)) => standing(State::Submitting, "the scheduler is being asked"),
        (Some(_), Some(Life::Dead)) => standing(
            State::Planned,
            format!("{gone} before the scheduler took the job; `haul resume` completes it"),
        ),
        (None, Some(Life::Dead)) => standing(
            State::Planned,
            format!("{gone} before it asked the scheduler; `haul resume` completes it"),
        ),
        _ => standing(
            State::Unknown,
            "whether it is being submitted cannot be seen from here",
        ),
    }
}

/// The job has ended and the supervisor has not said how the run ended.
fn over(facts: &Facts, job: &str, end: &End) -> Standing {
    let tombstone = life(&facts.entries)
        .iter()
        .any(|entry| matches!(entry.event, Event::Tombstone { .. }));
    if tombstone || end.because == Some(Because::Cancelled) {
        return standing(State::Cancelled, format!("job {job} {}", end.words()));
    }
    let words = match (&facts.claim, &end.how) {
        (Claimed::Owner { .. }, How::Signalled(_)) => {
            format!("the supervisor {} (job {job})", by(end))
        }
        (Claimed::Owner { .. }, How::Exited(code)) => format!(
            "the supervisor of job {job} exited with code {code} and left no word; jobs/{}/job.out tells why",
            facts.slot
        ),
        (Claimed::Owner { .. }, How::Lost(reason)) => {
            format!("the supervisor of job {job} is gone too, and nobody saw its end: {reason}")
        }
        _ => format!("job {job} {}", end.words()),
    };
    standing(State::Failed, words)
}

/// Such as "was killed by SIGKILL".
fn by(end: &End) -> String {
    match (&end.how, end.because) {
        (How::Signalled(signal), None) => format!("was killed by {}", signal_name(*signal)),
        _ => end.words(),
    }
}

#[cfg(test)]
mod tests;
