//! The attempt that runs: its connections, launchers and records.

use super::attempt::{Prepared, Site};
use super::checkpoints::{self, Foreign};
use super::late;
use super::record::{RankEvent, Record, now};
use super::server::{News, Outgoing, Peer};
use super::{Launcher, say};
use crate::control::{Down, Up, Welcome};
use crate::plan::Program;
use crate::store::journal::{Event as Entry, Journal};
use crate::supervise::classify::Status;
use crate::supervise::core::{Event, Tell};
use crate::supervise::merge::Merge;
use haul_runtime::contract::checkpoint::Point;
use haul_runtime::contract::metrics::{self, Kind, Line};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

pub(super) struct Live {
    pub attempt: u32,
    parent: Option<Point>,
    prepared: Prepared,
    peers: BTreeMap<usize, (u64, Outgoing)>,
    /// Connections of launchers, with the node's name.
    nodes: Vec<(u64, String, Outgoing)>,
    /// Pid by node.
    pub launchers: BTreeMap<usize, i32>,
    /// Launchers were told to end at once.
    killed: bool,
    record: Record,
    merge: Merge,
    launched: Instant,
    beat: Instant,
    /// Last step told by any rank.
    step: Option<u64>,
    saved: BTreeSet<u64>,
    /// Checkpoints that do not count, told once.
    refused: BTreeSet<u64>,
    /// What the pointer file said last.
    pointer: Option<String>,
    /// Ranks that have told their end.
    exited: BTreeSet<usize>,
    /// Ranks whose first line without meaning was told.
    odd: BTreeSet<usize>,
}

impl Live {
    pub(super) fn new(
        site: &Site,
        attempt: u32,
        parent: Option<Point>,
        prepared: Prepared,
    ) -> anyhow::Result<Live> {
        Ok(Live {
            attempt,
            parent,
            prepared,
            peers: BTreeMap::new(),
            nodes: Vec::new(),
            launchers: BTreeMap::new(),
            killed: false,
            record: Record::open(&site.run, attempt)?,
            merge: Merge::new(attempt, site.plan.world()),
            launched: Instant::now(),
            beat: Instant::now(),
            step: None,
            saved: BTreeSet::new(),
            refused: BTreeSet::new(),
            pointer: None,
            exited: BTreeSet::new(),
            odd: BTreeSet::new(),
        })
    }

    /// Starts the launcher of a node and a task that tells its end.
    pub(super) fn start_launcher(
        &mut self,
        site: &Site,
        node: usize,
        tell: mpsc::Sender<Launcher>,
    ) -> anyhow::Result<()> {
        let mut child = site.spawn(&self.prepared, node)?;
        if let Some(pid) = child.id() {
            self.launchers.insert(node, pid as i32);
        }
        let attempt = self.attempt;
        tokio::spawn(async move {
            let status = match child.wait().await {
                Ok(status) => match status.signal() {
                    Some(signal) => Status::Signal(signal),
                    None => Status::Code(status.code().unwrap_or(1)),
                },
                Err(_) => Status::Code(1),
            };
            let ended = Launcher {
                attempt,
                index: node,
                status,
            };
            // Nobody listens when the supervisor ends.
            let _ = tell.send(ended).await;
        });
        Ok(())
    }

    pub(super) fn tell_all(&self, tell: Tell) {
        for rank in self.peers.keys() {
            self.tell(*rank, tell);
        }
    }

    pub(super) fn tell(&self, rank: usize, tell: Tell) {
        let Some((_, sender)) = self.peers.get(&rank) else {
            return;
        };
        match tell {
            Tell::Welcome => sender.send(&Down::Welcome(self.welcome(rank))),
            other => sender.send(&other.into()),
        }
    }

    fn welcome(&self, rank: usize) -> Welcome {
        let prepared = &self.prepared;
        let place = prepared.placement.ranks.get(rank);
        let node = place.map(|p| p.node.as_str()).unwrap_or_default();
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        Welcome {
            world: prepared.placement.ranks.len(),
            local_rank: place.map_or(0, |p| p.local_rank),
            local_world: prepared.placement.of(node).count(),
            master_addr: prepared.master.0.clone(),
            master_port: prepared.master.1,
            save_dir: text(&prepared.save_dir),
            load_from: prepared.load_from.as_deref().map(text).unwrap_or_default(),
            bind: prepared.bind(rank),
        }
    }

