//! The shim's course: report, wait for the welcome, start the program, watch it to its end.

use super::link::{self, Caller, Sender};
use super::log::{Log, Part};
use super::placement::{self, Placement};
use super::program::{Program, Start};
use super::progress::Tail;
use super::scratch::{Scratch, late};
use super::{RankError, bind, orphans, signals};
use crate::control::{Down, Ended, Up, Welcome};
use crate::store::RunDir;
use crate::store::identity::Process;
use crate::supervise::core::Timing;
use haul_runtime::contract::env;
use nix::sys::signal::Signal;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often the progress file is looked at.
const TICK: Duration = Duration::from_millis(25);
/// How often the supervisor hears from a shim with nothing to tell.
const BEAT: Duration = Duration::from_millis(500);

/// How long the supervisor may take to note the end of the program.
const FAREWELL: Duration = Duration::from_secs(5);

/// What `haul rank` is told.
#[derive(Debug, Clone)]
pub struct Options {
    pub run_dir: PathBuf,
    pub attempt: u32,
    pub rank: usize,
    /// Where this is, if whoever started it says so.
    pub node: Option<String>,
    pub supervisor: SocketAddr,
    pub command: Vec<String>,
    pub timing: Timing,
}

#[derive(Debug)]
enum Event {
    Down(Down),
    Closed,
    Terminate,
    Ended(std::io::Result<ExitStatus>),
}

/// Runs one rank to its end; returns the exit code of the program, 128 + n for a signal n.
pub fn run(options: &Options) -> Result<u8, RankError> {
    let (events, received) = channel();
    // Nothing may outlive the launcher of the node; TERM leaves time to end the program properly.
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)
        .map_err(RankError::system("ask for a signal at the launcher's end"))?;
    orphans::inherit()?;
    let sender = events.clone();
    let taken = [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    signals::receive(&taken, move |signal| {
        if matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
            let _ = sender.send(Event::Terminate);
        }
    })?;

    let run = RunDir::new(&options.run_dir);
    let secret = placement::secret(&run, options.attempt)?;
    let placement = Placement::read(&run, options.attempt)?;
    let place = placement
        .ranks
        .get(options.rank)
        .ok_or_else(|| RankError::NoRank {
            attempt: options.attempt,
            rank: options.rank,
            path: run.attempt(options.attempt).join("placement.json"),
        })?;
    if let Some(here) = options.node.as_ref().filter(|here| **here != place.node) {
        return Err(RankError::Elsewhere {
            rank: options.rank,
            planned: place.node.clone(),
            here: here.clone(),
        });
    }
    let caller = Caller {
        attempt: options.attempt,
        rank: Some(options.rank),
        node: place.node.clone(),
    };
    let sender = events.clone();
    let link = link::connect(options.supervisor, &caller, &secret)?
        .listen(move |message| {
            // The shim has left when nobody receives.
            let _ = sender.send(message.map_or(Event::Closed, Event::Down));
        })
        .map_err(|source| RankError::System {
            what: "start a thread",
            source,
        })?;
    let Some(welcome) = wait_for_welcome(&received) else {
        return Ok(128 + Signal::SIGTERM as u8);
    };

    let path = run.log(options.attempt, &place.node);
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .map_err(RankError::io("open", &path))?;
    let scratch = Scratch::create(&secret, options.rank)?;
    let asked = bind::apply(&welcome.bind)?;
    let start = Start {
        command: options.command.clone(),
        variables: variables(options, &welcome, &scratch),
    };
    let mut watch = Watch {
        link,
        tail: Tail::new(&scratch.progress()),
        scratch,
        log: Log::new(file, &place.node, options.rank),
        timing: options.timing,
        program: None,
        ending: None,
        killed: false,
        orphaned: None,
        late: late(&run, options.attempt, options.rank),
        heard: Instant::now(),
        beat: Instant::now(),
    };
    let ended = events.clone();
    let spawned = Program::spawn(&start, &watch.log, move |status| {
        let _ = ended.send(Event::Ended(status));
    });
    match spawned {
        Ok(program) => {
            watch.report_start(&program, asked);
            watch.program = Some(program);
            Ok(watch.follow(&received))
        }
        Err(error) => {
            let words = format!("{error:#}");
            watch
                .log
                .line(format!("haul: {words}").as_bytes(), Part::Start);
            // Where the system lacks something just now the shim only leaves, which is a failure as any other.
            if error.is_lasting() {
                watch.link.send(&Up::Exit(Ended {
                    error: Some(words),
                    ..Ended::default()
                }));
            }
            Ok(127)
        }
    }
}

/// Absent when there is nothing to start any more.
fn wait_for_welcome(received: &Receiver<Event>) -> Option<Welcome> {
    loop {
        match received.recv() {
            Ok(Event::Down(Down::Welcome(welcome))) => return Some(welcome),
            Ok(Event::Down(Down::Abort { .. }) | Event::Closed | Event::Terminate) | Err(_) => {
                return None;
            }
            Ok(Event::Down(_) | Event::Ended(_)) => {}
        }
    }
}

