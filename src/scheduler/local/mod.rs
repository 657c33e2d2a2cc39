//! The local scheduler: a keeper process a job, files under `<root>/.local/`, no daemon.
//!
//! `<root>/.local/<job>/` holds `request` (what to run), `job` (the keeper's identity: the job exists), `state` (the identity of the job's
//! own process: it runs), `ending` (how that process ended), `end` (nothing of the job is left) and `alive` (locked while anything of it lives). Each is published once and exclusively, so whoever finds one missing behind a dead
//! process can publish a void in its place, and a late process that finds the void stops: no time-out decides.

mod alive;
mod faults;
mod keeper;
mod processes;

pub use keeper::{become_job, detach, keep};

use super::{Cancel, End, How, JobState, Request, Scheduler, SchedulerError, SubmitError};
use crate::store::identity::{Life, Process};
use crate::store::publish::{Published, is_ours, publish};
use crate::store::{Root, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment of a job: its id.
pub const JOB_ID: &str = "HAUL_JOB_ID";
/// Environment of a job: seconds since the epoch at which it will be ended; absent without a limit.
pub const JOB_END: &str = "HAUL_JOB_END";

/// Who stands behind a published file, or that nobody ever will.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Holder {
    Process {
        process: Process,
        time: String,
    },
    /// Published by a reader that saw the process that should have written it dead.
    Void {
        reason: String,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Asked {
    submitter: Option<Process>,
    request: Request,
}

/// Jobs of one run root, started by `haul` as one keeper each.
#[derive(Debug, Clone)]
pub struct Local {
    root: Root,
    /// The binary whose `keep` command is the keeper.
    haul: PathBuf,
}

impl Local {
    pub fn new(root: Root, haul: PathBuf) -> Local {
        Local { root, haul }
    }

    fn tokens(&self, token: &str) -> PathBuf {
        self.root.path().join(".local").join("tokens").join(token)
    }

    /// Makes the directory of a new job: the lowest free number above all others.
    fn new_job(&self) -> Result<String, StoreError> {
        let directory = self.root.path().join(".local");
        std::fs::create_dir_all(&directory).map_err(StoreError::io("create", &directory))?;
        let listing = std::fs::read_dir(&directory).map_err(StoreError::io("list", &directory))?;
        let mut number = listing
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok())
            .max()
            .unwrap_or(0);
        loop {
            number += 1;
            let path = directory.join(number.to_string());
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(number.to_string()),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(source) => return Err(StoreError::io("create", path)(source)),
            }
        }
    }

    fn prepare(&self, request: &Request) -> Result<String, StoreError> {
        let job = self.new_job()?;
        let directory = self.root.local_job(&job);
        let tokens = self.tokens(&request.token);
        std::fs::create_dir_all(&tokens).map_err(StoreError::io("create", &tokens))?;
        let asked = Asked {
            submitter: Process::own(),
            request: request.clone(),
        };
        publish(
            &directory.join("request"),
            &serde_json::to_vec(&asked).unwrap_or_default(),
        )?;
        // After the request, by which a job that is found is judged; before the keeper starts, so that a look-up never
        // misses a job that exists.
        publish(&tokens.join(&job), b"")?;
        Ok(job)
    }

    fn start_keeper(&self, job: &str) -> Result<(), SubmitError> {
        let directory = self.root.local_job(job);
        let start = || {
            Command::new(&self.haul)
                .args(["keep", "detach"])
                .arg(&directory)
                .current_dir(&directory)
                .stdin(Stdio::null())
                .output()
        };
        let output = start()
            .or_else(|error| match error.kind() {
                // Another thread has just started a process while the binary was being written.
                ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    start()
                }
                _ => Err(error),
            })
            .map_err(|e| {
                SubmitError::Ambiguous(format!("cannot start {}: {e}", self.haul.display()))
            });
        // A keeper that could not start is told from one that did by its file, not by the answer.
        let reason = match output {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!(
                "the keeper's start {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )),
            Err(error) => Some(error.to_string()),
        };
        match reason {
            None => Ok(()),
            Some(reason) => match void(&directory.join("job"), &reason) {
                Ok(Published::Here) => Err(SubmitError::Refused(reason)),
                Ok(Published::Before) => Ok(()),
                Err(error) => Err(SubmitError::Ambiguous(error.to_string())),
            },
        }
    }

    fn state(&self, job: &str) -> JobState {
        state(&self.root.local_job(job))
    }
}

impl Scheduler for Local {
    fn submit(&self, request: &Request) -> Result<String, SubmitError> {
        let job = self
            .prepare(request)
            .map_err(|e| SubmitError::Refused(e.to_string()))?;
        self.start_keeper(&job)?;
        Ok(job)
    }

