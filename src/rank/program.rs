//! The rank's program: spawn it in a group of its own, capture its output, wait for it.

use super::RankError;
use super::log::Log;
use haul_runtime::sys::spawn::{Group, die_with_parent};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running program.
#[derive(Debug)]
pub struct Program {
    pub pid: i32,
    readers: Vec<JoinHandle<()>>,
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Start {
    pub command: Vec<String>,
    pub variables: Vec<(&'static str, String)>,
}

impl Program {
    /// Spawns the program. It gets KILL when the calling thread ends, so call this from the main thread.
    /// `ended` is called from another thread with its exit status.
    pub fn spawn(
        start: &Start,
        log: &Log,
        ended: impl FnOnce(std::io::Result<ExitStatus>) + Send + 'static,
    ) -> Result<Program, RankError> {
        let name = start.command.first().cloned().unwrap_or_default();
        let fault = |what| {
            let path = PathBuf::from(&name);
            move |source| RankError::Io { what, path, source }
        };
        let mut command = Command::new(&name);
        command
            .args(&start.command[1.min(start.command.len())..])
            .envs(start.variables.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        die_with_parent(&mut command, Signal::SIGKILL as i32, Group::Own);
        let mut child = command.spawn().map_err(fault("start"))?;
        let mut readers = Vec::new();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let mut reader = |source: Option<Box<dyn std::io::Read + Send>>| {
            let Some(source) = source else { return Ok(()) };
            let mut log = log.try_clone()?;
            let thread = std::thread::Builder::new().spawn(move || log.copy(source))?;
            readers.push(thread);
            Ok(())
        };
        let pid = child.id() as i32;
        let captured = reader(out.map(|o| Box::new(o) as _))
            .and_then(|()| reader(err.map(|e| Box::new(e) as _)));
        let waited = std::thread::Builder::new().spawn(move || ended(child.wait()));
        if let Err(source) = captured.and(waited.map(|_| ())) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            return Err(fault("watch")(source));
        }
        Ok(Program { pid, readers })
    }

    /// Sends a signal to the whole group.
    pub fn signal(&self, signal: Signal) {
        // No such group: all have ended.
        let _ = killpg(Pid::from_raw(self.pid), signal);
    }

    /// After the program's end: ends what it has left behind and waits for the rest of its output.
    pub fn clear(self) {
        self.signal(Signal::SIGKILL);
        super::orphans::sweep(&[]);
        // A process out of reach may hold the pipe, so the wait has an end.
        let until = Instant::now() + Duration::from_secs(1);
        let (done, drained) = mpsc::channel();
        let readers = self.readers;
        let joiner = std::thread::Builder::new().spawn(move || {
            for reader in readers {
                // A reader that panicked has nothing more to say.
                let _ = reader.join();
            }
            let _ = done.send(());
        });
        if joiner.is_ok() {
            let _ = drained.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}
