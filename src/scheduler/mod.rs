//! Schedulers: submit, look up, tell states, cancel. One trait; [`local`] carries it out on this machine.

pub mod local;
pub mod slurm;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A job to be submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The job's name, by which an ambiguous submission is looked up.
    pub token: String,
    /// job.sh.
    pub script: PathBuf,
    /// Where the job starts, and `job.out` of the script is written: the slot's directory.
    pub directory: PathBuf,
    /// The job is ended after so many seconds.
    pub walltime_seconds: Option<f64>,
    /// USR1 is sent to the job's process so many seconds before the limit.
    pub warn_seconds: f64,
    /// Between TERM and KILL, and for the remaining processes once the job's own has ended.
    pub grace_seconds: f64,
}

impl Request {
    /// A request with the usual times: USR1 a quarter of the walltime before the limit but at most 300 s, 10 s from TERM to KILL.
    pub fn new(
        token: String,
        script: PathBuf,
        directory: PathBuf,
        walltime_seconds: Option<f64>,
    ) -> Request {
        Request {
            token,
            script,
            directory,
            walltime_seconds,
            warn_seconds: walltime_seconds.map_or(0.0, |limit| (limit / 4.0).min(300.0)),
            grace_seconds: 10.0,
        }
    }
}

/// What a scheduler says of a job. Unknown is not failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Accepted, not started.
    Queued,
    /// Accepted, not started, for the reason in words.
    Waiting(String),
    Running,
    /// The job's process runs, but whoever should end it at its limit and see its end is gone; the reason in words.
    Unwatched(String),
    /// The job's process has ended thus; what it left running is being ended.
    Ending(End),
    Ended(End),
    /// The scheduler does not know, or could not be asked; the reason in words.
    Unknown(String),
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub how: How,
    /// Why the scheduler ended it, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Because>,
    /// RFC 3339 UTC; absent where nobody saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The job's process exited with this code.
    Exited(i32),
    /// The job's process was ended by this signal.
    Signalled(i32),
    /// It never started.
    NotStarted(String),
    /// Nobody saw the end, but it is over; the reason in words.
    Lost(String),
    /// The scheduler tells it in words such as "ran out of memory".
    Told(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    Walltime,
    Cancelled,
    /// Of the nodes.
    Nodes,
    Memory,
    Preempted,
    #[serde(other)]
    Unknown,
}

impl End {
    /// An end nobody timed.
    pub fn untimed(how: How) -> End {
        End {
            how,
            because: None,
            started: None,
            ended: None,
        }
    }

    /// Such as "was ended by SIGKILL at the walltime limit".
    pub fn words(&self) -> String {
        let how = match &self.how {
            How::Exited(code) => format!("exited with code {code}"),
            How::Signalled(number) => format!("was ended by {}", signal_name(*number)),
            How::NotStarted(reason) => format!("never started: {reason}"),
            How::Lost(reason) => return format!("ended unseen: {reason}"),
            How::Told(words) => return words.clone(),
        };
        match self.because {
            Some(Because::Walltime) => format!("{how} at the walltime limit"),
            Some(Because::Cancelled) => format!("{how} after it was cancelled"),
            _ => how,
        }
    }
}

/// `SIGKILL` for 9.
pub fn signal_name(number: i32) -> String {
    nix::sys::signal::Signal::try_from(number)
        .map_or_else(|_| format!("signal {number}"), |s| s.as_str().to_owned())
}

/// How to end a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// TERM, KILL after the grace.
    Term,
    /// KILL at once.
    Kill,
}

/// Why a job was not submitted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The scheduler said no: there is no job.
    #[error("the scheduler refused the job: {0}")]
    Refused(String),
    /// It may have been accepted: look it up.
    #[error("the scheduler's answer is not clear: {0}")]
    Ambiguous(String),
}

/// The scheduler could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {reason}")]
pub struct SchedulerError {
    pub what: String,
    pub reason: String,
}

/// The door to a scheduler.
pub trait Scheduler {
    /// Submits a job and returns its id.
    fn submit(&self, request: &Request) -> Result<String, SubmitError>;

    /// Ids of all jobs ever submitted under the name `token`, oldest first.
    fn look_up(&self, token: &str) -> Result<Vec<String>, SchedulerError>;

    /// The state of each of `jobs` of the name `token`: total, a job that cannot be told is [`JobState::Unknown`].
    fn states(&self, token: &str, jobs: &[String]) -> BTreeMap<String, JobState>;

    /// Ends a job; a job that has ended already is no error.
    fn cancel(&self, job: &str, how: Cancel) -> Result<(), SchedulerError>;
}