    /// KILLs launchers and shims; ranks are killed by the kernel with their shims.
    pub(super) fn kill_launchers(&mut self, srun: bool) {
        // On TERM `srun` kills its tasks and waits for them; if it is killed itself they live on.
        let signal = match srun && !self.killed {
            true => Signal::SIGTERM,
            false => Signal::SIGKILL,
        };
        self.killed = true;
        for pid in self.launchers.values() {
            let _ = killpg(Pid::from_raw(*pid), signal);
        }
    }

    fn node(&self, rank: usize) -> String {
        let place = self.prepared.placement.ranks.get(rank);
        place.map(|p| p.node.clone()).unwrap_or_default()
    }

    /// Takes what happened on the port and returns what it means.
    pub(super) fn heard(
        &mut self,
        site: &Site,
        journal: &mut Journal,
        news: News,
    ) -> anyhow::Result<Vec<Event>> {
        let attempt = self.attempt;
        match news {
            News::Joined {
                peer: Peer::Rank(rank),
                connection,
                pid,
                sender,
                ..
            } => {
                if self.peers.contains_key(&rank) {
                    // One shim a rank: the second is closed by dropping its sender.
                    return Ok(Vec::new());
                }
                self.peers.insert(rank, (connection, sender));
                self.record
                    .rank(rank, &self.node(rank), &RankEvent::Joined { shim: pid });
                Ok(vec![Event::Hello { attempt, rank }])
            }
            News::Joined {
                peer: Peer::Launcher,
                connection,
                node,
                sender,
                ..
            } => {
                self.nodes.push((connection, node, sender));
                Ok(Vec::new())
            }
            News::Said {
                peer: Peer::Launcher,
                message: Up::Gone { rank, code, signal },
                ..
            } => {
                let status = match signal {
                    Some(signal) => Status::Signal(signal),
                    None => Status::Code(code.unwrap_or(1)),
                };
                let gone = RankEvent::ShimGone { code, signal };
                self.record.rank(rank, &self.node(rank), &gone);
                Ok(vec![Event::ShimGone {
                    attempt,
                    rank,
                    status,
                }])
            }
            News::Said {
                peer: Peer::Rank(rank),
                connection,
                message,
            } if self.is_current(rank, connection) => self.said(site, journal, rank, message),
            News::Left {
                peer: Peer::Rank(rank),
                connection,
            } if self.is_current(rank, connection) => {
                self.peers.remove(&rank);
                self.record.rank(rank, &self.node(rank), &RankEvent::Lost);
                Ok(vec![Event::Lost { attempt, rank }])
            }
            News::Left { connection, .. } => {
                self.nodes.retain(|(c, ..)| *c != connection);
                Ok(Vec::new())
            }
            News::Said { .. } => Ok(Vec::new()),
        }
    }

    /// Whether somebody of `node`, or of any, is still connected.
    pub(super) fn hears_from(&self, node: Option<&str>) -> bool {
        let here = |name: &str| node.is_none_or(|node| name == node);
        self.nodes.iter().any(|(_, name, _)| here(name))
            || self.peers.keys().any(|rank| here(&self.node(*rank)))
    }

    fn is_current(&self, rank: usize, connection: u64) -> bool {
        self.peers.get(&rank).is_some_and(|(c, _)| *c == connection)
    }

    fn said(
        &mut self,
        site: &Site,
        journal: &mut Journal,
        rank: usize,
        message: Up,
    ) -> anyhow::Result<Vec<Event>> {
        let attempt = self.attempt;
        let node = self.node(rank);
        let mut events = vec![Event::Heard { attempt, rank }];
        match message {
            Up::Beat { lines } => {
                for line in lines {
                    events.extend(self.line(site, journal, rank, &line)?);
                }
            }
            Up::Bound { cores, asked } => {
                self.record.binding(rank, &node, &cores, asked.as_deref());
                if asked.as_ref().is_some_and(|asked| *asked != cores) {
                    say(&format!(
                        "rank {rank} on {node} runs on cores {cores:?}, not on those asked for"
                    ));
                }
            }
            Up::Spawned { pid, group, start } => {
                self.record
                    .rank(rank, &node, &RankEvent::Spawned { pid, group, start });
            }
            Up::Exit(ended) => {
                self.exited.insert(rank);
                self.record
                    .rank(rank, &node, &RankEvent::Exit(ended.clone()));
                if let Some((_, sender)) = self.peers.get(&rank) {
                    sender.send(&Down::Noted);
                }
                events.extend(self.pointer_now(site, journal)?);
                events.push(match (ended.error, ended.code, ended.signal) {
                    (Some(words), ..) => Event::NotStarted {
                        attempt,
                        rank,
                        words,
                    },
                    (None, Some(code), _) => Event::Exit {
                        attempt,
                        rank,
                        status: Status::Code(code),
                        asked: ended.asked,
                    },
                    (None, None, signal) => Event::Exit {
                        attempt,
                        rank,
                        status: Status::Signal(signal.unwrap_or_default()),
                        asked: ended.asked,
                    },
                });
            }
            Up::Gone { .. } | Up::Unknown => {}
        }
        Ok(events)
    }

