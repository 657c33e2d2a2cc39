//! Where everything of a run root and of a run stands.

use std::path::{Path, PathBuf};

/// The run root: runs, the binaries their jobs execute, the local scheduler's jobs.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// `path` should be absolute, since jobs run elsewhere.
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Copies of the binary, named by hash, shared by the runs of the root.
    pub fn bins(&self) -> PathBuf {
        self.0.join("bin")
    }

    pub fn bin(&self, hash: &str) -> PathBuf {
        self.bins().join(hash)
    }

    /// Directory of a job of the local scheduler: `job`, `state`, `end`.
    pub fn local_job(&self, job: &str) -> PathBuf {
        self.0.join(".local").join(job)
    }

    pub fn run(&self, id: &str) -> RunDir {
        RunDir(self.0.join(id))
    }
}

/// The directory of one run.
#[derive(Debug, Clone)]
pub struct RunDir(PathBuf);

impl RunDir {
    pub fn new(path: impl Into<PathBuf>) -> RunDir {
        RunDir(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The run id: the directory's name.
    pub fn id(&self) -> String {
        self.0
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The root it lies in.
    pub fn root(&self) -> Root {
        Root(self.0.parent().map(Path::to_path_buf).unwrap_or_default())
    }

    /// The recipe as written.
    pub fn recipe(&self) -> PathBuf {
        self.0.join("recipe.yaml")
    }

    /// The recipe after `extends`, user config and `--set`.
    pub fn resolved(&self) -> PathBuf {
        self.0.join("resolved.yaml")
    }

    pub fn provenance(&self) -> PathBuf {
        self.0.join("provenance.json")
    }

    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// job.sh, plan.json, submitted.json, claim-<n>.
    pub fn job(&self, slot: u32) -> PathBuf {
        self.0.join("jobs").join(slot.to_string())
    }

    pub fn plan(&self, slot: u32) -> PathBuf {
        self.job(slot).join("plan.json")
    }

    /// placement.json, launch.sh, secret, metrics.jsonl, ranks.jsonl, binding.jsonl, verdict.json, logs/.
    pub fn attempt(&self, attempt: u32) -> PathBuf {
        self.0.join("attempts").join(attempt.to_string())
    }

    pub fn metrics(&self, attempt: u32) -> PathBuf {
        self.attempt(attempt).join("metrics.jsonl")
    }

    /// One log a node.
    pub fn log(&self, attempt: u32, node: &str) -> PathBuf {
        self.attempt(attempt)
            .join("logs")
            .join(format!("{node}.log"))
    }

    /// What an attempt saves: step-<s>/ directories, or a foreign program's own files.
    pub fn checkpoints(&self, attempt: u32) -> PathBuf {
        self.0.join("checkpoints").join(attempt.to_string())
    }

    /// Requests: <unique>-stop, <unique>-save, <unique>-cancel.
    pub fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    pub fn report(&self) -> PathBuf {
        self.0.join("report")
    }

    /// What the trained model writes, for the report.
    pub fn sample(&self) -> PathBuf {
        self.report().join("sample.json")
    }

    /// Numbers of the sub-directories of `name` ("jobs", "attempts", "checkpoints"), ascending.
    pub fn numbers(&self, name: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> = std::fs::read_dir(self.0.join(name))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }
}