    fn look_up(&self, token: &str) -> Result<Vec<String>, SchedulerError> {
        let directory = self.tokens(token);
        let listing = match std::fs::read_dir(&directory) {
            Ok(listing) => listing,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(SchedulerError {
                    what: format!("look up job {token} in {}", directory.display()),
                    reason: error.to_string(),
                });
            }
        };
        let mut numbers: Vec<u64> = listing
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let jobs = numbers.into_iter().map(|n| n.to_string());
        // A job that provably never came to be was not accepted.
        Ok(jobs
            .filter(|job| {
                !matches!(
                    self.state(job),
                    JobState::Ended(End {
                        how: How::NotStarted(_),
                        ..
                    })
                )
            })
            .collect())
    }

    fn states(&self, _: &str, jobs: &[String]) -> BTreeMap<String, JobState> {
        jobs.iter()
            .map(|job| (job.clone(), self.state(job)))
            .collect()
    }

    fn cancel(&self, job: &str, how: Cancel) -> Result<(), SchedulerError> {
        let directory = self.root.local_job(job);
        let word = match how {
            Cancel::Term => "term",
            Cancel::Kill => "kill",
        };
        let failed = |reason: String| SchedulerError {
            what: format!("cancel job {job}"),
            reason,
        };
        match self.state(job) {
            JobState::Ended(_) => Ok(()),
            _ if read(&directory.join("job")).is_some_and(|h| h.life() == Life::Dead) => {
                // Nobody is left to carry a request out.
                keeper::end_without_keeper(&directory, how);
                Ok(())
            }
            _ => publish(&directory.join(format!("cancel-{word}")), b"")
                .map(|_| ())
                .map_err(|e| failed(e.to_string())),
        }
    }
}

impl Holder {
    fn own() -> Option<Holder> {
        Some(Holder::Process {
            process: Process::own()?,
            time: now(),
        })
    }

    /// A void counts as dead.
    fn life(&self) -> Life {
        match self {
            Holder::Process { process, .. } => process.life(),
            Holder::Void { .. } => Life::Dead,
        }
    }
}

/// The state of the job in `directory`, from its files and the life of the processes they name.
fn state(directory: &Path) -> JobState {
    if let Some(end) = read_end(directory, "end") {
        return JobState::Ended(end);
    }
    let keeper = match read(&directory.join("job")) {
        Some(holder) => holder,
        None => return unaccepted(directory),
    };
    let reason = match &keeper {
        Holder::Void { reason } => {
            return JobState::Ended(End::untimed(How::NotStarted(reason.clone())));
        }
        Holder::Process { process, .. } => match process.life() {
            Life::Alive => {
                return match read_end(directory, "ending") {
                    Some(end) => JobState::Ending(end),
                    None if directory.join("state").exists() => JobState::Running,
                    None => JobState::Queued,
                };
            }
            Life::Unknown => {
                return JobState::Unknown(format!(
                    "its keeper runs on {}, which cannot be seen from here",
                    process.host
                ));
            }
            Life::Dead => format!("its keeper (process {}) was killed", process.pid),
        },
    };
    // The keeper may have written the end just before it was gone.
    if let Some(end) = read_end(directory, "end") {
        return JobState::Ended(end);
    }
    if let Some(end) = read_end(directory, "ending") {
        return match alive::is_held(directory) {
            true => JobState::Ending(end),
            false => JobState::Ended(end),
        };
    }
    if read(&directory.join("state")).is_none()
        && let Err(error) = void(&directory.join("state"), &reason)
    {
        return JobState::Unknown(error.to_string());
    }
    match read(&directory.join("state")) {
        Some(Holder::Void { .. }) => JobState::Ended(End::untimed(How::NotStarted(reason))),
        Some(lead) => match lead.life() {
            Life::Alive => JobState::Unwatched(reason),
            // Its ranks end by themselves, within the grace of those that lost their supervisor.
            Life::Dead if alive::is_held(directory) => {
                JobState::Ending(End::untimed(How::Lost(reason)))
            }
            Life::Dead => JobState::Ended(End::untimed(How::Lost(reason))),
            Life::Unknown => JobState::Unknown(reason),
        },
        None => JobState::Unknown(format!("{} is unreadable", directory.display())),
    }
}

/// A job whose keeper has not appeared: still being submitted, or never to be.
fn unaccepted(directory: &Path) -> JobState {
    let path = directory.join("request");
    let asked: Asked = match std::fs::read(&path) {
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(asked) => asked,
            Err(error) => {
                return JobState::Unknown(format!("{} is damaged: {error}", path.display()));
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return JobState::Unknown(format!("there is no {}", path.display()));
        }
        Err(error) => {
            return JobState::Unknown(format!("cannot read {}: {error}", path.display()));
        }
    };
    match asked
        .submitter
        .as_ref()
        .map_or(Life::Unknown, Process::life)
    {
        Life::Alive => return JobState::Queued,
        Life::Unknown => {
            return JobState::Unknown("its submitter cannot be seen from here".into());
        }
        Life::Dead => {}
    }
    let reason = "its submitter was killed before a keeper was started";
    match void(&directory.join("job"), reason) {
        Ok(Published::Here) => JobState::Ended(End::untimed(How::NotStarted(reason.into()))),
        // The keeper came after all.
        Ok(Published::Before) => JobState::Queued,
        Err(error) => JobState::Unknown(error.to_string()),
    }
}

/// Only in jobs of this user: somebody who looks at a colleague's changes nothing.
fn void(path: &Path, reason: &str) -> Result<Published, StoreError> {
    if path.parent().is_none_or(|parent| !is_ours(parent)) {
        return Err(StoreError::io("settle", path)(
            ErrorKind::PermissionDenied.into(),
        ));
    }
    let void = Holder::Void {
        reason: reason.to_owned(),
    };
    publish(path, &serde_json::to_vec(&void).unwrap_or_default())
}

fn read(path: &Path) -> Option<Holder> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn read_end(directory: &Path, name: &str) -> Option<End> {
    serde_json::from_slice(&std::fs::read(directory.join(name)).ok()?).ok()
}

fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