    /// One progress line as the program wrote it.
    fn line(
        &mut self,
        site: &Site,
        journal: &mut Journal,
        rank: usize,
        text: &str,
    ) -> anyhow::Result<Vec<Event>> {
        let attempt = self.attempt;
        let line: Line = match serde_json::from_str(text).or_else(|error| finite(text).ok_or(error))
        {
            Ok(line) if line.step.is_none_or(|step| step <= metrics::LAST_STEP) => line,
            Ok(line) if self.odd.insert(rank) => {
                let mut note = Line::new(Kind::Note);
                note.text = Some(format!(
                    "rank {rank} tells step {}, which is not believed; further ones are not told",
                    line.step.unwrap_or_default()
                ));
                note
            }
            Ok(_) => return Ok(Vec::new()),
            Err(error) if self.odd.insert(rank) => {
                let shown: String = text.chars().take(120).collect();
                let mut note = Line::new(Kind::Note);
                note.text = Some(format!(
                    "rank {rank} writes a progress line that is not understood ({error}): {shown}; further ones are not told"
                ));
                note
            }
            Err(_) => return Ok(Vec::new()),
        };
        let mut events = Vec::new();
        let mut said = None;
        match (line.kind, line.step) {
            (Kind::Step | Kind::Skip, Some(step)) => {
                self.step = self.step.max(Some(step));
                events.push(Event::Step {
                    attempt,
                    rank,
                    step,
                });
            }
            (Kind::Note, _) => events.extend(trouble(attempt, rank, &line)),
            (Kind::Save, step) => {
                let pointer = || checkpoints::pointer(&self.prepared.save_dir);
                let path = line.path.clone().or_else(pointer);
                let step = step
                    .or_else(|| path.as_deref().and_then(checkpoints::step_in))
                    .or(self.step);
                said = path.zip(step);
            }
            _ => {}
        }
        let lines = self
            .merge
            .take(rank, line, self.launched.elapsed(), Some(&now()));
        self.record.metrics(&lines);
        if let Some((path, step)) = said {
            events.extend(self.saved(site, journal, &path, step)?);
        }
        Ok(events)
    }

    /// A checkpoint is said to be complete.
    fn saved(
        &mut self,
        site: &Site,
        journal: &mut Journal,
        path: &str,
        step: u64,
    ) -> anyhow::Result<Vec<Event>> {
        let attempt = self.attempt;
        let at = Point { attempt, step };
        if self.saved.contains(&step) {
            return Ok(Vec::new());
        }
        let committed = match site.plan.program {
            _ if checkpoints::is_committed(&site.run, at) => Ok(()),
            Program::Bundled => Err("its manifest is missing".to_owned()),
            Program::Command { .. } => checkpoints::commit(
                &site.run,
                &Foreign {
                    at,
                    path,
                    parent: self.parent,
                    fingerprint: &site.plan.fingerprint,
                },
            ),
        };
        if let Err(reason) = committed {
            if !self.refused.insert(step) {
                return Ok(Vec::new());
            }
            return self.note(format!(
                "the checkpoint {path} of step {step} does not count: {reason}"
            ));
        }
        self.saved.insert(step);
        let entry = Entry::Saved {
            attempt,
            step,
            path: path.to_owned(),
        };
        if let Err(error) = journal.append(entry) {
            // The manifest stands, which is what counts.
            say(&format!(
                "the checkpoint of step {step} is not in the journal: {error}"
            ));
        }
        Ok(vec![Event::Saved { attempt, step }])
    }

    fn note(&mut self, text: String) -> anyhow::Result<Vec<Event>> {
        say(&text);
        let mut note = Line::new(Kind::Note);
        note.attempt = Some(self.attempt);
        note.time = Some(now());
        note.text = Some(text);
        self.record.metrics(&[note]);
        Ok(Vec::new())
    }

