//! A table: what is seen of a run, and what is said of it.

use super::*;
use crate::store::journal::{Class, Verdict};

struct Seen(Facts);

fn seen(events: &[Event]) -> Seen {
    let entries = events.iter().enumerate();
    Seen(Facts {
        entries: entries
            .map(|(seq, event)| Entry {
                epoch: 1,
                seq: seq as u64,
                time: String::new(),
                role: String::new(),
                event: event.clone(),
            })
            .collect(),
        slot: 1,
        submitter: Some(Life::Dead),
        claim: Claimed::Nobody,
        job: None,
        request: None,
        progress: Progress::default(),
        total_steps: Some(400),
    })
}

impl Seen {
    fn job(mut self, state: JobState) -> Seen {
        self.0.job = Some(("7".into(), state));
        self
    }

    fn owner(mut self, life: Life) -> Seen {
        self.0.claim = Claimed::Owner {
            job: "7".into(),
            life,
        };
        self
    }

    fn step(mut self, attempt: u32, step: u64) -> Seen {
        self.0.progress.attempt = Some(attempt);
        self.0.progress.step = Some(step);
        self
    }

    fn submitter(mut self, life: Option<Life>) -> Seen {
        self.0.submitter = life;
        self
    }

    fn request(mut self, what: &str) -> Seen {
        self.0.request = Some(what.into());
        self
    }

    #[track_caller]
    fn is(self, state: State, part: &str) {
        let said = judge(&self.0);
        assert_eq!(said.state, state, "{}", said.words);
        assert!(said.words.contains(part), "`{part}` in `{}`", said.words);
        assert!(!said.words.ends_with('.'), "{}", said.words);
    }
}

fn intent() -> Event {
    Event::Intent {
        slot: 1,
        token: "haul-x-1".into(),
    }
}

fn submitted() -> Event {
    Event::Submitted {
        slot: 1,
        job: "7".into(),
    }
}

fn launched(attempt: u32) -> Event {
    Event::Launched {
        attempt,
        nodes: vec!["local0".into()],
        world: 2,
    }
}

fn finished(outcome: Outcome) -> Event {
    Event::Finished {
        outcome,
        words: "so it ended".into(),
    }
}

fn ended(how: How) -> JobState {
    JobState::Ended(End::untimed(how))
}

fn tombstone() -> Event {
    Event::Tombstone { reason: "x".into() }
}

#[test]
fn before_a_job() {
    seen(&[]).is(State::Planned, "before it asked the scheduler");
    seen(&[intent()]).is(State::Planned, "`haul resume` completes it");
    seen(&[intent()])
        .submitter(Some(Life::Alive))
        .is(State::Submitting, "asked");
    seen(&[intent()])
        .submitter(Some(Life::Unknown))
        .is(State::Unknown, "cannot be seen");
    let refused = Event::Refused {
        slot: 1,
        reason: "no space".into(),
    };
    seen(&[intent(), refused]).is(State::Failed, "no space");
    seen(&[intent(), submitted()]).is(State::Unknown, "nothing of job 7");
}

#[test]
fn a_job_without_an_owner() {
    let events = [intent(), submitted()];
    let job = |state| seen(&events).job(state);
    job(JobState::Queued).is(State::Queued, "job 7");
    job(JobState::Running).is(State::Starting, "its supervisor not yet");
    job(JobState::Unknown("timed out".into())).is(State::Unknown, "timed out");
    job(ended(How::Exited(1))).is(State::Failed, "jobs/1/job.out");
    job(ended(How::Lost("its keeper (process 5) was killed".into())))
        .is(State::Failed, "its keeper (process 5) was killed");
    job(ended(How::NotStarted("no bash".into()))).is(State::Failed, "no bash");
    seen(&[intent(), submitted(), tombstone()])
        .job(ended(How::Signalled(15)))
        .is(State::Cancelled, "SIGTERM");
    // The lost answer of a killed submitter: the job was taken all the same.
    seen(&[intent()])
        .job(JobState::Queued)
        .is(State::Queued, "7");
}

