//! `haul launch`: one virtual node on this machine, parent of its rank shims.
//!
//! It inherits the orphans of its node and ends them when a shim dies, tells the supervisor which shim died and
//! how, and removes the private directories of its ranks.

mod relay;

use crate::control::{Down, Up};
use crate::rank::link::{self, Caller, Sender};
use crate::rank::placement::{self, Placement};
use crate::rank::{RankError, orphans, scratch, signals};
use crate::store::RunDir;
use crate::supervise::core::Timing;
use haul_runtime::sys::spawn::{Group, die_with_parent};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What `haul launch` is told.
#[derive(Debug, Clone)]
pub struct Options {
    pub run_dir: PathBuf,
    pub attempt: u32,
    /// Number of the virtual node.
    pub node: usize,
    pub supervisor: SocketAddr,
    pub command: Vec<String>,
    pub timing: Timing,
}

/// Name of virtual node `i`.
pub fn node_name(i: usize) -> String {
    format!("local{i}")
}

enum Event {
    Child,
    Terminate,
    Closed,
}

struct Shim {
    rank: usize,
    child: Child,
}

/// Runs the ranks of one virtual node to their end.
pub fn run(options: &Options) -> Result<(), RankError> {
    // No signal at the supervisor's end: the connection tells it, and the ranks get their grace.
    orphans::inherit()?;
    let (events, received) = channel();
    let sender = events.clone();
    let taken = [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    signals::receive(&taken, move |signal| {
        let event = match signal {
            Signal::SIGCHLD => Event::Child,
            Signal::SIGTERM | Signal::SIGINT => Event::Terminate,
            _ => return,
        };
        let _ = sender.send(event);
    })?;

    let run = RunDir::new(&options.run_dir);
    let secret = placement::secret(&run, options.attempt)?;
    let placement = Placement::read(&run, options.attempt)?;
    let node = node_name(options.node);
    let way = relay::Way::open(&node, options.supervisor)?;
    let mut shims = Vec::new();
    for place in placement.of(&node) {
        shims.push(Shim {
            rank: place.rank,
            child: start(options, way.at, place.rank)?,
        });
    }
    let caller = Caller {
        attempt: options.attempt,
        rank: None,
        node,
    };
    let link = link::connect(way.at, &caller, &secret)?
        .listen(move |message: Option<Down>| {
            if message.is_none() {
                let _ = events.send(Event::Closed);
            }
        })
        .map_err(|source| RankError::System {
            what: "start a thread",
            source,
        })?;
    let ranks: Vec<usize> = shims.iter().map(|shim| shim.rank).collect();
    watch(shims, link, &received, &options.timing);
    for rank in ranks {
        scratch::rescue(&secret, rank, &scratch::late(&run, options.attempt, rank))?;
    }
    way.close();
    Ok(())
}

fn start(options: &Options, supervisor: SocketAddr, rank: usize) -> Result<Child, RankError> {
    let exe = std::env::current_exe().map_err(|source| RankError::System {
        what: "find this binary",
        source,
    })?;
    let mut command = Command::new(&exe);
    command
        .arg("rank")
        .arg("--run")
        .arg(&options.run_dir)
        .args(["--attempt", &options.attempt.to_string()])
        .args(["--supervisor", &supervisor.to_string()])
        .args(["--rank", &rank.to_string()])
        .arg("--")
        .args(&options.command)
        .stdin(Stdio::null());
    die_with_parent(&mut command, Signal::SIGTERM as i32, Group::Shared);
    command.spawn().map_err(RankError::io("start", exe))
}

/// Until every shim has ended and nothing it started is left.
fn watch(mut shims: Vec<Shim>, mut link: Sender, received: &Receiver<Event>, timing: &Timing) {
    let mut kill_at: Option<Instant> = None;
    let mut told = false;
    while !shims.is_empty() {
        let event = received.recv_timeout(Duration::from_millis(500)).ok();
        match event {
            Some(Event::Terminate) if !told => {
                told = true;
                for shim in &shims {
                    signal(shim, Signal::SIGTERM);
                }
                let until = Instant::now() + timing.abort + timing.margin;
                kill_at = Some(kill_at.map_or(until, |before| before.min(until)));
            }
            Some(Event::Closed) => {
                // The shims have lost the supervisor as well and end their ranks after their grace.
                let until = Instant::now() + timing.orphan + timing.abort + timing.margin;
                kill_at = Some(kill_at.map_or(until, |before| before.min(until)));
            }
            _ => {}
        }
        if kill_at.is_some_and(|until| Instant::now() >= until) {
            for shim in &shims {
                signal(shim, Signal::SIGKILL);
            }
        }
        let mut ended: Vec<(usize, ExitStatus)> = Vec::new();
        shims.retain_mut(|shim| match shim.child.try_wait() {
            Ok(Some(status)) => {
                ended.push((shim.rank, status));
                false
            }
            Ok(None) => true,
            // It cannot be waited for, so it is not there.
            Err(_) => false,
        });
        if !ended.is_empty() {
            let keep: Vec<i32> = shims.iter().map(|shim| shim.child.id() as i32).collect();
            orphans::sweep(&keep);
        }
        for (rank, status) in ended {
            link.send(&Up::Gone {
                rank,
                code: status.code(),
                signal: status.signal(),
            });
        }
    }
    orphans::sweep(&[]);
}

fn signal(shim: &Shim, signal: Signal) {
    // It may have ended already.
    let _ = kill(Pid::from_raw(shim.child.id() as i32), signal);
}
