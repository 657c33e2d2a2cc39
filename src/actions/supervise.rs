//! `haul supervise`: the first process of a job. Claims the slot, launches attempts, records, judges.
//!
//! A thin shell around [`crate::supervise::core`]: it turns signals, files, messages and ends of processes into
//! events and carries the actions out. It is the only writer of an attempt's records.

mod attempt;
mod checkpoints;
mod late;
mod link;
mod live;
mod notify;
mod record;
mod recover;
mod requests;
mod server;
mod site;

use crate::machine::hostlist;
use crate::plan::{Plan, SCHEMA};
use crate::rank::orphans;
use crate::store::RunDir;
use crate::store::checkpoints::search;
use crate::store::claim::{Claim, Owner, claim};
use crate::store::identity::Process;
use crate::store::journal::{self, Entry, Event as Entry_, Journal};
use crate::supervise::classify::{Request, Status};
use crate::supervise::core::{Action, Choice, Claimed, Core, Event, Setup, Timing};
use crate::supervise::verdict::Outcome;
use anyhow::{Context, ensure};
use attempt::Site;
use haul_runtime::contract::checkpoint::Point;
use live::Live;
use requests::{Signals, closed};
use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long the last words of a dead node are waited for.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often the control directory and pointer files are looked at.
const POLL: Duration = Duration::from_millis(200);

/// What `haul supervise` is told.
#[derive(Debug, Clone)]
pub struct Options {
    pub run_dir: PathBuf,
    pub slot: u32,
    /// The scheduler's id of this job; absent when started by hand.
    pub job: Option<String>,
    /// How often the scheduler has started this job again.
    pub restart: u32,
    /// Unix seconds of the time limit.
    pub job_end: Option<u64>,
    pub timing: Timing,
}

/// How supervision ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nothing was to be done here, and why.
    Left(String),
    Ended {
        outcome: Outcome,
        words: String,
    },
}

/// Supervises the job of a slot to its end.
pub fn run(options: Options) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    runtime.block_on(async { Shell::open(options)?.supervise().await })
}

/// To the job's output; nothing to do when it is gone.
fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "haul: {words}");
}

struct Shell {
    site: Site,
    options: Options,
    journal: Journal,
    core: Core,
    started: Instant,
    live: Option<Live>,
    /// Children that are not ours to end: those of the job script.
    strangers: Vec<i32>,
    /// Control files that have been obeyed.
    obeyed: BTreeSet<String>,
    polled: Instant,
    /// Last line of the log of the rank that the newest verdict names.
    said: Option<String>,
    ended: Option<End>,
    inputs: (mpsc::Sender<Launcher>, mpsc::Receiver<Launcher>),
    news: (mpsc::Sender<Said>, mpsc::Receiver<Said>),
}

/// News of an attempt's port.
type Said = (u32, server::News);

/// The end of a launcher.
#[derive(Debug, Clone, Copy)]
struct Launcher {
    attempt: u32,
    index: usize,
    status: Status,
}

impl Shell {
    fn open(options: Options) -> anyhow::Result<Shell> {
        let path = std::fs::canonicalize(&options.run_dir)
            .with_context(|| format!("cannot find the run {}", options.run_dir.display()))?;
        let run = RunDir::new(path);
        let plan_file = run.plan(options.slot);
        let text = std::fs::read(&plan_file)
            .with_context(|| format!("cannot read {}", plan_file.display()))?;
        let plan: Plan = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no plan", plan_file.display()))?;
        ensure!(
            plan.schema == SCHEMA,
            "{} has schema {:?}; this version reads {SCHEMA:?}",
            plan_file.display(),
            plan.schema
        );
        ensure!(plan.world() > 0, "{} plans no rank", plan_file.display());
        let strangers = orphans::children()
            .into_iter()
            .map(|(pid, _)| pid)
            .collect();
        orphans::inherit()?;
        let journal = Journal::open(&run, "supervisor")?;
        let nodes = site::Nodes::of(&plan)?;
        // What tells no end of the job gets one from the plan.
        let job_end = options.job_end.or_else(|| {
            let limit = plan.job.walltime_seconds.filter(|_| nodes.srun)?;
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            Some(now.ok()?.as_secs() + limit)
        });
        let site = Site {
            haul: std::env::current_exe().context("cannot find this binary")?,
            run,
            slot: options.slot,
            epoch: journal.epoch(),
            plan,
            nodes,
            job_end,
        };
        let core = Core::new(Setup {
            nodes: (0..site.plan.world())
                .map(|rank| site.node_of(rank))
                .collect(),
            launchers: site.nodes.launchers(),
            failures: site.plan.restart.failures,
            timing: options.timing,
        });
        Ok(Shell {
            site,
            options,
            journal,
            core,
            started: Instant::now(),
            live: None,
            strangers,
            obeyed: BTreeSet::new(),
            polled: Instant::now(),
            said: None,
            ended: None,
            inputs: mpsc::channel(64),
            news: mpsc::channel(256),
        })
    }

