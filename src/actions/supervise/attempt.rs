//! The making of an attempt: directory, secret, placement, launch.sh, its port, its launchers.

use super::server::{self, Door, News};
use super::site::Nodes;
use crate::control::{Bind, Secret};
use crate::plan::placement::{place, places};
use crate::plan::{Binding, Plan};
use crate::rank::placement::{Place, Placement, SCHEMA};
use crate::rank::{bind, link};
use crate::render::{LaunchContext, launch_script};
use crate::store::RunDir;
use crate::store::publish::publish;
use anyhow::Context;
use haul_runtime::contract::checkpoint::Point;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What all attempts of a job share.
#[derive(Debug)]
pub(super) struct Site {
    pub haul: PathBuf,
    pub run: RunDir,
    pub slot: u32,
    pub epoch: u64,
    pub plan: Plan,
    pub nodes: Nodes,
    /// Unix seconds of the time limit.
    pub job_end: Option<u64>,
}

/// An attempt that is ready to start its launchers.
#[derive(Debug)]
pub(super) struct Prepared {
    pub secret: Secret,
    pub placement: Placement,
    pub save_dir: PathBuf,
    pub load_from: Option<PathBuf>,
    pub master: (String, u16),
    pub script: PathBuf,
    /// Each rank takes an even part of the cores of its node, which has so many ranks.
    pub share: Option<usize>,
    pub server: JoinHandle<()>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Site {
    /// Name of the node of a rank.
    pub(super) fn node_of(&self, rank: usize) -> String {
        let node = place(rank, self.plan.job.ranks_per_node.max(1)).node;
        self.nodes.names.get(node).cloned().unwrap_or_default()
    }

    /// Reserves the next attempt's number by making its directory.
    pub(super) fn reserve(&self) -> anyhow::Result<u32> {
        let attempts = self.run.path().join("attempts");
        std::fs::create_dir_all(&attempts)
            .with_context(|| format!("cannot create {}", attempts.display()))?;
        let mut attempt = self.run.numbers("attempts").last().map_or(1, |n| n + 1);
        loop {
            let directory = self.run.attempt(attempt);
            match std::fs::create_dir(&directory) {
                Ok(()) => return Ok(attempt),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => attempt += 1,
                Err(e) => {
                    return Err(e)
                        .with_context(|| format!("cannot create {}", directory.display()));
                }
            }
        }
    }

    /// Writes the attempt's files and opens its port.
    pub(super) async fn prepare(
        &self,
        attempt: u32,
        parent: Option<Point>,
        tell: mpsc::Sender<(u32, News)>,
    ) -> anyhow::Result<Prepared> {
        let directory = self.run.attempt(attempt);
        let save_dir = self.run.checkpoints(attempt);
        for directory in [&directory.join("logs"), &save_dir] {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        let secret = self.secret(attempt)?;
        let placement = self.placement(attempt, parent)?;
        publish(
            &directory.join("placement.json"),
            &serde_json::to_vec_pretty(&placement)?,
        )?;
        let address = self.nodes.address;
        let listener = tokio::net::TcpListener::bind((address, 0))
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let supervisor: SocketAddr = listener.local_addr()?;
        let load_from = parent.map(|at| super::checkpoints::load_path(&self.run, at));
        let context = LaunchContext {
            haul: self.haul.clone(),
            root: self.run.root().path().to_path_buf(),
            run_dir: self.run.path().to_path_buf(),
            slot: self.slot,
            attempt,
            supervisor,
            minutes_left: self.minutes_left(),
            save_dir: save_dir.clone(),
            load_from: load_from.clone(),
            plan_file: self.run.plan(self.slot),
        };
        let script = directory.join("launch.sh");
        publish(&script, launch_script(&self.plan, &context)?.as_bytes())?;
        let door = Door {
            attempt,
            world: self.plan.world(),
            secret: secret.clone(),
        };
        Ok(Prepared {
            secret,
            placement,
            save_dir,
            load_from,
            master: (
                self.nodes.master.to_string(),
                master_port(address, self.run.path(), attempt),
            ),
            script,
            share: match (self.nodes.srun, self.plan.machine.binding) {
                (true, Binding::Even) => Some(self.plan.job.ranks_per_node),
                _ => None,
            },
            server: tokio::spawn(server::serve(listener, door, tell)),
        })
    }

    fn minutes_left(&self) -> Option<u64> {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        self.job_end.map(|end| end.saturating_sub(now) / 60)
    }

    fn secret(&self, attempt: u32) -> anyhow::Result<Secret> {
        let path = self.run.attempt(attempt).join("secret");
        let bytes = link::random().context("cannot read /dev/urandom")?;
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(&bytes))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Secret::new(bytes))
    }

    fn placement(&self, attempt: u32, parent: Option<Point>) -> anyhow::Result<Placement> {
        let world = self.plan.world();
        let cores = bind::allowed(0)?;
        let ranks = places(self.plan.job.nodes, self.plan.job.ranks_per_node)
            .map(|at| Place {
                rank: at.rank,
                node: self.nodes.names.get(at.node).cloned().unwrap_or_default(),
                local_rank: at.local_rank,
                // Virtual nodes share this machine, so all ranks of the job share its cores.
                cores: match self.plan.machine.binding {
                    Binding::Even if !self.nodes.srun => Some(bind::share(&cores, at.rank, world)),
                    _ => None,
                },
            })
            .collect();
        Ok(Placement {
            schema: SCHEMA.into(),
            attempt,
            epoch: self.epoch,
            slot: self.slot,
            parent,
            fingerprint: self.plan.fingerprint.clone(),
            ranks,
        })
    }

    /// Starts the launcher of a node, in a process group of its own.
    pub(super) fn spawn(
        &self,
        prepared: &Prepared,
        node: usize,
    ) -> anyhow::Result<tokio::process::Child> {
        tokio::process::Command::new("bash")
            .arg(&prepared.script)
            .arg(node.to_string())
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start bash {}", prepared.script.display()))
    }
}

impl Prepared {
    pub(super) fn bind(&self, rank: usize) -> Bind {
        match (self.placement.ranks.get(rank), self.share) {
            (Some(place), Some(of)) => Bind::Share {
                index: place.local_rank,
                of,
            },
            (Some(place), None) => place.cores.clone().map_or(Bind::Leave, Bind::Cores),
            (None, _) => Bind::Leave,
        }
    }
}

/// A free port below the range the kernel hands out itself, the same for the same attempt where it is free.
fn master_port(address: Ipv4Addr, run: &std::path::Path, attempt: u32) -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    let text = format!("{} {attempt}", run.display());
    let hash = blake3::hash(text.as_bytes());
    let start = u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]) % COUNT;
    (0..200)
        .map(|i| FIRST + (start + i) % COUNT)
        .find(|port| TcpListener::bind((address, *port)).is_ok())
        .unwrap_or(FIRST + start)
}
