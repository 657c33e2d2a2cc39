//! The private directory of a rank on its node: progress file and control files.

use super::RankError;
use crate::control::Secret;
use haul_runtime::contract::env;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

/// Where the directory of `rank` lies. Whoever knows the secret can tell, so launcher and supervisor can remove
/// it when the shim was killed.
pub fn path(secret: &Secret, rank: usize) -> PathBuf {
    let name = secret.name(&format!("scratch of rank {rank}"));
    std::env::temp_dir().join(format!("haul-{name}"))
}

/// Removes what a killed shim has left.
pub fn remove(secret: &Secret, rank: usize) {
    // Mostly there is none.
    let _ = std::fs::remove_dir_all(path(secret, rank));
}

impl Scratch {
    /// Makes the directory, readable by its owner only.
    pub fn create(secret: &Secret, rank: usize) -> Result<Scratch, RankError> {
        let path = path(secret, rank);
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        builder
            .create(&path)
            .map_err(RankError::io("create", &path))?;
        let scratch = Scratch(path);
        let control = scratch.control();
        builder
            .create(&control)
            .map_err(RankError::io("create", &control))?;
        let progress = scratch.progress();
        std::fs::write(&progress, b"").map_err(RankError::io("create", &progress))?;
        Ok(scratch)
    }

    /// For `HAUL_PROGRESS`.
    pub fn progress(&self) -> PathBuf {
        self.0.join("progress")
    }

    /// For `HAUL_CONTROL`.
    pub fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    /// Asks the program to save and leave.
    pub fn ask_stop(&self) {
        touch(&self.control().join(env::CONTROL_STOP));
    }

    /// Asks the program to save.
    pub fn ask_save(&self) {
        touch(&self.control().join(env::CONTROL_SAVE));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn touch(path: &Path) {
    // A full disk is the only likely reason, and the program cannot be asked otherwise.
    let _ = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
}
