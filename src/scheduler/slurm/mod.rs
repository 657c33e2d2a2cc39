//! Slurm, through its commands. What it does not know at the moment is unknown, never failed.

pub mod command;
pub mod parse;
pub mod queries;
pub mod refusal;
pub mod state;

use super::{Cancel, JobState, Request, Scheduler, SchedulerError, SubmitError};
use crate::store::Root;
use queries::Queries;
use std::collections::BTreeMap;
use std::time::Duration;

/// The cluster that the commands of this machine speak with.
#[derive(Debug, Clone)]
pub struct Slurm {
    queries: Queries,
}

impl Slurm {
    /// For the runs of `root`, which belong to `user`; two questions are at least `floor` apart.
    pub fn new(root: &Root, user: String, floor: Duration) -> Slurm {
        Slurm {
            queries: Queries::new(root.path(), user, floor),
        }
    }

    pub fn queries(&self) -> &Queries {
        &self.queries
    }
}

impl Scheduler for Slurm {
    fn submit(&self, request: &Request) -> Result<String, SubmitError> {
        let script = request.script.to_string_lossy();
        let directory = request.directory.to_string_lossy();
        let said = self
            .queries
            .said("sbatch", &["--parsable", "--chdir", &directory, &script])
            .map_err(SubmitError::Refused)?;
        self.queries.forget();
        match said.status {
            None => Err(SubmitError::Ambiguous(format!(
                "sbatch gave no answer in {} s",
                queries::LIMIT.as_secs()
            ))),
            Some(status) if status.success() => parse::submitted(&said.out).ok_or_else(|| {
                SubmitError::Ambiguous(format!(
                    "sbatch printed no job id but `{}`",
                    refusal::one_line(&said.out)
                ))
            }),
            // It was killed on its way.
            Some(status) if status.code().is_none() => {
                Err(SubmitError::Ambiguous(format!("sbatch ended by {status}")))
            }
            Some(_) => Err(refusal::refusal(&said.err)),
        }
    }

    fn look_up(&self, token: &str) -> Result<Vec<String>, SchedulerError> {
        self.queries.forget();
        let mut jobs: Vec<u64> = Vec::new();
        let mut add = |rows: Vec<parse::Row>| {
            let named = rows.into_iter().filter(|row| row.name == token);
            for number in named.filter_map(|row| row.job.parse().ok()) {
                if !jobs.contains(&number) {
                    jobs.push(number);
                }
            }
        };
        add(self.queries.queue()?);
        match self.queries.named(token) {
            Ok(rows) => add(rows),
            // The controller keeps what ended a few minutes ago; a cluster without accounting has nothing else.
            Err(error) if !is_without_accounting(&error.reason) && jobs.is_empty() => {
                return Err(error);
            }
            Err(_) => {}
        }
        jobs.sort_unstable();
        Ok(jobs.into_iter().map(|n| n.to_string()).collect())
    }

    fn states(&self, token: &str, jobs: &[String]) -> BTreeMap<String, JobState> {
        if jobs.is_empty() {
            return BTreeMap::new();
        }
        let queue = self.queries.queue();
        let waiting: Vec<String> = match &queue {
            Ok(rows) => jobs
                .iter()
                .filter(|job| !rows.iter().any(|row| is(row, token, job)))
                .cloned()
                .collect(),
            Err(_) => jobs.to_vec(),
        };
        let past = match waiting.is_empty() {
            true => Ok(BTreeMap::new()),
            false => self.queries.past(&waiting),
        };
        let of = |job: &String| {
            if let Ok(rows) = &queue
                && let Some(row) = rows.iter().find(|row| is(row, token, job))
            {
                return state::meaning(&row.told());
            }
            let told = past.as_ref().map(|rows| {
                let row = rows.get(job)?;
                (row.name == token).then_some(row)
            });
            match (&queue, told) {
                (queue, Ok(Some(row))) => match state::meaning(&row.told()) {
                    end @ JobState::Ended(_) => end,
                    // Accounting lags: that it runs there says nothing where the controller does not know it.
                    _ if queue.is_ok() => JobState::Unknown(
                        "squeue does not know it any more, and sacct not yet how it ended".into(),
                    ),
                    state => state,
                },
                (Ok(_), Ok(None)) => {
                    JobState::Unknown("neither squeue nor sacct knows it (yet)".into())
                }
                (Ok(_), Err(error)) => {
                    JobState::Unknown(format!("squeue does not know it; {error}"))
                }
                (Err(error), _) => JobState::Unknown(error.to_string()),
            }
        };
        jobs.iter().map(|job| (job.clone(), of(job))).collect()
    }

    fn cancel(&self, job: &str, how: Cancel) -> Result<(), SchedulerError> {
        // TERM to all steps and to the batch step; the first leaves them their time, the second does not.
        let arguments: &[&str] = match how {
            Cancel::Term => &["--full", "--signal=TERM", job],
            Cancel::Kill => &[job],
        };
        self.queries
            .call("scancel", arguments)
            .map(|_| self.queries.forget())
            .map_err(|reason| SchedulerError {
                what: format!("cancel job {job}"),
                reason,
            })
    }
}

/// Ids come again: after they have wrapped, and behind a controller that lost its state.
fn is(row: &parse::Row, token: &str, job: &str) -> bool {
    row.job == job && row.name == token
}

/// The cluster keeps no accounts at all, which is no failure.
fn is_without_accounting(reason: &str) -> bool {
    let lower = reason.to_lowercase();
    lower.contains("accounting storage is disabled") || lower.contains("no `sacct` here")
}
