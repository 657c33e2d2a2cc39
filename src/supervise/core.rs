//! The supervisor as a state machine: (state, event at a time) → (state, actions). No I/O, no clock of its own.
//!
//! claim → choose a checkpoint → launch → all ranks report → run → the first failure ends the others → judge →
//! finish, or choose again. A new attempt is launched only when every launcher of the one before has ended.

mod event;
mod timing;

use super::classify::{
    Account, End, Evidence, Peer, Request, Sign, Status, Trouble, classify, signal_name,
};
use super::policy::{Alike, Next, Standing, counts, decide};
use super::verdict::Outcome;
use haul_runtime::contract::checkpoint::Point;
use std::time::Duration;

pub use event::{Action, Choice, Claimed, Event, Setup, Tell};
pub use timing::Timing;

/// Time since the supervisor's start, on its own clock.
pub type Time = Duration;

#[derive(Debug, Clone, PartialEq)]
enum Phase {
    Claiming,
    Choosing,
    Starting {
        until: Time,
    },
    Running,
    /// Before the next attempt, after failures that were alike.
    Pausing {
        until: Time,
    },
    /// All ranks have ended or were told to.
    Ending {
        kill_at: Time,
        kills: u32,
    },
    Over,
}

#[derive(Debug, Default)]
struct Rank {
    hello: bool,
    heard: Time,
    step: Option<u64>,
    end: Option<End>,
    /// Its shim has ended; what it said last may still be on its way.
    gone: Option<Status>,
    /// The connection to its shim has closed.
    lost: bool,
    /// What it said last of its own failure.
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Attempt {
    number: u32,
    parent: Option<Point>,
    ranks: Vec<Rank>,
    gone: Vec<bool>,
    evidence: Vec<Evidence>,
    /// Step of its newest checkpoint that is newer than the one it was given.
    saved: Option<u64>,
    /// When the first rank left with code 75.
    leaving: Option<Time>,
    /// The reason for which the others were ended, if there is one.
    aborted: bool,
}

/// The state.
#[derive(Debug)]
pub struct Core {
    setup: Setup,
    phase: Phase,
    attempt: Option<Attempt>,
    failures: u32,
    alike: Alike,
    request: Option<Request>,
    /// A checkpoint was seen at any time: from then on a start from nothing is refused.
    checkpoints: bool,
}

impl Core {
    pub fn new(setup: Setup) -> Core {
        Core {
            setup,
            phase: Phase::Claiming,
            attempt: None,
            failures: 0,
            alike: Alike::default(),
            request: None,
            checkpoints: false,
        }
    }

    /// Whether all is said and done.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether the time limit is why the job ends.
    pub fn at_limit(&self) -> bool {
        self.request == Some(Request::Limit)
    }

    /// Whether all ranks run.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Takes an event and returns what to do, in order.
    pub fn step(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.phase != Phase::Over {
            self.take(now, event, &mut actions);
        }
        actions
    }

    fn take(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Claimed(claimed) if self.phase == Phase::Claiming => match claimed {
                Claimed::Won if self.request.is_none() => {
                    self.phase = Phase::Choosing;
                    out.push(Action::Choose);
                }
                Claimed::Won => self.finish_unstarted(out),
                Claimed::Leave(words) => {
                    self.phase = Phase::Over;
                    out.push(Action::Leave { words });
                }
            },
            Event::Chosen { attempt, choice } if self.phase == Phase::Choosing => {
                self.chosen(now, attempt, choice, out);
            }
            Event::Request(request) => self.requested(now, request, out),
            Event::Save => {
                if let (Phase::Running, Some(attempt)) = (&self.phase, &self.attempt) {
                    out.push(Action::TellAll {
                        attempt: attempt.number,
                        tell: Tell::Save,
                    });
                }
            }
            Event::Tick => self.tick(now, out),
            Event::Claimed(_) | Event::Chosen { .. } => {}
            event => self.reported(now, event, out),
        }
    }

    fn chosen(&mut self, now: Time, number: u32, choice: Choice, out: &mut Vec<Action>) {
        let parent = match choice {
            Choice::From(point) => Some(point),
            Choice::Fresh if !self.checkpoints => None,
            Choice::Fresh => {
                let words =
                    "checkpoints were written and none is found now; not started from nothing";
                return self.finish(Outcome::Failed, words.into(), out);
            }
            Choice::AllUnreadable(words) | Choice::Failed(words) => {
                return self.finish(Outcome::Failed, words, out);
            }
        };
        self.checkpoints |= parent.is_some();
        if self.request.is_some() {
            return self.finish_unstarted(out);
        }
        let ranks = self.setup.nodes.iter().map(|_| Rank::default()).collect();
        self.attempt = Some(Attempt {
            number,
            parent,
            ranks,
            gone: vec![false; self.setup.launchers.len()],
            evidence: Vec::new(),
            saved: None,
            leaving: None,
            aborted: false,
        });
        self.phase = Phase::Starting {
            until: now + self.setup.timing.start,
        };
        out.push(Action::Launch {
            attempt: number,
            parent,
        });
    }

