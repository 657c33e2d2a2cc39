//! The submission protocol as a state machine: intent, submit, look up by token, record; and when the next slot may be opened.
//!
//! The intent is journalled before the scheduler is asked, so a crash leaves a trace. An answer that is not clear is followed by look-ups
//! under the job's name, and only look-ups that find nothing lead to another try. A job that is accepted late after all is
//! harmless: it belongs to the same slot, whose claim only one job wins. Before the next slot is opened every earlier one is closed by
//! a claim that belongs to no job, so that whatever comes late for it finds it taken.

#[cfg(test)]
mod tests;

/// Look-ups that find nothing before a job counts as not accepted.
pub const LOOKS: u32 = 3;
/// Times the scheduler is asked to take a job.
pub const TRIES: u32 = 3;

/// What the journal knows of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    Nothing,
    Intent,
    Submitted(String),
    Refused(String),
}

/// What to do next: exactly one thing, whose outcome is the next [`Event`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Journal the intent and fsync; answer [`Event::Journalled`].
    JournalIntent,
    Submit,
    LookUp,
    /// Wait, longer with each number; answer [`Event::Waited`].
    Wait(u32),
    JournalSubmitted(String),
    JournalRefused(String),
    Done(Outcome),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Journalled,
    Waited,
    Accepted(String),
    Refused(String),
    /// The job may have been accepted.
    Unclear(String),
    /// Jobs of the token's name, oldest first.
    Found(Vec<String>),
    CannotLookUp(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Submitted(String),
    Refused(String),
    /// The scheduler could not be brought to a clear answer: the intent stands, and may be completed later.
    Unclear(String),
}

/// One submission under way.
#[derive(Debug, Clone)]
pub struct Submission {
    phase: Phase,
    tries: u32,
    /// Look-ups since the last try that found nothing, and that failed.
    looks: u32,
    failures: u32,
    /// A try whose outcome is not known has been made.
    doubt: bool,
    /// What was last heard from the scheduler.
    heard: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Intending,
    Submitting,
    Looking { refused: Option<String> },
    Recording(Outcome),
    Done(Outcome),
}

impl Submission {
    /// Begins, or goes on from what the journal knows.
    pub fn begin(known: Known) -> (Submission, Action) {
        let mut submission = Submission {
            phase: Phase::Intending,
            tries: 0,
            looks: 0,
            failures: 0,
            doubt: false,
            heard: String::new(),
        };
        let action = match known {
            Known::Nothing => Action::JournalIntent,
            Known::Intent => {
                // Whoever wrote it may have been accepted.
                submission.doubt = true;
                submission.look(None)
            }
            Known::Submitted(job) => submission.done(Outcome::Submitted(job)),
            Known::Refused(reason) => submission.done(Outcome::Refused(reason)),
        };
        (submission, action)
    }

    /// The next action. An event that does not belong to the last action repeats nothing and changes nothing.
    pub fn step(&mut self, event: Event) -> Action {
        match (self.phase.clone(), event) {
            (Phase::Intending, Event::Journalled) => self.submit(),
            (Phase::Submitting, Event::Accepted(job)) => self.record(Outcome::Submitted(job)),
            (Phase::Submitting, Event::Refused(reason)) if self.doubt => self.look(Some(reason)),
            (Phase::Submitting, Event::Refused(reason)) => self.record(Outcome::Refused(reason)),
            (Phase::Submitting, Event::Unclear(reason)) => {
                self.doubt = true;
                self.heard = reason;
                self.look(None)
            }
            (Phase::Looking { .. }, Event::Found(jobs)) if !jobs.is_empty() => {
                self.record(Outcome::Submitted(jobs[0].clone()))
            }
            (Phase::Looking { refused }, Event::Found(_)) => {
                self.looks += 1;
                match refused {
                    _ if self.looks < LOOKS => Action::Wait(self.looks),
                    Some(reason) => self.record(Outcome::Refused(reason)),
                    None if self.tries < TRIES => self.submit(),
                    None => self.done(Outcome::Unclear(self.heard.clone())),
                }
            }
            (Phase::Looking { .. }, Event::CannotLookUp(reason)) => {
                self.failures += 1;
                self.heard = reason;
                if self.failures < LOOKS {
                    Action::Wait(self.failures)
                } else {
                    // Never ask again for a job that nobody could look for.
                    self.done(Outcome::Unclear(self.heard.clone()))
                }
            }
            (Phase::Looking { .. }, Event::Waited) => Action::LookUp,
            (Phase::Recording(outcome), Event::Journalled) => self.done(outcome),
            (Phase::Intending, _) => Action::JournalIntent,
            (Phase::Submitting | Phase::Looking { .. }, _) => Action::LookUp,
            (Phase::Recording(Outcome::Submitted(job)), _) => Action::JournalSubmitted(job),
            (Phase::Recording(Outcome::Refused(reason)), _) => Action::JournalRefused(reason),
            (Phase::Recording(outcome) | Phase::Done(outcome), _) => Action::Done(outcome),
        }
    }