#[test]
fn a_live_owner() {
    let live = |events: &[Event]| seen(events).job(JobState::Running).owner(Life::Alive);
    live(&[submitted()]).is(State::Starting, "first attempt");
    let attempt = Event::Attempt {
        attempt: 1,
        slot: 1,
        parent: None,
    };
    live(&[submitted(), attempt]).is(State::Starting, "attempt 1 is being launched");
    live(&[submitted(), launched(1)]).is(State::Starting, "2 ranks launched");
    live(&[submitted(), launched(1)])
        .step(1, 12)
        .is(State::Training, "step 12 of 400");
    let mut saving = live(&[submitted(), launched(1)]).step(1, 12);
    saving.0.progress.saving_step = Some(12);
    saving.is(State::Saving, "step 12 of 400");
    // Figures of the attempt before say nothing of this one.
    live(&[submitted(), launched(2)])
        .step(1, 12)
        .is(State::Starting, "no step yet");
    live(&[submitted(), launched(1)])
        .step(1, 12)
        .request("cancel")
        .is(State::Stopping, "cancelled");
    let judged = Event::Judged {
        attempt: 1,
        verdict: Verdict {
            class: Class::Failed,
            words: "rank 1 was killed by SIGKILL".into(),
            rank: None,
            node: None,
            code: None,
            signal: None,
            step: None,
            log: vec![],
        },
    };
    live(&[launched(1), judged])
        .step(1, 12)
        .is(State::Starting, "rank 1 was killed by SIGKILL; the next");
    seen(&[launched(1)])
        .owner(Life::Alive)
        .job(JobState::Unwatched("its keeper was killed".into()))
        .step(1, 3)
        .is(State::Training, "its keeper was killed, so nobody");
}

#[test]
fn an_owner_that_is_gone_or_out_of_sight() {
    let gone = |state| seen(&[launched(1)]).owner(Life::Dead).job(state);
    gone(JobState::Ending(End::untimed(How::Signalled(9)))).is(
        State::Stopping,
        "the supervisor was killed by SIGKILL; what it left",
    );
    gone(ended(How::Signalled(9))).is(State::Failed, "the supervisor was killed by SIGKILL");
    gone(ended(How::Exited(1))).is(State::Failed, "exited with code 1");
    gone(ended(How::Lost("its keeper was killed".into()))).is(State::Failed, "keeper was killed");
    gone(JobState::Running).is(State::Stopping, "supervisor has ended");
    gone(JobState::Unknown("down".into())).is(State::Unknown, "down");
    let walltime = End {
        because: Some(Because::Walltime),
        ..End::untimed(How::Signalled(9))
    };
    gone(JobState::Ended(walltime)).is(State::Failed, "SIGKILL at the walltime limit");
    let far = |state| seen(&[launched(1)]).owner(Life::Unknown).job(state);
    far(JobState::Running).is(State::Starting, "launched");
    far(JobState::Unknown("down".into())).is(State::Unknown, "not seen");
    far(ended(How::Signalled(9))).is(State::Failed, "SIGKILL");
    seen(&[])
        .owner(Life::Unknown)
        .is(State::Unknown, "from here");
}

#[test]
fn what_the_supervisor_said_counts_until_the_run_is_opened_again() {
    for (outcome, state) in [
        (Outcome::Finished, State::Finished),
        (Outcome::Failed, State::Failed),
        (Outcome::Cancelled, State::Cancelled),
        (Outcome::Stopped, State::Waiting),
        (Outcome::Unknown, State::Unknown),
    ] {
        seen(&[launched(1), finished(outcome)])
            .owner(Life::Alive)
            .job(JobState::Running)
            .is(state, "so it ended");
    }
    let reopened = Event::Reopened {
        slot: 2,
        upgrade: false,
    };
    seen(&[
        tombstone(),
        finished(Outcome::Cancelled),
        reopened,
        intent(),
    ])
    .job(JobState::Queued)
    .is(State::Queued, "waits");
}