    fn finish_unstarted(&mut self, out: &mut Vec<Action>) {
        let (outcome, words) = match self.request {
            Some(Request::Cancel) => (Outcome::Cancelled, "cancelled".to_owned()),
            Some(Request::Terminate(signal)) => (
                Outcome::Failed,
                format!("ended by {} to the supervisor", signal_name(signal)),
            ),
            _ => (Outcome::Stopped, "stopped".to_owned()),
        };
        let which = match self.failures {
            0 => "an",
            _ => "another",
        };
        let words = format!("{words} before {which} attempt was launched");
        self.finish(outcome, words, out);
    }

    fn finish(&mut self, outcome: Outcome, words: String, out: &mut Vec<Action>) {
        self.phase = Phase::Over;
        out.push(Action::Finish { outcome, words });
    }

    fn requested(&mut self, now: Time, request: Request, out: &mut Vec<Action>) {
        let at_once = matches!(request, Request::Cancel | Request::Terminate(_));
        // A stronger request replaces a weaker one.
        let stands = match self.request {
            None => true,
            Some(Request::Stop | Request::Limit) => at_once,
            Some(Request::Terminate(_)) => request == Request::Cancel,
            Some(Request::Cancel) => false,
        };
        if !stands {
            return;
        }
        self.request = Some(request);
        let grace = self.setup.timing.cancel;
        match (&self.phase, &self.attempt) {
            (Phase::Running, Some(attempt)) if !at_once => out.push(Action::TellAll {
                attempt: attempt.number,
                tell: Tell::Stop,
            }),
            (Phase::Starting { .. } | Phase::Running, Some(_)) => self.end(now, grace, out),
            (Phase::Pausing { .. }, _) => self.finish_unstarted(out),
            _ => {}
        }
    }

    /// Something that concerns the current attempt.
    fn reported(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        if event.attempt() != Some(attempt.number) {
            return;
        }
        let abort = self.setup.timing.abort;
        if let Some(rank) = event.rank() {
            let Some(rank) = attempt.ranks.get_mut(rank) else {
                return;
            };
            rank.heard = now;
        }
        match event {
            Event::Hello { rank, .. } => self.hello(now, rank, out),
            Event::Step { rank, step, .. } => {
                let known = &mut attempt.ranks[rank].step;
                *known = (*known).max(Some(step));
            }
            Event::Saved { step, .. } => {
                self.checkpoints = true;
                if attempt.parent.is_none_or(|parent| step > parent.step) {
                    attempt.saved = attempt.saved.max(Some(step));
                }
            }
            Event::Exit {
                rank,
                status,
                asked,
                ..
            } => self.exited(now, rank, status, asked, out),
            Event::NotStarted { rank, words, .. } => {
                // As a shell says it; what the shim does now explains nothing more.
                attempt.ranks[rank].end = Some(End {
                    status: Status::Code(127),
                    asked: false,
                });
                self.accuse(now, Some(rank), Sign::NotStarted(words));
                self.end(now, abort, out);
            }
            Event::Troubled {
                rank, words, peer, ..
            } => {
                let nodes = &self.setup.nodes;
                let peer = peer.filter(|peer| *peer != rank && *peer < nodes.len());
                attempt.ranks[rank].trouble = Some(Trouble {
                    words,
                    peer: peer.map(|rank| Peer {
                        rank,
                        node: nodes[rank].clone(),
                    }),
                });
            }
            Event::Lost { rank, .. } if attempt.ranks[rank].end.is_none() => {
                let sign = attempt.ranks[rank].gone.map_or(Sign::Lost, Sign::ShimGone);
                attempt.ranks[rank].lost = true;
                self.accuse(now, Some(rank), sign);
                self.end(now, abort, out);
            }
            Event::ShimGone { rank, status, .. } if attempt.ranks[rank].end.is_none() => {
                let known = &mut attempt.ranks[rank];
                known.gone = Some(status);
                // The launcher's word may overtake the shim's own, which ends with the loss of its connection.
                if known.lost || !known.hello {
                    self.accuse(now, Some(rank), Sign::ShimGone(status));
                    self.end(now, abort, out);
                }
            }
            Event::LauncherGone {
                launcher, status, ..
            } => self.launcher_gone(now, launcher, status, out),
            Event::LaunchFailed {
                launcher, words, ..
            } => {
                self.accuse_node(now, launcher, Sign::LaunchFailed(words));
                self.end(now, abort, out);
            }
            _ => {}
        }
    }

