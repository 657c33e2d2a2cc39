//! The private directory of a rank on its node: progress file and control files.

use super::RankError;
use crate::control::Secret;
use crate::store::RunDir;
use crate::store::publish::replace;
use crate::store::tail::newest;
use haul_runtime::contract::env;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Bytes of progress lines that are kept when the supervisor may not have heard them.
const LATE: u64 = 4 << 20;

/// Removed when dropped; locked while its shim lives.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Absent where the file system knows no locks.
    _lock: Option<Flock<File>>,
}

/// Where the directory of `rank` lies. Whoever knows the secret can tell, so launcher and supervisor can remove
/// it when the shim was killed.
pub fn path(secret: &Secret, rank: usize) -> PathBuf {
    let name = secret.name(&format!("scratch of rank {rank}"));
    std::env::temp_dir().join(format!("haul-{name}"))
}

/// File of the progress lines of `rank` that the supervisor of `attempt` may not have heard.
pub fn late(run: &RunDir, attempt: u32, rank: usize) -> PathBuf {
    let name = format!("rank-{rank}.jsonl");
    run.attempt(attempt).join("late").join(name)
}

/// Removes what a killed shim has left, after its progress lines are kept in `late`. That of a live one stays.
pub fn rescue(secret: &Secret, rank: usize, late: &Path) -> Result<(), RankError> {
    let path = path(secret, rank);
    // Mostly there is none.
    if !path.exists() {
        return Ok(());
    }
    let lock = match lock(&path) {
        Err(Errno::EWOULDBLOCK) => return Ok(()),
        lock => lock.ok(),
    };
    let scratch = Scratch { path, _lock: lock };
    scratch.leave_progress(late)
}

fn lock(path: &Path) -> Result<Flock<File>, Errno> {
    let directory = File::open(path).map_err(|_| Errno::ENOENT)?;
    Flock::lock(directory, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)
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
        let lock = lock(&path).ok();
        let scratch = Scratch { path, _lock: lock };
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
        self.path.join("progress")
    }

    /// For `HAUL_CONTROL`.
    pub fn control(&self) -> PathBuf {
        self.path.join("control")
    }

    /// Copies the newest progress lines to `late`.
    pub fn leave_progress(&self, late: &Path) -> Result<(), RankError> {
        let progress = self.progress();
        let lines = match newest(&progress, LATE) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            lines => lines.map_err(RankError::io("read", progress))?,
        };
        if lines.is_empty() {
            return Ok(());
        }
        let directory = late.parent().unwrap_or(late);
        std::fs::create_dir_all(directory).map_err(RankError::io("create", directory))?;
        replace(late, &lines).map_err(|error| RankError::Damaged {
            path: late.to_owned(),
            reason: error.to_string(),
        })
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
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn touch(path: &Path) {
    // A full disk is the only likely reason, and the program cannot be asked otherwise.
    let _ = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a shim that has no time to clean up.
    fn kill(mut scratch: Scratch) {
        scratch._lock = None;
        std::mem::forget(scratch);
    }

    #[test]
    fn what_a_killed_shim_leaves_is_kept_up_to_the_last_whole_line_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&dir.path().to_string_lossy().as_bytes()[..8]);
        bytes[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        let secret = Secret::new(bytes);
        let late = late(&RunDir::new(dir.path()), 3, 1);
        rescue(&secret, 1, &late).unwrap();
        kill(Scratch::create(&secret, 1).unwrap());
        rescue(&secret, 1, &late).unwrap();
        assert!(!late.exists() && !path(&secret, 1).exists());
        let scratch = Scratch::create(&secret, 1).unwrap();
        std::fs::write(scratch.progress(), "one\ntwo\ntor").unwrap();
        rescue(&secret, 1, &late).unwrap();
        assert!(scratch.progress().exists(), "that of a live shim");
        kill(scratch);
        rescue(&secret, 1, &late).unwrap();
        assert_eq!(std::fs::read(&late).unwrap(), b"one\ntwo\n");
        assert!(!path(&secret, 1).exists());
    }
}
