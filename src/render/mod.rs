//! Plan → job.sh and launch.sh, through templates; [`quote`] is the only quoting.

pub mod quote;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What job.sh needs besides the plan: paths only.
#[derive(Debug, Clone)]
pub struct JobContext {
    /// The binary in the run root that every job of the run executes.
    pub haul: PathBuf,
    pub run_dir: PathBuf,
    pub slot: u32,
    /// The job's name, by which an ambiguous submission is looked up.
    pub token: String,
}

/// What launch.sh of one attempt needs besides the plan.
#[derive(Debug, Clone)]
pub struct LaunchContext {
    pub haul: PathBuf,
    pub root: PathBuf,
    pub run_dir: PathBuf,
    pub slot: u32,
    pub attempt: u32,
    /// Where the supervisor listens.
    pub supervisor: SocketAddr,
    /// Until the walltime limit; absent where there is none.
    pub minutes_left: Option<u64>,
    pub save_dir: PathBuf,
    /// Checkpoint to start from; empty in the environment at a first start.
    pub load_from: Option<PathBuf>,
    /// jobs/<slot>/plan.json.
    pub plan_file: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("cannot render {template}: {source}")]
    Template {
        template: &'static str,
        #[source]
        source: Box<tera::Error>,
    },
    #[error("{what} has a control character at byte {at}, which cannot stand in {place}")]
    Control {
        what: String,
        at: usize,
        place: &'static str,
    },
    #[error("unknown placeholder {{{key}}} in {what}{}", .suggestion.as_ref().map(|s| format!("; did you mean {{{s}}}?")).unwrap_or_default())]
    Placeholder {
        key: String,
        what: String,
        suggestion: Option<String>,
    },
    #[error("{} is not UTF-8, which job scripts need", .0.display())]
    NotUtf8(PathBuf),
}

/// The path as text, or the error that says it cannot stand in a script.
pub fn text(path: &Path) -> Result<&str, RenderError> {
    path.to_str()
        .ok_or_else(|| RenderError::NotUtf8(path.to_path_buf()))
}
