//! Questions to Slurm, as few as possible: one for all jobs of a user, kept in the root for all terminals, none more often than the site allows.

use super::command::{Said, run};
use super::parse::{PAST_FORMAT, QUEUE_FORMAT, Row, past, queue};
use super::refusal::one_line;
use crate::scheduler::SchedulerError;
use crate::store::publish::cache;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long Slurm may take; its own time-out is 10 s, and a dead controller takes 9 s to be told.
pub const LIMIT: Duration = Duration::from_secs(40);
/// An answer is asked for at most so much later than the site's floor, at random, so that terminals do not meet.
const JITTER: f64 = 0.25;

/// Answers and the count of calls, under `<root>/.slurm/`. A root that cannot be written to costs more questions, no more.
#[derive(Debug, Clone)]
pub struct Queries {
    directory: PathBuf,
    user: String,
    floor: Duration,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    /// Milliseconds since the epoch.
    asked: u64,
    rows: Vec<Row>,
    /// Of sacct: jobs asked for.
    #[serde(default)]
    jobs: Vec<String>,
    /// What the question came to, if it failed.
    #[serde(default)]
    error: Option<String>,
}

impl Queries {
    pub fn new(root: &Path, user: String, floor: Duration) -> Queries {
        Queries {
            directory: root.join(".slurm"),
            user,
            floor,
        }
    }

    /// All jobs that the controller knows of the user, from an answer no older than the floor.
    pub fn queue(&self) -> Result<Vec<Row>, SchedulerError> {
        let path = self.directory.join(format!("queue-{}.json", self.user));
        if let Some(kept) = self.fresh(&path) {
            return answer(kept, "ask squeue");
        }
        let said = self.call(
            "squeue",
            &["-h", "-t", "all", "-u", &self.user, "-o", QUEUE_FORMAT],
        );
        let kept = self.keep(&path, said, queue, Vec::new());
        answer(kept, "ask squeue")
    }

    /// What accounting knows of `jobs`, the newest row of each.
    pub fn past(&self, jobs: &[String]) -> Result<BTreeMap<String, Row>, SchedulerError> {
        let path = self.directory.join(format!("past-{}.json", self.user));
        let kept = match self.fresh(&path) {
            Some(kept) if jobs.iter().all(|job| kept.jobs.contains(job)) => kept,
            _ => {
                let said = self.call(
                    "sacct",
                    &[
                        "-P",
                        "-n",
                        "-X",
                        "-D",
                        "-j",
                        &jobs.join(","),
                        "-o",
                        PAST_FORMAT,
                    ],
                );
                self.keep(&path, said, past, jobs.to_vec())
            }
        };
        let rows = answer(kept, "ask sacct")?;
        Ok(rows.into_iter().map(|row| (row.job.clone(), row)).collect())
    }

    /// Jobs of this name that accounting knows, oldest first.
    pub fn named(&self, name: &str) -> Result<Vec<Row>, SchedulerError> {
        let said = self.call(
            "sacct",
            &[
                "-P",
                "-n",
                "-X",
                "-D",
                "-u",
                &self.user,
                "--name",
                name,
                "-S",
                "now-90days",
                "-o",
                PAST_FORMAT,
            ],
        );
        let said = said.map_err(|reason| SchedulerError {
            what: format!("look up job {name} with sacct"),
            reason,
        })?;
        Ok(past(&said))
    }

    /// The next question is asked, not answered from what is kept.
    pub fn forget(&self) {
        for what in ["queue", "past"] {
            let _ = std::fs::remove_file(self.directory.join(format!("{what}-{}.json", self.user)));
        }
    }

    /// Calls of the last hour, by anybody in this root.
    pub fn calls(&self) -> usize {
        let text = std::fs::read_to_string(self.directory.join("calls")).unwrap_or_default();
        let since = now().saturating_sub(3_600_000);
        let times = text.lines().filter_map(|line| line.parse::<u64>().ok());
        times.filter(|time| *time >= since).count()
    }

