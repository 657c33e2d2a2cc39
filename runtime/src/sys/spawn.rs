//! Children that die with their parent and start with a clean signal mask.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Arranges that the kernel sends `signal` to the child when the calling thread ends, so call it and spawn from a
/// thread that lives as long as the process. The child starts with no signal blocked, in the process group `group`.
pub fn die_with_parent(command: &mut Command, signal: i32, group: Group) {
    let parent = std::process::id();
    if group == Group::Own {
        command.process_group(0);
    }
    let prepare = move || {
        // SAFETY: prctl, sigemptyset, sigprocmask, getppid and _exit are async-signal-safe and touch this process only.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) != 0 {
                return Err(io::Error::last_os_error());
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            if libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before the request stood; then there is nobody to tell an error.
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and calls async-signal-safe functions only.
    unsafe { command.pre_exec(prepare) };
}

/// Process group of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// That of the parent.
    Shared,
    /// A new one, led by the child.
    Own,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_leads_its_group_with_no_signal_blocked() {
        let mut set = nix::sys::signal::SigSet::empty();
        set.add(nix::sys::signal::Signal::SIGTERM);
        set.thread_block().unwrap();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "cut -d' ' -f1,5 /proc/$$/stat; grep SigBlk /proc/$$/status",
        ]);
        die_with_parent(&mut command, libc::SIGKILL, Group::Own);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        set.thread_unblock().unwrap();
        let mut lines = output.lines();
        let (pid, group) = lines.next().unwrap().split_once(' ').unwrap();
        assert_eq!(pid, group);
        assert!(
            lines.next().unwrap().ends_with("\t0000000000000000"),
            "{output}"
        );
    }
}