    async fn supervise(mut self) -> anyhow::Result<End> {
        let mut signals = Signals::open().context("cannot receive signals")?;
        let claimed = self.claim()?;
        self.handle(Event::Claimed(claimed)).await?;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.core.is_over() {
            tokio::select! {
                Some((attempt, news)) = self.news.1.recv() => self.heard(attempt, news).await?,
                Some(launcher) = self.inputs.1.recv() => self.launcher_ended(launcher).await?,
                _ = tick.tick() => self.tick().await?,
                _ = signals.limit.recv() => {
                    say("the time limit is near, the program is asked to save and leave");
                    self.handle(Event::Request(Request::Limit)).await?;
                }
                _ = signals.terminate.recv() => self.terminated(SignalKind::terminate()).await?,
                _ = signals.interrupt.recv() => self.terminated(SignalKind::interrupt()).await?,
                _ = signals.hangup.recv() => {}
            }
        }
        Ok(self.ended.unwrap_or(End::Left("nothing was done".into())))
    }

    /// The first act: at most one job of a slot ever launches.
    fn claim(&mut self) -> anyhow::Result<Claimed> {
        let (slot, restart) = (self.options.slot, self.options.restart);
        let process = Process::own().context("cannot read /proc/self/stat")?;
        let job = self
            .options
            .job
            .clone()
            .unwrap_or_else(|| format!("pid {} on {}", process.pid, process.host));
        let owner = Owner {
            job: job.clone(),
            restart,
            epoch: self.site.epoch,
            process,
        };
        if let Claim::Double(other) = claim(&self.site.run, slot, &owner)? {
            let of = other.map(|owner| owner.job);
            let words = match &of {
                Some(of) => format!("job {job} is a double of job {of}, which owns slot {slot}"),
                None => format!("slot {slot} is taken by an unknown owner, job {job} leaves"),
            };
            self.journal.append(Entry_::Double { slot, job, of })?;
            return Ok(Claimed::Leave(words));
        }
        self.journal
            .append(Entry_::Claimed { slot, job, restart })?;
        let entries = self.entries()?;
        if let Some(words) = closed(&entries) {
            return Ok(Claimed::Leave(words));
        }
        self.clear_old_attempts();
        if let Some((at, path)) = recover::recover(&self.site.run, &entries, &self.site.plan)? {
            self.journal.append(Entry_::Saved {
                attempt: at.attempt,
                step: at.step,
                path,
            })?;
        }
        Ok(Claimed::Won)
    }

    fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        let (entries, damaged) = journal::read(&self.site.run)?;
        if damaged > 0 {
            say(&format!(
                "{damaged} lines of the journal are damaged and left out"
            ));
        }
        Ok(entries)
    }

    /// Private directories of ranks whose supervisor and launchers were killed; their progress lines are kept.
    fn clear_old_attempts(&self) {
        for attempt in self.site.run.numbers("attempts") {
            let judged = self.site.run.attempt(attempt).join("verdict.json").exists();
            if let (false, Ok(secret)) = (
                judged,
                crate::rank::placement::secret(&self.site.run, attempt),
            ) {
                late::gather(&self.site.run, attempt, &secret, self.site.plan.world());
            }
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Gives the event to the core and carries out what it says, and what follows from that.
    async fn handle(&mut self, event: Event) -> anyhow::Result<()> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.core.step(self.now(), event) {
                events.extend(self.carry_out(action).await?);
            }
        }
        Ok(())
    }

    async fn carry_out(&mut self, action: Action) -> anyhow::Result<Vec<Event>> {
        match action {
            Action::Choose => return Ok(vec![self.choose()]),
            Action::Pause { time } => say(&format!(
                "failed as before; the next attempt starts in {} s",
                time.as_secs_f64()
            )),
            Action::Launch { attempt, parent } => return self.launch(attempt, parent).await,
            Action::TellAll { tell, .. } => {
                if let Some(live) = &self.live {
                    live.tell_all(tell);
                }
            }
            Action::TellRank { rank, tell, .. } => {
                if let Some(live) = &self.live {
                    live.tell(rank, tell);
                }
            }
            Action::KillLaunchers { .. } => {
                if let Some(live) = &mut self.live {
                    live.kill_launchers(self.site.nodes.srun);
                }
            }
            Action::MarkUnreadable { at, mut words } => {
                if let Some(said) = self.said.take() {
                    words = format!("{words}: {said}");
                }
                say(&format!(
                    "checkpoint of attempt {}, step {} is not used again: {words}",
                    at.attempt, at.step
                ));
                self.journal
                    .append(Entry_::Unreadable { at, reason: words })?;
            }
            Action::Judge { attempt, verdict } => self.judge(attempt, verdict)?,
            Action::Leave { words } => {
                say(&words);
                self.ended = Some(End::Left(words));
            }
            Action::Finish { outcome, mut words } => {
                self.live = None;
                late::merge_all(&self.site.run, self.site.plan.world())?;
                say(&words);
                if let Err(more) = self.link(outcome) {
                    words.push_str(&more);
                    self.journal.append(Entry_::Finished {
                        outcome,
                        words: words.clone(),
                    })?;
                    self.notify(outcome, &words).await?;
                }
                self.ended = Some(End::Ended { outcome, words });
            }
        }
        Ok(Vec::new())
    }

    /// The newest readable checkpoint of the lineage, and a number for the attempt.
    fn choose(&mut self) -> Event {
        match self.try_choose() {
            Ok((attempt, choice)) => Event::Chosen { attempt, choice },
            Err(error) => Event::Chosen {
                attempt: 0,
                choice: Choice::Failed(format!("the next attempt cannot be prepared: {error:#}")),
            },
        }
    }

    fn try_choose(&mut self) -> anyhow::Result<(u32, Choice)> {
        let entries = self.entries()?;
        late::merge_all(&self.site.run, self.site.plan.world())?;
        let found = search(&self.site.run, &entries, None);
        for (at, reason) in &found.refused {
            say(&format!(
                "checkpoint of attempt {}, step {} is refused: {reason}",
                at.attempt, at.step
            ));
            self.journal.append(Entry_::Unreadable {
                at: *at,
                reason: reason.clone(),
            })?;
        }
        let choice = match found.newest {
            Some(at) => Choice::From(at),
            None if found.existed => {
                let reasons: Vec<String> = found
                    .refused
                    .iter()
                    .map(|(at, reason)| {
                        format!("attempt {}, step {}: {reason}", at.attempt, at.step)
                    })
                    .collect();
                let told = match reasons.is_empty() {
                    true => format!(
                        "those in {} were refused before, are incomplete, or are of attempts that the journal does not know",
                        self.site.run.path().join("checkpoints").display()
                    ),
                    false => reasons.join("; "),
                };
                return Ok((
                    0,
                    Choice::AllUnreadable(format!(
                        "no checkpoint can be read, and starting from nothing would lose the run's work: {told}"
                    )),
                ));
            }
            None => Choice::Fresh,
        };
        Ok((self.site.reserve()?, choice))
    }

    async fn launch(&mut self, attempt: u32, parent: Option<Point>) -> anyhow::Result<Vec<Event>> {
        self.journal.append(Entry_::Attempt {
            attempt,
            slot: self.options.slot,
            parent,
        })?;
        let nodes = self.site.nodes.names.clone();
        let launchers = self.site.nodes.launchers().len();
        let fail = |launcher: usize, words: &str| {
            [
                Event::LaunchFailed {
                    attempt,
                    launcher,
                    words: words.to_owned(),
                },
                Event::LauncherGone {
                    attempt,
                    launcher,
                    status: Status::Code(1),
                },
            ]
        };
        let prepared = match self
            .site
            .prepare(attempt, parent, self.news.0.clone())
            .await
        {
            Ok(prepared) => prepared,
            Err(error) => {
                let words = format!("{error:#}");
                return Ok((0..launchers).flat_map(|i| fail(i, &words)).collect());
            }
        };
        let mut live = match Live::new(&self.site, attempt, parent, prepared) {
            Ok(live) => live,
            Err(error) => {
                let words = format!("{error:#}");
                return Ok((0..launchers).flat_map(|i| fail(i, &words)).collect());
            }
        };
        let mut events = Vec::new();
        for node in 0..launchers {
            match live.start_launcher(&self.site, node, self.inputs.0.clone()) {
                Ok(()) => {}
                Err(error) => events.extend(fail(node, &format!("{error:#}"))),
            }
        }
        self.live = Some(live);
        let from = parent.map_or(String::new(), |at| {
            format!(
                ", from the checkpoint of attempt {}, step {}",
                at.attempt, at.step
            )
        });
        let world = self.site.plan.world();
        say(&format!(
            "attempt {attempt}: {world} {} on {}{from}",
            if world == 1 { "rank" } else { "ranks" },
            hostlist::fold(&nodes)
        ));
        self.journal.append(Entry_::Launched {
            attempt,
            nodes,
            world,
        })?;
        Ok(events)
    }

    async fn heard(&mut self, attempt: u32, news: server::News) -> anyhow::Result<()> {
        let Some(live) = self.live.as_mut().filter(|live| live.attempt == attempt) else {
            return Ok(());
        };
        let events = live.heard(&self.site, &mut self.journal, news)?;
        for event in events {
            self.handle(event).await?;
        }
        Ok(())
    }

    async fn launcher_ended(&mut self, ended: Launcher) -> anyhow::Result<()> {
        let Launcher {
            attempt,
            index,
            status,
        } = ended;
        let Some(live) = self.live.as_mut().filter(|live| live.attempt == attempt) else {
            return Ok(());
        };
        live.launchers.remove(&index);
        if status != Status::Code(0) {
            // It had no time to end what it started, so we inherit that.
            let mut keep = self.strangers.clone();
            keep.extend(live.launchers.values());
            if !orphans::sweep(&keep) {
                say("some processes of a dead node cannot be ended");
            }
        }
        // All of the node are dead, so their connections end; what they said before counts.
        let node = match self.site.nodes.srun {
            true => None,
            false => self.site.nodes.names.get(index).cloned(),
        };
        let until = tokio::time::Instant::now() + FAREWELL;
        while self
            .live
            .as_ref()
            .is_some_and(|live| live.hears_from(node.as_deref()))
        {
            match tokio::time::timeout_at(until, self.news.1.recv()).await {
                Ok(Some((attempt, news))) => self.heard(attempt, news).await?,
                _ => break,
            }
        }
        if let Some(live) = self.live.as_mut().filter(|live| live.launchers.is_empty()) {
            let events = live.last_look(&self.site, &mut self.journal)?;
            for event in events {
                self.handle(event).await?;
            }
        }
        self.handle(Event::LauncherGone {
            attempt,
            launcher: index,
            status,
        })
        .await
    }

    fn judge(
        &mut self,
        attempt: u32,
        mut verdict: crate::supervise::verdict::Verdict,
    ) -> anyhow::Result<()> {
        self.live = None;
        record::judge(&self.site.run, attempt, &mut verdict)?;
        // The verdict's words may hold it, then without the rank at its begin.
        let said = |line: &&String| {
            let rest = line
                .split_once(": ")
                .map_or(line.as_str(), |(_, rest)| rest);
            !verdict.words.contains(rest)
        };
        self.said = verdict.log.last().filter(said).cloned();
        say(&format!("attempt {attempt}: {}", verdict.words));
        self.journal.append(Entry_::Judged { attempt, verdict })?;
        Ok(())
    }

    async fn tick(&mut self) -> anyhow::Result<()> {
        if let Some(live) = &mut self.live {
            live.tick(self.options.timing.silence)?;
        }
        if self.polled.elapsed() >= POLL {
            self.polled = Instant::now();
            if let Some(live) = &mut self.live {
                let events = live.look_for_pointer(&self.site, &mut self.journal)?;
                for event in events {
                    self.handle(event).await?;
                }
            }
            for event in self.requests() {
                self.handle(event).await?;
            }
        }
        self.handle(Event::Tick).await
    }
}