    /// Counts, then runs; an error in words where it failed.
    pub fn call(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let said = self.said(program, arguments)?;
        match said.succeeded() {
            true => Ok(said.out),
            false if said.status.is_none() => {
                Err(format!("{program} gave no answer in {} s", LIMIT.as_secs()))
            }
            false => Err(match one_line(&said.err) {
                words if words.is_empty() => format!("{program} failed and said nothing"),
                words => words,
            }),
        }
    }

    /// As [`Queries::call`], whatever came of it.
    pub fn said(&self, program: &str, arguments: &[&str]) -> Result<Said, String> {
        self.count();
        run(program, arguments, LIMIT).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("there is no `{program}` here: is this a login node of a Slurm cluster?")
            }
            _ => format!("cannot run {program}: {error}"),
        })
    }

    fn count(&self) {
        let path = self.directory.join("calls");
        let _ = std::fs::create_dir_all(&self.directory);
        // Old ones are dropped now and then; two that do so at once lose a few counts.
        if std::fs::metadata(&path).is_ok_and(|meta| meta.len() > 256 * 1024) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let half = text.len() / 2;
            let rest = text.get(half..).and_then(|rest| rest.split_once('\n'));
            let _ = cache(&path, rest.map_or("", |(_, rest)| rest).as_bytes());
        }
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path);
        let _ = file.and_then(|mut file| file.write_all(format!("{}\n", now()).as_bytes()));
    }

    fn fresh(&self, path: &Path) -> Option<Kept> {
        let kept: Kept = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        let age = Duration::from_millis(now().checked_sub(kept.asked)?);
        let jitter = f64::from(std::process::id() % 64) / 64.0 * JITTER;
        (age < self.floor.mul_f64(1.0 + jitter)).then_some(kept)
    }

    fn keep(
        &self,
        path: &Path,
        said: Result<String, String>,
        read: fn(&str) -> Vec<Row>,
        jobs: Vec<String>,
    ) -> Kept {
        let mut kept = Kept {
            asked: now(),
            jobs,
            ..Kept::default()
        };
        match said {
            Ok(text) => kept.rows = read(&text),
            Err(error) => kept.error = Some(error),
        }
        if let Ok(text) = serde_json::to_vec(&kept) {
            let _ = cache(path, &text);
        }
        kept
    }
}

fn answer(kept: Kept, what: &str) -> Result<Vec<Row>, SchedulerError> {
    match kept.error {
        None => Ok(kept.rows),
        Some(reason) => Err(SchedulerError {
            what: what.into(),
            reason,
        }),
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_answer_serves_all_within_the_floor() {
        let dir = tempfile::tempdir().unwrap();
        let queries = Queries::new(dir.path(), "me".into(), Duration::from_secs(3600));
        let path = dir.path().join(".slurm/queue-me.json");
        std::fs::create_dir_all(dir.path().join(".slurm")).unwrap();
        let kept = queries.keep(
            &path,
            Ok("7|RUNNING|1|None|haul-a-1\n".into()),
            queue,
            Vec::new(),
        );
        assert_eq!(kept.rows.len(), 1);
        assert_eq!(queries.queue().unwrap(), kept.rows);
        assert_eq!(queries.calls(), 0);
        let none = Queries::new(dir.path(), "me".into(), Duration::ZERO);
        assert!(none.fresh(&path).is_none());
        queries.forget();
        assert!(queries.fresh(&path).is_none());
    }

    #[test]
    fn calls_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let queries = Queries::new(dir.path(), "me".into(), Duration::ZERO);
        assert_eq!(queries.call("sh", &["-c", "echo 1"]).as_deref(), Ok("1\n"));
        let error = queries.call("sh", &["-c", "echo 'sbatch: error: no' >&2; exit 1"]);
        assert_eq!(error, Err("no".into()));
        let error = queries.call("no-such-command-of-slurm", &[]).unwrap_err();
        assert!(error.contains("login node"), "{error}");
        assert_eq!(queries.calls(), 3);
    }
}
