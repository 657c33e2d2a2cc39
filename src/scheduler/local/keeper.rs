//! The keeper of one local job: starts it, warns and ends it at its limit, reaps all below it, writes how it ended.
//!
//! Three short steps lead to it, none a child of the submitter for longer than the start: [`detach`] (a session of its own, then a
//! second process that nobody waits for), [`keep`] (the keeper), [`become_job`] (a session for the job, then `bash job.sh`).

use super::alive;
use super::faults::Faults;
use super::processes::{descendants, send};
use super::{Asked, Holder, JOB_END, JOB_ID, now, read};
use crate::scheduler::{Because, Cancel, End, How, Request};
use crate::store::StoreError;
use crate::store::identity::Life;
use crate::store::publish::{Published, publish};
use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often requests to cancel are looked for.
const POLL: Duration = Duration::from_millis(100);
/// How often faults are looked for, when they are asked for at all.
const POLL_FAULTS: Duration = Duration::from_millis(25);
/// How long a keeper may take to appear before its start counts as unclear.
const APPEARS: Duration = Duration::from_secs(10);

/// Starts the keeper of the job in `directory` in a session of its own and returns once it has taken the job.
pub fn detach(directory: &Path) -> anyhow::Result<()> {
    nix::unistd::setsid().context("cannot start a session for the keeper")?;
    alive::let_go();
    let haul = std::env::current_exe().context("cannot find the running binary")?;
    let log = directory.join("keeper.log");
    let out = append(&log)?;
    let err = out.try_clone().map_err(StoreError::io("open", &log))?;
    let mut keeper = Command::new(haul)
        .args(["keep", "run"])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .context("cannot start the keeper")?;
    let start = Instant::now();
    while !directory.join("job").exists() {
        if let Some(status) = keeper.try_wait().context("cannot wait for the keeper")? {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            bail!("the keeper {status}: {}", said.trim());
        }
        if start.elapsed() > APPEARS {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The keeper: lives as long as the job in `directory`.
pub fn keep(directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("request");
    let text = std::fs::read(&path).map_err(StoreError::io("read", &path))?;
    let asked: Asked =
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?;
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
    let wakes = wakes()?;
    let own = Holder::own().context("cannot read /proc/self/stat")?;
    match publish(&directory.join("job"), &serde_json::to_vec(&own)?)? {
        Published::Here => {}
        // Whoever saw the submitter die has given the job up.
        Published::Before => return Ok(()),
    }
    let _alive = alive::hold(directory)?;
    let end = match start(directory, &asked.request) {
        Ok(lead) => Keeper::new(directory, asked.request, lead).run(&wakes),
        Err(error) => End::untimed(How::NotStarted(format!("{error:#}"))),
    };
    publish(&directory.join("end"), &serde_json::to_vec(&end)?)?;
    Ok(())
}

/// Becomes the job's own process, in a session of its own, unless the job has been given up.
pub fn become_job(directory: &Path, script: &Path) -> anyhow::Result<()> {
    nix::unistd::setsid().context("cannot start a session for the job")?;
    // The keeper reads its signals from a descriptor and so has them blocked.
    SigSet::all()
        .thread_unblock()
        .context("cannot unblock signals")?;
    let own = Holder::own().context("cannot read /proc/self/stat")?;
    match publish(&directory.join("state"), &serde_json::to_vec(&own)?)? {
        Published::Here => {}
        Published::Before => bail!("the job was given up before it started"),
    }
    let error = Command::new("bash").arg(script).exec();
    Err(error).with_context(|| format!("cannot run bash {}", script.display()))
}

/// Ends what a dead keeper has left running.
pub(super) fn end_without_keeper(directory: &Path, how: Cancel) {
    let lead = match read(&directory.join("state")) {
        Some(Holder::Process { process, .. }) if process.life() == Life::Alive => Some(process.pid),
        _ => None,
    };
    match (lead, how) {
        (Some(pid), Cancel::Term) => send(pid, Signal::SIGTERM),
        (Some(pid), Cancel::Kill) => {
            let below = descendants(pid);
            send(pid, Signal::SIGKILL);
            below.into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
        }
        (None, _) => {
            let signal = match how {
                Cancel::Term => Signal::SIGTERM,
                Cancel::Kill => Signal::SIGKILL,
            };
            for pid in alive::holders(directory) {
                send(pid, signal);
            }
        }
    }
}

/// A descriptor that becomes readable when a child ends or the keeper is told to end.
fn wakes() -> anyhow::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
    ] {
        set.add(signal);
    }
    set.thread_block().context("cannot block signals")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("cannot open a signal descriptor")
}

/// Starts the job's process and returns its id.
fn start(directory: &Path, request: &Request) -> anyhow::Result<i32> {
    let haul = std::env::current_exe().context("cannot find the running binary")?;
    let log = request.directory.join("job.out");
    let out = append(&log)?;
    let err = out.try_clone().map_err(StoreError::io("open", &log))?;
    let mut command = Command::new(haul);
    command
        .args(["keep", "job"])
        .arg(directory)
        .arg(&request.script)
        .current_dir(&request.directory)
        .env(JOB_ID, directory.file_name().unwrap_or_default())
        .env_remove(JOB_END)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err);
    if let Some(limit) = request.walltime_seconds {
        let end = SystemTime::now() + Duration::from_secs_f64(limit.max(0.0));
        let seconds = end.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        command.env(JOB_END, seconds.to_string());
    }
    let child = command
        .spawn()
        .with_context(|| format!("cannot start the job in {}", request.directory.display()))?;
    Ok(child.id() as i32)
}

