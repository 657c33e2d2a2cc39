//! From rows of squeue and sacct to states of jobs. What neither tells is unknown.

use super::parse::Row;
use super::queries::Rows;
use super::state;
use crate::scheduler::{End, How, JobState, SchedulerError};
use std::collections::{BTreeMap, BTreeSet};

/// A job that accounting takes for alive for so much longer than the controller has known it, in milliseconds, is lost: the
/// controller has forgotten it, and nobody will write its end.
pub const LOST: u64 = 15 * 60_000;

/// What Slurm said of the jobs that were asked about.
#[derive(Debug)]
pub struct Answers {
    pub(super) queue: Result<Rows, SchedulerError>,
    /// Of the jobs that the controller does not know.
    pub(super) past: Rows,
    /// Why some of these may be missing.
    pub(super) past_error: Option<SchedulerError>,
    /// When the controller was first seen not to know a job that accounting takes for alive.
    pub(super) absent: BTreeMap<String, u64>,
}

/// Ids come again: after they have wrapped, and behind a controller that lost its state.
fn newest<'a>(rows: &'a Rows, token: &str, job: &str) -> Option<&'a Row> {
    rows.of.get(job)?.iter().rfind(|row| row.name == token)
}

impl Answers {
    /// Whether the controller knows the job.
    pub(super) fn is_queued(&self, token: &str, job: &str) -> bool {
        let queue = self.queue.as_ref();
        queue.is_ok_and(|rows| newest(rows, token, job).is_some())
    }

    /// Whether squeue says all there is to say of the job: of one that failed only sacct knows the exit code.
    pub(super) fn is_settled(&self, token: &str, job: &str) -> bool {
        let queue = self.queue.as_ref();
        queue.is_ok_and(|rows| newest(rows, token, job).is_some_and(|row| row.state != "FAILED"))
    }

    /// Jobs of this name that Slurm knows, oldest first.
    pub fn named(&self, token: &str) -> Vec<String> {
        let both = self.queue.iter().chain([&self.past]);
        let named = both.filter_map(|rows| rows.named.get(token)).flatten();
        let jobs: BTreeSet<u64> = named.copied().collect();
        jobs.into_iter().map(|job| job.to_string()).collect()
    }

    /// Whether accounting takes the job for alive, and the controller does not know it.
    pub(super) fn is_absent(&self, token: &str, job: &str) -> bool {
        let alive = |row: &Row| {
            !matches!(
                state::meaning(&row.told()),
                JobState::Ended(_) | JobState::Unknown(_)
            )
        };
        !self.is_queued(token, job) && newest(&self.past, token, job).is_some_and(alive)
    }

    /// Both have said so for long enough.
    fn is_lost(&self, job: &str) -> bool {
        let Ok(queue) = &self.queue else {
            return false;
        };
        let until = queue.asked.min(self.past.asked);
        let since = self.absent.get(job);
        since.is_some_and(|since| until.saturating_sub(*since) > LOST)
    }

    pub fn state(&self, token: &str, job: &str) -> JobState {
        if let Ok(rows) = &self.queue
            && let Some(row) = newest(rows, token, job)
        {
            let end = newest(&self.past, token, job).map(|row| state::meaning(&row.told()));
            return match (row.state.as_str(), end) {
                ("FAILED", Some(end @ JobState::Ended(_))) => end,
                _ => state::meaning(&row.told()),
            };
        }
        match (&self.queue, newest(&self.past, token, job)) {
            (queue, Some(row)) => match state::meaning(&row.told()) {
                end @ JobState::Ended(_) => end,
                JobState::Waiting(_)
                | JobState::Queued
                | JobState::Running
                | JobState::Ending(_)
                    if self.is_lost(job) =>
                {
                    JobState::Ended(End::untimed(How::Lost(format!(
                        "Slurm has lost the job: squeue has not known it for {} minutes, and sacct still says {}",
                        LOST / 60_000,
                        row.state
                    ))))
                }
                // Accounting lags: that it runs there says nothing where the controller does not know it.
                _ if queue.is_ok() => JobState::Unknown(
                    "squeue does not know it any more, and sacct not yet how it ended".into(),
                ),
                state => state,
            },
            (Ok(_), None) => JobState::Unknown(match &self.past_error {
                None => "neither squeue nor sacct knows it (yet)".into(),
                Some(error) => format!("squeue does not know it; {error}"),
            }),
            (Err(error), None) => JobState::Unknown(error.to_string()),
        }
    }
}