    fn hello(&mut self, now: Time, rank: usize, out: &mut Vec<Action>) {
        let abort = self.setup.timing.abort;
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        attempt.ranks[rank].hello = true;
        let number = attempt.number;
        if matches!(self.phase, Phase::Ending { .. }) {
            let tell = Tell::Abort { grace: abort };
            out.push(Action::TellRank {
                attempt: number,
                rank,
                tell,
            });
        } else if matches!(self.phase, Phase::Starting { .. })
            && attempt.ranks.iter().all(|r| r.hello)
        {
            for rank in &mut attempt.ranks {
                rank.heard = now;
            }
            self.phase = Phase::Running;
            out.push(Action::TellAll {
                attempt: number,
                tell: Tell::Welcome,
            });
        }
    }

    fn exited(
        &mut self,
        now: Time,
        rank: usize,
        status: Status,
        asked: bool,
        out: &mut Vec<Action>,
    ) {
        let timing = self.setup.timing;
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        if attempt.ranks[rank].end.is_some() {
            return;
        }
        attempt.ranks[rank].end = Some(End { status, asked });
        let aborted = attempt.aborted;
        let all = attempt.ranks.iter().all(|r| r.end.is_some());
        match status {
            Status::Code(0) => {}
            Status::Code(75) => {
                attempt.leaving.get_or_insert(now);
            }
            // What an ending rank says after it was asked to end is no evidence, but for the state of its checkpoint.
            _ if asked && aborted && status != Status::Code(76) => {}
            _ if asked && status != Status::Code(76) => {
                self.accuse(now, Some(rank), Sign::EndedByShim);
                self.end(now, timing.abort, out);
            }
            _ => {
                self.accuse(now, Some(rank), Sign::Exited(status));
                self.end(now, timing.abort, out);
            }
        }
        if all && !matches!(self.phase, Phase::Ending { .. }) {
            self.phase = Phase::Ending {
                kill_at: now + timing.cancel + timing.margin,
                kills: 0,
            };
        }
    }

    fn launcher_gone(&mut self, now: Time, launcher: usize, status: Status, out: &mut Vec<Action>) {
        let abort = self.setup.timing.abort;
        let ending = matches!(self.phase, Phase::Ending { .. });
        let name = self.setup.launchers.get(launcher).cloned();
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        let Some(gone) = attempt.gone.get_mut(launcher) else {
            return;
        };
        if std::mem::replace(gone, true) {
            return;
        }
        let all_gone = attempt.gone.iter().all(|g| *g);
        // One `srun` starts the ranks of every node.
        let single = attempt.gone.len() == 1;
        let left = attempt
            .ranks
            .iter()
            .zip(&self.setup.nodes)
            .any(|(rank, node)| rank.end.is_none() && (single || Some(node) == name.as_ref()));
        let killed_here = matches!(self.phase, Phase::Ending { kills: 1.., .. });
        // A launcher ends by a signal only when somebody kills it; its shims may have told their ends before.
        let strange = matches!(status, Status::Signal(_)) || (left && !attempt.aborted);
        if strange && !killed_here {
            self.accuse_node(now, launcher, Sign::NodeGone(status));
        }
        if left && !ending {
            self.end(now, abort, out);
        }
        if all_gone {
            self.judge(now, out);
        }
    }

    fn accuse(&mut self, at: Time, rank: Option<usize>, sign: Sign) {
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        // What follows from an order to end is no evidence of a failure.
        if attempt.aborted && attempt.evidence.is_empty() {
            return;
        }
        let newest = attempt.ranks.iter().filter_map(|r| r.step).max();
        attempt.evidence.push(Evidence {
            at,
            rank,
            node: rank.and_then(|r| self.setup.nodes.get(r).cloned()),
            step: rank.and_then(|r| attempt.ranks.get(r)?.step).or(newest),
            sign,
            trouble: rank.and_then(|r| attempt.ranks.get(r)?.trouble.clone()),
        });
    }

    fn accuse_node(&mut self, at: Time, launcher: usize, sign: Sign) {
        self.accuse(at, None, sign);
        let name = self.setup.launchers.get(launcher).cloned();
        if let Some(last) = self.attempt.as_mut().and_then(|a| a.evidence.last_mut())
            && last.at == at
            && last.rank.is_none()
        {
            last.node = name;
        }
    }