struct Keeper<'a> {
    directory: &'a Path,
    request: Request,
    /// The job's own process, and how it ended.
    lead: i32,
    status: Option<How>,
    started: String,
    begin: Instant,
    warned: bool,
    because: Option<Because>,
    /// When everything is killed; absent while nothing is to end.
    kill_at: Option<Instant>,
    faults: Option<Faults>,
}

impl<'a> Keeper<'a> {
    fn new(directory: &'a Path, request: Request, lead: i32) -> Keeper<'a> {
        Keeper {
            directory,
            request,
            lead,
            status: None,
            started: now(),
            begin: Instant::now(),
            warned: false,
            because: None,
            kill_at: None,
            faults: Faults::from_environment(),
        }
    }

    fn run(mut self, wakes: &SignalFd) -> End {
        while self.reap() {
            while let Ok(Some(signal)) = wakes.read_signal() {
                if signal.ssi_signo != Signal::SIGCHLD as u32 {
                    self.terminate(Because::Cancelled);
                }
            }
            self.requests();
            self.limit();
            self.kill();
            let me = std::process::id() as i32;
            if let Some(faults) = &mut self.faults {
                faults.carry_out(me);
            }
            self.wait(wakes);
        }
        match self.status.clone() {
            Some(how) => self.end(how),
            None => self.end(How::Lost(
                "no process of the job was left to wait for".into(),
            )),
        }
    }

    fn end(&self, how: How) -> End {
        // Only the step before `bash job.sh` can end without having taken its state.
        let how = match self.directory.join("state").exists() {
            true => how,
            false => How::NotStarted("it could not be started; see job.out".into()),
        };
        End {
            how,
            because: self.because,
            started: Some(self.started.clone()),
            ended: Some(now()),
        }
    }

    fn tell(&self, name: &str, end: &End) -> anyhow::Result<()> {
        publish(&self.directory.join(name), &serde_json::to_vec(end)?)?;
        Ok(())
    }

    fn grace(&self) -> Duration {
        Duration::from_secs_f64(self.request.grace_seconds.max(0.0))
    }

    /// Reaps what has ended; false when no process is left.
    fn reap(&mut self) -> bool {
        loop {
            let (pid, how) = match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, How::Exited(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, How::Signalled(signal as i32)),
                Ok(WaitStatus::StillAlive) => {
                    // A job that submitted another one leaves its keeper behind, which goes on without us.
                    let over = self.status.is_some();
                    return !over || !descendants(std::process::id() as i32).is_empty();
                }
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => return false,
            };
            if pid.as_raw() != self.lead {
                continue;
            }
            self.status = Some(how.clone());
            if let Err(error) = self.tell("ending", &self.end(how)) {
                eprintln!("error: {error:#}");
            }
            // Ranks end by themselves when their supervisor is gone; those that do not are killed after the grace.
            let at = Instant::now() + self.grace();
            self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
            if self.because.is_some() {
                self.signal_all(Signal::SIGTERM);
            }
        }
    }

    fn requests(&mut self) {
        if self.directory.join("cancel-kill").exists()
            && self.kill_at.is_none_or(|at| at > Instant::now())
        {
            self.because.get_or_insert(Because::Cancelled);
            self.kill_at = Some(Instant::now());
        } else if self.directory.join("cancel-term").exists() {
            self.terminate(Because::Cancelled);
        }
    }

    fn limit(&mut self) {
        let Some(limit) = self.request.walltime_seconds else {
            return;
        };
        let elapsed = self.begin.elapsed().as_secs_f64();
        if elapsed >= limit {
            self.terminate(Because::Walltime);
        } else if !self.warned && elapsed >= limit - self.request.warn_seconds {
            self.warned = true;
            if self.status.is_none() {
                send(self.lead, Signal::SIGUSR1);
            }
        }
    }

    /// TERM to the job's process, once; KILL follows after the grace.
    fn terminate(&mut self, because: Because) {
        if self.because.is_some() || self.status.is_some() {
            return;
        }
        self.because = Some(because);
        self.kill_at = Some(Instant::now() + self.grace());
        send(self.lead, Signal::SIGTERM);
    }

    fn kill(&self) {
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.signal_all(Signal::SIGKILL);
        }
    }

    fn signal_all(&self, signal: Signal) {
        for pid in descendants(std::process::id() as i32) {
            send(pid, signal);
        }
    }

    fn wait(&self, wakes: &SignalFd) {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let poll_time = if self.faults.is_some() {
            POLL_FAULTS
        } else {
            POLL
        };
        let timeout = PollTimeout::try_from(poll_time).unwrap_or(PollTimeout::ZERO);
        // An error only makes the next look come sooner.
        let _ = poll(
            &mut [PollFd::new(wakes.as_fd(), PollFlags::POLLIN)],
            timeout,
        );
    }
}

fn append(path: &Path) -> Result<std::fs::File, StoreError> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(StoreError::io("open", path))
}