    fn submit(&mut self) -> Action {
        self.tries += 1;
        self.phase = Phase::Submitting;
        Action::Submit
    }

    fn look(&mut self, refused: Option<String>) -> Action {
        self.looks = 0;
        self.failures = 0;
        self.phase = Phase::Looking { refused };
        Action::LookUp
    }

    fn record(&mut self, outcome: Outcome) -> Action {
        let action = match &outcome {
            Outcome::Submitted(job) => Action::JournalSubmitted(job.clone()),
            Outcome::Refused(reason) => Action::JournalRefused(reason.clone()),
            Outcome::Unclear(_) => Action::Done(outcome.clone()),
        };
        self.phase = Phase::Recording(outcome);
        action
    }

    fn done(&mut self, outcome: Outcome) -> Action {
        self.phase = Phase::Done(outcome.clone());
        Action::Done(outcome)
    }
}

/// What is seen of one slot by somebody who wants to continue the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub number: u32,
    pub known: Known,
    /// Whether the process that submits it is alive; absent where that cannot be told.
    pub submitter_alive: Option<bool>,
    pub claim: Claimed,
    pub job: Job,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    Nobody,
    /// Closed by somebody who opened a later slot.
    Closed,
    Alive,
    Dead,
    /// An owner that cannot be seen from here, or an unreadable claim.
    Unknown,
}

/// What the scheduler says of the slot's jobs together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// None is known.
    None,
    Queued,
    Running,
    /// All of them are over.
    Ended,
    Unknown(String),
}

/// Whether the run may be continued, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// The newest slot's submission was begun and never came to an end: complete it.
    Complete(u32),
    /// Close these slots, then open the next one.
    Open { close: Vec<u32>, slot: u32 },
    /// Somebody holds the run, or may hold it.
    Held { slot: u32, by: Held },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    Submitting,
    Queued,
    /// The job runs and has not claimed its slot yet.
    Running,
    /// The slot's owner is alive.
    Alive,
    Unknown(String),
}

/// Decides from what is seen of all slots, in ascending order. Unknown is held: it is never taken for ended.
pub fn opening(slots: &[Slot]) -> Opening {
    let mut close = Vec::new();
    for slot in slots {
        let number = slot.number;
        let newest = slots.last().is_some_and(|last| last.number == number);
        let held = |by| Opening::Held { slot: number, by };
        match (slot.claim, &slot.job) {
            (Claimed::Closed, _) => continue,
            (Claimed::Alive, _) => return held(Held::Alive),
            (Claimed::Dead, _) | (Claimed::Unknown | Claimed::Nobody, Job::Ended) => {}
            (Claimed::Unknown, job) => {
                let reason = match job {
                    Job::Unknown(reason) => format!(", and the scheduler does not know: {reason}"),
                    _ => String::new(),
                };
                return held(Held::Unknown(format!(
                    "the owner of slot {number} cannot be seen from here{reason}"
                )));
            }
            (Claimed::Nobody, Job::Queued) => return held(Held::Queued),
            (Claimed::Nobody, Job::Running) => return held(Held::Running),
            (Claimed::Nobody, Job::Unknown(reason)) => return held(Held::Unknown(reason.clone())),
            (Claimed::Nobody, Job::None) => match &slot.known {
                Known::Refused(_) => {}
                Known::Submitted(job) => {
                    return held(Held::Unknown(format!(
                        "the scheduler knows no job {job}, and nobody saw its end"
                    )));
                }
                Known::Nothing | Known::Intent if slot.submitter_alive == Some(true) => {
                    return held(Held::Submitting);
                }
                Known::Nothing | Known::Intent if newest => return Opening::Complete(number),
                Known::Nothing | Known::Intent => {}
            },
        }
        close.push(number);
    }
    Opening::Open {
        close,
        slot: slots.last().map_or(1, |last| last.number + 1),
    }
}