    /// Ends every rank that still runs.
    fn end(&mut self, now: Time, grace: Duration, out: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Ending { .. }) {
            return;
        }
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        attempt.aborted = true;
        self.phase = Phase::Ending {
            kill_at: now + grace + self.setup.timing.margin,
            kills: 0,
        };
        out.push(Action::TellAll {
            attempt: attempt.number,
            tell: Tell::Abort { grace },
        });
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        let timing = self.setup.timing;
        if matches!(self.phase, Phase::Pausing { until } if now >= until) {
            self.phase = Phase::Choosing;
            out.push(Action::Choose);
        }
        let Some(attempt) = &self.attempt else {
            return;
        };
        let number = attempt.number;
        match self.phase {
            Phase::Starting { until } if now >= until => {
                if let Some(rank) = attempt.ranks.iter().position(|r| !r.hello) {
                    self.accuse(now, Some(rank), Sign::NoHello(timing.start));
                }
                self.end(now, timing.abort, out);
            }
            Phase::Running => {
                let running = |r: &Rank| r.end.is_none();
                let silent = attempt
                    .ranks
                    .iter()
                    .position(|r| running(r) && now.saturating_sub(r.heard) > timing.silence);
                let behind = attempt
                    .leaving
                    .filter(|since| now.saturating_sub(*since) > timing.leave)
                    .and_then(|_| attempt.ranks.iter().position(running));
                match (silent, behind) {
                    (Some(rank), _) => match self.silent_node(now, rank) {
                        Some(node) => {
                            self.accuse_node(now, node, Sign::Silent(timing.silence));
                        }
                        None => self.accuse(now, Some(rank), Sign::Silent(timing.silence)),
                    },
                    (None, Some(rank)) => {
                        self.accuse(now, Some(rank), Sign::StaysBehind(timing.leave));
                    }
                    (None, None) => return,
                }
                self.end(now, timing.abort, out);
            }
            Phase::Ending { kill_at, kills } if now >= kill_at => {
                if kills >= 5 {
                    let words = format!("attempt {number} cannot be ended, even by SIGKILL");
                    return self.finish(Outcome::Failed, words, out);
                }
                self.phase = Phase::Ending {
                    kill_at: now + Duration::from_secs(5),
                    kills: kills + 1,
                };
                out.push(Action::KillLaunchers { attempt: number });
            }
            _ => {}
        }
    }

    /// The launcher of the node of `rank`, where nothing is heard from the whole node while others speak.
    fn silent_node(&self, now: Time, rank: usize) -> Option<usize> {
        let attempt = self.attempt.as_ref()?;
        let name = self.setup.nodes.get(rank)?;
        let node = self.setup.launchers.iter().position(|n| n == name)?;
        // Shims beat at different moments, so the others may be a little short of the limit.
        let limit = self.setup.timing.silence / 2;
        let speaks = |r: &Rank| r.end.is_none() && now.saturating_sub(r.heard) <= limit;
        let ranks = || attempt.ranks.iter().zip(&self.setup.nodes);
        let here = ranks().any(|(r, n)| n == name && speaks(r));
        let elsewhere = ranks().any(|(r, n)| n != name && speaks(r));
        (!here && elsewhere).then_some(node)
    }

    /// Every launcher has ended: nothing of the attempt is alive.
    fn judge(&mut self, now: Time, out: &mut Vec<Action>) {
        let Some(attempt) = self.attempt.take() else {
            return;
        };
        let ends: Vec<Option<End>> = attempt.ranks.iter().map(|r| r.end).collect();
        let verdict = classify(&Account {
            ends: &ends,
            evidence: &attempt.evidence,
            request: self.request,
            loaded: attempt.parent.is_some(),
            saved: attempt.saved,
            step: attempt.ranks.iter().filter_map(|r| r.step).max(),
            common: attempt.ranks.iter().filter_map(|r| r.step).min(),
        });
        self.failures += u32::from(counts(verdict.class, attempt.saved.is_some()));
        let next = decide(
            &verdict,
            Standing {
                failures: self.failures,
                limit: self.setup.failures,
                request: self.request,
            },
        );
        self.alike.count(&verdict, attempt.saved.is_some());
        let pause = self.alike.pause(self.setup.timing.pause);
        let words = verdict.words.clone();
        out.push(Action::Judge {
            attempt: attempt.number,
            verdict,
        });
        match next {
            Next::Launch if pause.is_zero() => {
                self.phase = Phase::Choosing;
                out.push(Action::Choose);
            }
            Next::Launch => {
                self.phase = Phase::Pausing { until: now + pause };
                out.push(Action::Pause { time: pause });
            }
            Next::LaunchFromBefore => {
                self.phase = Phase::Choosing;
                if let Some(at) = attempt.parent {
                    out.push(Action::MarkUnreadable { at, words });
                }
                out.push(Action::Choose);
            }
            Next::Finish { outcome, words } => self.finish(outcome, words, out),
        }
    }
}

#[cfg(test)]
mod tests;
