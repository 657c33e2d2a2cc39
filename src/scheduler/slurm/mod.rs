//! Slurm, through its commands. What it does not know at the moment is unknown, never failed.

pub mod answers;
pub mod command;
mod kept;
pub mod parse;
pub mod queries;
pub mod refusal;
pub mod state;

use super::{Cancel, JobState, Request, Scheduler, SchedulerError, SubmitError};
use crate::store::Root;
use answers::Answers;
use queries::{Queries, Rows, Wanted};
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

    /// For somebody who acts on what is said.
    pub fn eager(self) -> Slurm {
        Slurm {
            queries: self.queries.eager(),
        }
    }

    pub fn queries(&self) -> &Queries {
        &self.queries
    }

    /// What is said of all that is wanted at the time `now`, in milliseconds since the epoch: squeue and sacct are asked once each, or not at all.
    pub fn answers(&self, wanted: &[Wanted], now: u64) -> Answers {
        let mut answers = Answers {
            queue: self.queries.queue(now),
            past: Rows::default(),
            past_error: None,
            absent: BTreeMap::new(),
        };
        let unknown = |one: &Wanted| {
            let mut one = one.clone();
            match one.jobs.is_empty() {
                true => answers.named(&one.token).is_empty().then_some(one),
                false => {
                    one.jobs.retain(|job| !answers.is_settled(&one.token, job));
                    (!one.jobs.is_empty()).then_some(one)
                }
            }
        };
        let missing: Vec<Wanted> = wanted.iter().filter_map(unknown).collect();
        if !missing.is_empty() {
            (answers.past, answers.past_error) = self.queries.past(&missing, now);
        }
        if let Ok(queue) = &answers.queue {
            let all = wanted
                .iter()
                .flat_map(|one| one.jobs.iter().map(|job| (&one.token, job)));
            let seen = all.clone().map(|(_, job)| job.clone()).collect();
            let absent = all
                .filter(|(token, job)| answers.is_absent(token, job))
                .map(|(_, job)| (job.clone(), queue.asked));
            answers.absent = self.queries.absent(&seen, &absent.collect());
        }
        answers
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
        let queue = self.queries.queue(queries::now())?;
        add(queue.of.into_values().flatten().collect());
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
        let wanted = Wanted {
            token: token.to_owned(),
            jobs: jobs.to_vec(),
        };
        let answers = self.answers(&[wanted], queries::now());
        jobs.iter()
            .map(|job| (job.clone(), answers.state(token, job)))
            .collect()
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

/// The cluster keeps no accounts at all, which is no failure.
fn is_without_accounting(reason: &str) -> bool {
    let lower = reason.to_lowercase();
    lower.contains("accounting storage is disabled") || lower.contains("no `sacct` here")
}
