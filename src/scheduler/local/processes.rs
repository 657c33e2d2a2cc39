//! Trees of processes, read from /proc.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;

/// Sends `signal` to `pid`; a process that is gone is no error.
pub(super) fn send(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// All descendants of `of` that are alive, parents before children; without the keepers of jobs that this job submitted,
/// and what is below them.
pub(super) fn descendants(of: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![of];
    while let Some(pid) = next.pop() {
        let mut below = children.remove(&pid).unwrap_or_default();
        below.retain(|pid| !is_keeper(*pid));
        found.extend(&below);
        next.extend(below);
    }
    found
}

/// The parent of a process that is alive and no zombie.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so count from the last ')'.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.next()?.parse().ok()
}

/// Whether a process keeps a job, or is about to.
fn is_keeper(pid: i32) -> bool {
    let arguments = arguments(pid);
    let word = |at: usize| arguments.get(at).map(String::as_str);
    word(1) == Some("keep") && matches!(word(2), Some("detach" | "run"))
}

/// Arguments of a process.
pub(super) fn arguments(pid: i32) -> Vec<String> {
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .unwrap_or_default()
        .split(|b| *b == 0)
        .map(|a| String::from_utf8_lossy(a).into_owned())
        .collect()
}
