//! Processes that lost their parent: a subreaper inherits them, and ends them.

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpgrp};
use std::time::{Duration, Instant};

/// Makes this process inherit the orphans among its descendants.
pub fn inherit() -> Result<(), super::RankError> {
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(super::RankError::system("become the reaper of orphans"))
}

/// Pids and process groups of the direct children, zombies included.
pub fn children() -> Vec<(i32, i32)> {
    let own = std::process::id() as i32;
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name in parentheses may hold anything, so count from the last ')'.
            let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
            let parent: i32 = fields.next()?.parse().ok()?;
            let group: i32 = fields.next()?.parse().ok()?;
            (parent == own).then_some((pid, group))
        })
        .collect()
}

/// KILLs and reaps every child that is not in `keep`, with its group, until there is none: the children of a
/// killed process become ours in turn. False when some are left after two seconds.
pub fn sweep(keep: &[i32]) -> bool {
    let until = Instant::now() + Duration::from_secs(2);
    let own = getpgrp().as_raw();
    loop {
        let orphans: Vec<(i32, i32)> = children()
            .into_iter()
            .filter(|(pid, _)| !keep.contains(pid))
            .collect();
        if orphans.is_empty() {
            return true;
        }
        for (pid, group) in orphans {
            // A group led by a process we keep holds no orphans only.
            if group > 1 && group != own && !keep.contains(&group) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
