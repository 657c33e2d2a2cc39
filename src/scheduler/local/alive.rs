//! Whether anything of a job is alive although its keeper is not: each of its processes inherits one locked file.

use crate::store::StoreError;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

fn file(directory: &Path) -> PathBuf {
    directory.join("alive")
}

/// Locks the file of the job in `directory`, for this process and all that it starts. The kernel lets go of it when
/// the last of them has ended.
pub(super) fn hold(directory: &Path) -> Result<Flock<File>, StoreError> {
    let path = file(directory);
    let failed = |error: Errno| StoreError::io("lock", &path)(error.into());
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).open(&path);
    let file = file.map_err(StoreError::io("open", &path))?;
    fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty())).map_err(failed)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| failed(error))
}

/// Closes what this process inherited from a job that submits another one: it is not of that job.
pub(super) fn let_go() {
    let listing = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    for entry in listing.flatten() {
        let held = std::fs::read_link(entry.path()).is_ok_and(|to| to.ends_with("alive"));
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok());
        if let (true, Some(number)) = (held, number) {
            let _ = nix::unistd::close(number);
        }
    }
}

/// Whether a process of the job is alive. Where locks are not known it counts as gone.
pub(super) fn is_held(directory: &Path) -> bool {
    let Ok(file) = File::open(file(directory)) else {
        return false;
    };
    matches!(
        Flock::lock(file, FlockArg::LockSharedNonblock),
        Err((_, Errno::EWOULDBLOCK))
    )
}

/// Processes of this user that hold the file.
pub(super) fn holders(directory: &Path) -> Vec<i32> {
    let path = file(directory);
    let holds = |pid: &i32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let mut descriptors = descriptors.into_iter().flatten().flatten();
        descriptors.any(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path))
    };
    let listing = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    listing
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(holds)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_grandchild_holds_it_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let directory = std::fs::canonicalize(dir.path()).unwrap();
        assert!(!is_held(&directory));
        let held = hold(&directory).unwrap();
        let mut child = Command::new("bash")
            .args(["-c", "sleep 60 & wait"])
            .process_group(0)
            .spawn()
            .unwrap();
        // As in a keeper that is killed: it closes the file and does not unlock it.
        let copy = held.try_clone().unwrap();
        std::mem::forget(held);
        drop(copy);
        // What other tests start meanwhile holds it too.
        let group = nix::unistd::Pid::from_raw(child.id() as i32);
        let others = || -> Vec<i32> {
            let mut all = holders(&directory);
            let of = |pid: i32| nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid)));
            all.retain(|pid| of(*pid) == Ok(group));
            all
        };
        let begin = std::time::Instant::now();
        while others().len() < 2 && begin.elapsed().as_secs() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(others().len(), 2);
        assert!(is_held(&directory));
        for pid in others() {
            super::super::processes::send(pid, nix::sys::signal::Signal::SIGKILL);
        }
        child.wait().unwrap();
    }
}