    /// A checkpoint that a foreign program tells by its pointer file only. While it runs, a name must stand for
    /// two looks, so that a progress line with the step comes first.
    pub(super) fn look_for_pointer(
        &mut self,
        site: &Site,
        journal: &mut Journal,
    ) -> anyhow::Result<Vec<Event>> {
        let name = checkpoints::pointer(&self.prepared.save_dir);
        if name.is_none() || name != self.pointer {
            self.pointer = name;
            return Ok(Vec::new());
        }
        self.pointer_now(site, journal)
    }

    fn pointer_now(&mut self, site: &Site, journal: &mut Journal) -> anyhow::Result<Vec<Event>> {
        if site.plan.program == Program::Bundled {
            return Ok(Vec::new());
        }
        let Some(name) = checkpoints::pointer(&self.prepared.save_dir) else {
            return Ok(Vec::new());
        };
        match checkpoints::step_in(&name).or(self.step) {
            Some(step) => self.saved(site, journal, &name, step),
            None => Ok(Vec::new()),
        }
    }

    /// All launchers have ended: what is left to write.
    pub(super) fn last_look(
        &mut self,
        site: &Site,
        journal: &mut Journal,
    ) -> anyhow::Result<Vec<Event>> {
        let (attempt, world) = (self.attempt, site.plan.world());
        late::gather(&site.run, attempt, &self.prepared.secret, world);
        let mut events = Vec::new();
        for (rank, line) in late::read(&site.run, attempt, world).lines {
            events.extend(self.line(site, journal, rank, &line)?);
        }
        let lines = self.merge.finish();
        self.record.metrics(&lines);
        late::forget(&site.run, attempt);
        events.extend(self.pointer_now(site, journal)?);
        Ok(events)
    }

    /// Writes steps that have waited long enough; tells the shims that the supervisor lives.
    pub(super) fn tick(&mut self, silence: Duration) -> anyhow::Result<()> {
        let lines = self.merge.due(self.launched.elapsed());
        self.record.metrics(&lines);
        if self.beat.elapsed() >= Duration::from_secs(2).min(silence / 4) {
            self.beat = Instant::now();
            let ranks = self.peers.values().map(|(_, sender)| sender);
            for sender in ranks.chain(self.nodes.iter().map(|(.., sender)| sender)) {
                sender.send(&Down::Beat);
            }
        }
        Ok(())
    }
}

impl From<Tell> for crate::control::Down {
    fn from(tell: Tell) -> Self {
        use crate::control::Down;
        match tell {
            // A welcome is made for each rank by `Live`.
            Tell::Welcome => Down::Beat,
            Tell::Save => Down::Save,
            Tell::Stop => Down::Stop,
            Tell::Abort { grace } => Down::Abort {
                grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
            },
        }
    }
}

/// What a note tells of the end of its rank.
fn trouble(attempt: u32, rank: usize, line: &Line) -> Option<Event> {
    let value = |name| line.values.as_ref()?.get(name);
    let peer = value(metrics::PEER).and_then(|peer| usize::try_from(peer.as_u64()?).ok());
    Some(Event::Troubled {
        attempt,
        rank,
        words: value(metrics::ERROR)?.as_str()?.to_owned(),
        peer,
    })
}

/// A line in which numbers that are not finite stand bare, as Python writes them: they are absent, and the line says so.
fn finite(text: &str) -> Option<Line> {
    let mut bare = text.to_owned();
    for word in ["-Infinity", "Infinity", "NaN"] {
        for gap in [":", ": "] {
            bare = bare.replace(&format!("{gap}{word}"), &format!("{gap}null"));
        }
    }
    if bare == text {
        return None;
    }
    let mut line: Line = serde_json::from_str(&bare).ok()?;
    line.text
        .get_or_insert_with(|| "a value of this step is not finite (NaN or Infinity)".to_owned());
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_not_finite_is_a_step_that_says_so() {
        let line = finite(r#"{"kind":"step","step":10,"loss":NaN,"lr": -Infinity}"#).unwrap();
        assert_eq!(
            (line.kind, line.step, line.loss),
            (Kind::Step, Some(10), None)
        );
        assert!(line.text.unwrap().contains("not finite"));
        assert_eq!(finite(r#"{"kind":"step","step":10,"loss":1,}"#), None);
    }
}
