//! What follows an attempt: another, from which checkpoint, or the end.

use super::classify::Request;
use super::verdict::{Class, Outcome, Verdict};
use std::time::Duration;

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Launch again from the newest checkpoint.
    Launch,
    /// Mark the checkpoint it was given as unreadable and launch from the one before.
    LaunchFromBefore,
    Finish {
        outcome: Outcome,
        words: String,
    },
}

/// What the decision depends on besides the verdict.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// Failures so far in this job, this one included if it is one.
    pub failures: u32,
    /// Failures after which the run fails.
    pub limit: u32,
    pub request: Option<Request>,
}

/// Whether an attempt counts as a failure: a program that asks to be started again without having saved anything
/// new would go on for ever.
pub fn counts(class: Class, progressed: bool) -> bool {
    match class {
        Class::Failed => true,
        Class::Again => !progressed,
        _ => false,
    }
}

/// Failures that end alike, one after the other, without a new checkpoint in between.
#[derive(Debug, Default)]
pub struct Alike {
    kind: Option<(Class, Option<i32>, Option<i32>)>,
    /// How many came after the first.
    more: u32,
}

impl Alike {
    /// Takes the newest verdict; it `progressed` when a new checkpoint was saved.
    pub fn count(&mut self, verdict: &Verdict, progressed: bool) {
        let kind = Some((verdict.class, verdict.code, verdict.signal));
        self.more = match kind == self.kind && !progressed {
            true => self.more.saturating_add(1),
            false => 0,
        };
        self.kind = kind;
    }

    /// Before the next attempt: nothing at first, then `first`, twice that, up to 30 times.
    pub fn pause(&self, first: Duration) -> Duration {
        match self.more {
            0 => Duration::ZERO,
            more => first * (1 << (more - 1).min(5)).min(30),
        }
    }
}

/// Decides.
pub fn decide(verdict: &Verdict, standing: Standing) -> Next {
    let words = verdict.words.clone();
    let finish = |outcome, words| Next::Finish { outcome, words };
    let asked = standing.request.is_some();
    match verdict.class {
        Class::Done => finish(Outcome::Finished, words),
        Class::Stopped => finish(Outcome::Stopped, words),
        Class::Cancelled => finish(Outcome::Cancelled, words),
        Class::Never | Class::AllUnreadable => finish(Outcome::Failed, words),
        Class::BadCheckpoint if !asked => Next::LaunchFromBefore,
        Class::Again if asked => finish(Outcome::Stopped, words),
        _ if asked => finish(
            Outcome::Failed,
            format!("{words}; not started again, since it was asked to end"),
        ),
        _ if standing.failures > standing.limit => finish(
            Outcome::Failed,
            match standing.limit {
                0 => words,
                limit => format!("{words}; {} failures, {limit} allowed", standing.failures),
            },
        ),
        _ => Next::Launch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(class: Class, failures: u32, limit: u32, request: Option<Request>) -> Next {
        let verdict = Verdict {
            class,
            words: "w".into(),
            rank: None,
            node: None,
            code: None,
            signal: None,
            step: None,
            log: Vec::new(),
        };
        decide(
            &verdict,
            Standing {
                failures,
                limit,
                request,
            },
        )
    }

    fn outcome(next: Next) -> Option<Outcome> {
        match next {
            Next::Finish { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    #[test]
    fn failures_are_allowed_up_to_the_limit_and_never_after_a_request() {
        assert_eq!(next(Class::Failed, 1, 1, None), Next::Launch);
        assert_eq!(
            outcome(next(Class::Failed, 2, 1, None)),
            Some(Outcome::Failed)
        );
        assert_eq!(
            outcome(next(Class::Failed, 1, 0, None)),
            Some(Outcome::Failed)
        );
        for request in [Request::Stop, Request::Cancel, Request::Terminate(15)] {
            assert_eq!(
                outcome(next(Class::Failed, 1, 9, Some(request))),
                Some(Outcome::Failed)
            );
        }
    }

    #[test]
    fn an_unreadable_checkpoint_leads_to_the_one_before() {
        assert_eq!(
            next(Class::BadCheckpoint, 0, 0, None),
            Next::LaunchFromBefore
        );
        assert!(!counts(Class::BadCheckpoint, false));
    }

    #[test]
    fn failures_that_are_alike_are_kept_apart_by_a_growing_pause() {
        let verdict = |code| Verdict {
            class: Class::Failed,
            words: String::new(),
            rank: None,
            node: None,
            code: Some(code),
            signal: None,
            step: None,
            log: Vec::new(),
        };
        let mut alike = Alike::default();
        let mut after = |code, progressed| {
            alike.count(&verdict(code), progressed);
            alike.pause(Duration::from_secs(1)).as_secs()
        };
        let pauses: Vec<u64> = (0..9).map(|_| after(1, false)).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!((after(2, false), after(2, false)), (0, 1));
        assert_eq!((after(2, true), after(2, false)), (0, 1));
    }

    #[test]
    fn again_without_progress_is_a_failure() {
        assert!(counts(Class::Again, false));
        assert!(!counts(Class::Again, true));
        assert_eq!(
            outcome(next(Class::Again, 0, 3, Some(Request::Limit))),
            Some(Outcome::Stopped)
        );
    }
}
