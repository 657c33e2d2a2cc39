//! Which process: (boot id, pid-namespace inode, pid, start time), and whether it still lives.

use serde::{Deserialize, Serialize};

/// A process, unmistakably.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub host: String,
    pub boot: String,
    pub pid_namespace: u64,
    pub pid: i32,
    /// In clock ticks since boot, from /proc/<pid>/stat.
    pub start: u64,
}

/// What can be said about a process from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Alive,
    Dead,
    /// Another host or namespace: only a scheduler may say.
    Unknown,
}

impl Process {
    /// The process `pid` of this host; absent when there is none.
    pub fn of(pid: i32) -> Option<Process> {
        Some(Process {
            host: nix::unistd::gethostname()
                .ok()?
                .to_string_lossy()
                .into_owned(),
            boot: boot_id(),
            pid_namespace: pid_namespace(),
            pid,
            start: start_time(pid)?,
        })
    }

    /// This process.
    pub fn own() -> Option<Process> {
        Self::of(std::process::id() as i32)
    }

    /// A zombie counts as dead: it runs nothing.
    pub fn life(&self) -> Life {
        if self.boot != boot_id() {
            let here = nix::unistd::gethostname()
                .ok()
                .map(|h| h.to_string_lossy().into_owned());
            // The same host with another boot id has been restarted since.
            return if here.as_deref() == Some(&self.host) {
                Life::Dead
            } else {
                Life::Unknown
            };
        }
        if self.pid_namespace != pid_namespace() {
            return Life::Unknown;
        }
        match start_time(self.pid) {
            Some(start) if start == self.start => Life::Alive,
            _ => Life::Dead,
        }
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|s| s.trim().to_owned())
        .unwrap_or_default()
}

fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

/// Field 22 of /proc/<pid>/stat; absent for no process and for a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so count from the last ')'.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_ends_and_a_recycled_pid_is_another() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = Process::of(child.id() as i32).unwrap();
        assert_eq!(process.life(), Life::Alive);
        assert_eq!(
            Process {
                start: process.start + 1,
                ..process.clone()
            }
            .life(),
            Life::Dead
        );
        assert_eq!(
            Process {
                pid_namespace: 1,
                ..process.clone()
            }
            .life(),
            Life::Unknown
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process.life(), Life::Dead);
    }
}