/// Whether the supervisor has noted the end of the program, and with it all that was said before.
fn noted(received: &Receiver<Event>) -> bool {
    let until = Instant::now() + FAREWELL;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match received.recv_timeout(left) {
            Ok(Event::Down(Down::Noted)) => return true,
            Ok(Event::Closed) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

/// The trainer contract.
fn variables(
    options: &Options,
    welcome: &Welcome,
    scratch: &Scratch,
) -> Vec<(&'static str, String)> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    vec![
        (env::RANK, options.rank.to_string()),
        (env::LOCAL_RANK, welcome.local_rank.to_string()),
        (env::WORLD_SIZE, welcome.world.to_string()),
        (env::LOCAL_WORLD_SIZE, welcome.local_world.to_string()),
        (env::MASTER_ADDR, welcome.master_addr.clone()),
        (env::MASTER_PORT, welcome.master_port.to_string()),
        (env::RUN_DIR, text(options.run_dir.clone())),
        (env::ATTEMPT, options.attempt.to_string()),
        (env::PROGRESS, text(scratch.progress())),
        (env::CONTROL, text(scratch.control())),
        (env::SAVE_DIR, welcome.save_dir.clone()),
        (env::LOAD_FROM, welcome.load_from.clone()),
    ]
}

struct Watch {
    link: Sender,
    tail: Tail,
    scratch: Scratch,
    log: Log,
    timing: Timing,
    program: Option<Program>,
    /// TERM was sent; KILL follows then.
    ending: Option<Instant>,
    killed: bool,
    /// The supervisor was lost; the program is ended then.
    orphaned: Option<Instant>,
    /// Where the rank's last progress lines are left when the supervisor may not have heard them.
    late: PathBuf,
    heard: Instant,
    beat: Instant,
}

impl Watch {
    fn report_start(&mut self, program: &Program, asked: Option<Vec<usize>>) {
        let start = Process::of(program.pid).map_or(0, |process| process.start);
        self.link.send(&Up::Spawned {
            pid: program.pid,
            group: program.pid,
            start,
        });
        // A program that has ended already has no mask to read back.
        if let Ok(cores) = bind::allowed(program.pid) {
            self.link.send(&Up::Bound { cores, asked });
        }
    }

    fn follow(mut self, received: &Receiver<Event>) -> u8 {
        let status = loop {
            match received.recv_timeout(TICK) {
                Ok(Event::Ended(status)) => break status,
                Ok(Event::Down(message)) => self.told(&message),
                Ok(Event::Closed) => self.lost("lost the supervisor"),
                Ok(Event::Terminate) => self.abort(self.timing.abort),
                Err(RecvTimeoutError::Timeout) => {}
                // The waiting thread holds a sender until it has sent.
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(std::io::Error::other("the waiting thread is gone"));
                }
            }
            self.progress();
            self.deadlines();
        };
        if let Some(program) = self.program.take() {
            program.clear();
        }
        self.progress();
        let asked = self.ending.is_some();
        let (ended, code) = match status {
            Ok(status) => (
                Ended {
                    code: status.code(),
                    signal: status.signal(),
                    asked,
                    error: None,
                },
                status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
            ),
            Err(error) => (
                Ended {
                    error: Some(format!("cannot wait for it: {error}")),
                    asked,
                    ..Ended::default()
                },
                1,
            ),
        };
        self.link.send(&Up::Exit(ended));
        if !noted(received) {
            self.leave_progress();
        }
        u8::try_from(code).unwrap_or(1)
    }

    fn told(&mut self, message: &Down) {
        self.heard = Instant::now();
        match message {
            Down::Save => self.scratch.ask_save(),
            Down::Stop => self.scratch.ask_stop(),
            Down::Abort { grace_ms } => self.abort(Duration::from_millis(*grace_ms)),
            Down::Welcome(_) | Down::Beat | Down::Noted | Down::Unknown => {}
        }
    }

    /// TERM now, KILL after `grace`; a shorter grace than the one that runs counts.
    fn abort(&mut self, grace: Duration) {
        let Some(program) = &self.program else { return };
        let until = Instant::now() + grace;
        if self.ending.is_none() {
            program.signal(Signal::SIGTERM);
            // A stopped process takes TERM only when it goes on.
            program.signal(Signal::SIGCONT);
        }
        self.ending = Some(self.ending.map_or(until, |before| before.min(until)));
    }

    fn lost(&mut self, why: &str) {
        if self.orphaned.is_some() || self.ending.is_some() {
            return;
        }
        let grace = self.timing.orphan;
        self.log.line(
            format!("haul: {why}; this rank ends in {} s", grace.as_secs_f64()).as_bytes(),
            Part::Start,
        );
        self.scratch.ask_stop();
        self.orphaned = Some(Instant::now() + grace);
    }

    fn leave_progress(&mut self) {
        if let Err(error) = self.scratch.leave_progress(&self.late) {
            let words = format!("haul: {error}; progress lines are lost");
            self.log.line(words.as_bytes(), Part::Start);
        }
    }

    fn deadlines(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.heard) > self.timing.silence {
            self.lost("the supervisor fell silent");
        }
        if self.orphaned.is_some_and(|until| now >= until) && self.ending.is_none() {
            self.abort(self.timing.abort);
        }
        if self.ending.is_some_and(|until| now >= until)
            && !self.killed
            && let Some(program) = &self.program
        {
            program.signal(Signal::SIGKILL);
            self.killed = true;
        }
    }

    /// Sends new progress lines, or a beat when it is time.
    fn progress(&mut self) {
        loop {
            let lines = self.tail.lines();
            if lines.is_empty() {
                break;
            }
            self.beat = Instant::now();
            if !self.link.send(&Up::Beat { lines }) {
                let text = r#"{"kind":"note","text":"progress lines were dropped, they do not fit in a frame"}"#;
                self.link.send(&Up::Beat {
                    lines: vec![text.into()],
                });
            }
        }
        if self.beat.elapsed() >= BEAT {
            self.beat = Instant::now();
            self.link.send(&Up::Beat { lines: Vec::new() });
        }
    }
}
