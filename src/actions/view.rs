//! A run as it is seen from its files and its scheduler. Runs that are over are kept as one small file each, read again in one look.

use super::progress::{self, Progress};
use super::standing::{Claimed, Facts, Standing, State, judge};
use super::submit::submitter;
use crate::plan::{MachineFacts, Plan, Program};
use crate::scheduler::local::Local;
use crate::scheduler::slurm::Slurm;
use crate::scheduler::slurm::answers::Answers;
use crate::scheduler::slurm::queries::{Wanted, now};
use crate::scheduler::{JobState, Scheduler};
use crate::store::claim::{CLOSED, newest};
use crate::store::identity::Life;
use crate::store::journal::{self, Entry, Event, Verdict};
use crate::store::publish::{cache, is_ours};
use crate::store::{Root, RunDir, StoreError, checkpoints};
use crate::supervise::submission::{self, Known, Slot};
use haul_runtime::contract::Until;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What people and programs are told of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    pub id: String,
    pub state: State,
    pub words: String,
    /// RFC 3339 UTC.
    pub created: Option<String>,
    /// When the run ended, for one that is over.
    pub ended: Option<String>,
    pub slot: u32,
    pub job: Option<String>,
    /// Trained by the program inside the binary.
    pub bundled: bool,
    /// Steps of the whole run, where they are known.
    pub total_steps: Option<u64>,
    pub progress: Progress,
    /// It is over, checkpoints were written and none can be read: a job that resumes it would end at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
}

/// The file that keeps the view of a run that is over; a cache, made again at any time.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Whatever goes on with a run first makes a file in `journal/` or `jobs/`, which changes this.
    changed: [(i64, i64); 2],
    view: View,
}

/// While the record of a run is no older than this, or than a few steps, Slurm is not asked whether it runs.
const BEAT: Duration = Duration::from_secs(15);

/// Everything seen of a run, in detail.
#[derive(Debug, Clone)]
pub struct Seen {
    pub view: View,
    pub entries: Vec<Entry>,
    /// Damaged lines of the journal.
    pub damaged: usize,
    pub job: Option<JobState>,
}

/// The scheduler that the jobs of a plan are under, for runs of `root`; `haul` is the binary that local jobs are kept by.
pub fn scheduler(root: &Root, machine: Option<&MachineFacts>, haul: &Path) -> Box<dyn Scheduler> {
    match machine {
        Some(machine) if machine.is_slurm() => Box::new(slurm(root, machine)),
        _ => Box::new(Local::new(root.clone(), haul.to_path_buf())),
    }
}

/// Slurm, for the user to whom the root belongs.
pub fn slurm(root: &Root, machine: &MachineFacts) -> Slurm {
    let owner = std::fs::metadata(root.path()).map_or_else(
        |_| nix::unistd::getuid(),
        |meta| nix::unistd::Uid::from_raw(meta.uid()),
    );
    let user = nix::unistd::User::from_uid(owner).ok().flatten();
    let user = user.map_or_else(|| owner.to_string(), |user| user.name);
    let floor = Duration::from_secs(machine.poll_floor.unwrap_or_default());
    Slurm::new(root, user, floor)
}

/// [`scheduler`] of a run, for looking and cancelling.
pub fn scheduler_of(run: &RunDir, plan: Option<&Plan>) -> anyhow::Result<Box<dyn Scheduler>> {
    let haul = std::env::current_exe()?;
    Ok(scheduler(
        &run.root(),
        plan.map(|plan| &plan.machine),
        &haul,
    ))
}

/// Calls of Slurm's commands in the last hour, by all who use the root of a run that is under it.
pub fn slurm_calls(run: &RunDir, slot: u32) -> Option<usize> {
    let plan = plan(run, slot)?;
    let slurm = is_slurm(Some(&plan)).then(|| slurm(&run.root(), &plan.machine))?;
    Some(slurm.queries().calls())
}

/// Looks at a run; for one that is over this reads one file.
pub fn view(run: &RunDir) -> Result<View, StoreError> {
    match kept(run) {
        Some(view) => Ok(view),
        None => {
            let changed = changed(run);
            Ok(keep(run, changed, look(run)?))
        }
    }
}

/// Looks at runs of one root: whatever their number, Slurm's commands are asked once each at most.
pub fn views(runs: &[RunDir]) -> Result<Vec<View>, StoreError> {
    let mut views: Vec<Option<View>> = runs.iter().map(kept).collect();
    let mut open = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        if views[at].is_none() {
            open.push((at, changed(run), Gathered::of(run)?));
        }
    }
    let answers = ask(open.iter().map(|(at, _, gathered)| (&runs[*at], gathered)));
    for (at, changed, gathered) in open {
        let seen = gathered.seen(&runs[at], answers.as_ref())?;
        views[at] = Some(keep(&runs[at], changed, seen));
    }
    Ok(views.into_iter().flatten().collect())
}

fn summary(run: &RunDir) -> PathBuf {
    run.path().join("summary.json")
}

/// What was kept of a run that is over and has not gone on.
fn kept(run: &RunDir) -> Option<View> {
    let text = std::fs::read(summary(run)).ok()?;
    let kept: Kept = serde_json::from_slice(&text).ok()?;
    (Some(kept.changed) == changed(run) && kept.view.id == run.id()).then_some(kept.view)
}

/// Keeps what was seen of a run that is over; `before` is as old as the look.
fn keep(run: &RunDir, before: Option<[(i64, i64); 2]>, seen: Seen) -> View {
    let over = seen.view.state.is_over() && seen.view.state != State::Planned;
    let job_over = matches!(seen.job, Some(JobState::Ended(_)) | None);
    // Somebody who is about to go on with the run has taken its newest slot.
    let left_alone = submitter(run, seen.view.slot).is_none_or(|p| p.life() != Life::Alive);
    if let (true, true, true, Some(changed)) = (over, job_over, left_alone, before)
        && is_ours(run.path())
    {
        let kept = Kept {
            changed,
            view: seen.view.clone(),
        };
        // A root that cannot be written to is only slower.
        let _ = serde_json::to_vec(&kept).map(|text| cache(&summary(run), &text));
    }
    seen.view
}

fn changed(run: &RunDir) -> Option<[(i64, i64); 2]> {
    let of = |path: PathBuf| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.mtime(), meta.mtime_nsec()))
    };
    Some([of(run.journal())?, of(run.path().join("jobs"))?])
}

/// Looks at a run in full.
pub fn look(run: &RunDir) -> Result<Seen, StoreError> {
    let gathered = Gathered::of(run)?;
    let answers = ask([(run, &gathered)].into_iter());
    gathered.seen(run, answers.as_ref())
}

/// What the files of a run tell, before its scheduler is asked.
struct Gathered {
    /// Without the job.
    facts: Facts,
    damaged: usize,
    plan: Option<Plan>,
    /// The job that writes its record at this moment, so that Slurm need not be asked.
    beating: Option<String>,
}

impl Gathered {
    fn of(run: &RunDir) -> Result<Gathered, StoreError> {
        let (entries, damaged) = journal::read(run)?;
        let slot = run.numbers("jobs").last().copied().unwrap_or(1);
        let plan = plan(run, slot);
        let claim = match newest(run, slot) {
            None => Claimed::Nobody,
            Some(None) => Claimed::Unreadable,
            Some(Some(owner)) if owner.job == CLOSED => Claimed::Closed,
            Some(Some(owner)) => Claimed::Owner {
                life: owner.process.life(),
                job: owner.job,
            },
        };
        let mut progress = progress::newest(run);
        if plan.as_ref().is_some_and(|p| p.program == Program::Bundled) {
            progress.saving_step = progress::saving(run, &progress);
        }
        let beating = match &claim {
            Claimed::Owner {
                job,
                life: Life::Unknown,
            } if is_slurm(plan.as_ref()) && !has_ended(&entries) && beats(run, &progress) => {
                Some(job.clone())
            }
            _ => None,
        };
        let facts = Facts {
            slot,
            submitter: submitter(run, slot).map(|p| p.life()),
            job: None,
            claim,
            request: request(run),
            progress,
            total_steps: plan.as_ref().and_then(total_steps),
            entries,
        };
        Ok(Gathered {
            facts,
            damaged,
            plan,
            beating,
        })
    }

    fn seen(mut self, run: &RunDir, answers: Option<&Answers>) -> Result<Seen, StoreError> {
        let mut facts = self.facts;
        facts.job = match self.beating {
            Some(job) => Some((job, JobState::Running)),
            None => {
                let jobs = jobs(run, facts.slot, self.plan.as_ref(), &facts.entries, answers);
                owner_or_newest(jobs, &facts.claim)
            }
        };
        if matches!(facts.job, Some((_, JobState::Ended(_)))) {
            // Its supervisor may have written its last words between the two looks.
            (facts.entries, self.damaged) = journal::read(run)?;
        }
        let Standing { state, words } = judge(&facts);
        let time = |entry: Option<&Entry>| entry.map(|e| e.time.clone());
        let finished = facts
            .entries
            .iter()
            .rfind(|entry| matches!(entry.event, Event::Finished { .. }));
        let over = state.is_over() && state != State::Finished;
        let view = View {
            id: run.id(),
            unreadable: over && {
                let found = checkpoints::search(run, &facts.entries, None);
                found.existed && found.newest.is_none()
            },
            state,
            words,
            created: time(facts.entries.first()),
            ended: time(finished.or(facts.entries.last())).filter(|_| state.is_over()),
            slot: facts.slot,
            job: facts.job.as_ref().map(|(job, _)| job.clone()),
            bundled: self
                .plan
                .is_some_and(|plan| plan.program == Program::Bundled),
            total_steps: facts.total_steps,
            progress: facts.progress,
        };
        Ok(Seen {
            view,
            entries: facts.entries,
            damaged: self.damaged,
            job: facts.job.map(|(_, state)| state),
        })
    }
}

/// Asks Slurm about the runs that are under it, once for all; absent where none is.
fn ask<'a>(runs: impl Iterator<Item = (&'a RunDir, &'a Gathered)>) -> Option<Answers> {
    let mut wanted = Vec::new();
    let mut asker: Option<(&RunDir, &MachineFacts)> = None;
    for (run, gathered) in runs {
        let Some(machine) = gathered.plan.as_ref().map(|plan| &plan.machine) else {
            continue;
        };
        if !machine.is_slurm() || gathered.beating.is_some() {
            continue;
        }
        // The most careful profile decides how often.
        if asker.is_none_or(|(_, other)| other.poll_floor < machine.poll_floor) {
            asker = Some((run, machine));
        }
        wanted.push(self::wanted(
            run,
            gathered.facts.slot,
            &gathered.facts.entries,
        ));
    }
    let (run, machine) = asker?;
    Some(slurm(&run.root(), machine).answers(&wanted, now()))
}

/// Jobs of a slot, for Slurm.
fn wanted(run: &RunDir, slot: u32, entries: &[Entry]) -> Wanted {
    Wanted {
        token: token(run, slot),
        jobs: journalled(entries, slot),
    }
}

/// Jobs of a slot that the journal names.
fn journalled(entries: &[Entry], slot: u32) -> Vec<String> {
    let jobs = entries.iter().filter_map(|entry| match &entry.event {
        Event::Submitted { slot: s, job } if *s == slot => Some(job.clone()),
        _ => None,
    });
    jobs.collect()
}

/// The plan of a slot; absent when it is not there or of a version that cannot be read.
pub fn plan(run: &RunDir, slot: u32) -> Option<Plan> {
    serde_json::from_slice(&std::fs::read(run.plan(slot)).ok()?).ok()
}

/// Steps of the whole run, where its end is given by steps or tokens.
pub fn total_steps(plan: &Plan) -> Option<u64> {
    match &plan.train_config {
        Some(config) => match config.train.until {
            Until::Steps(steps) => Some(steps),
            Until::Tokens(tokens) => Some(tokens.div_ceil(config.tokens_per_step().max(1))),
            Until::Seconds(_) => None,
        },
        None => plan.values.get("train.until.steps")?.parse().ok(),
    }
}

/// The newest request to end: `cancel` or `stop`.
fn request(run: &RunDir) -> Option<String> {
    let names = std::fs::read_dir(run.control()).ok()?.flatten();
    let words: Vec<String> = names
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.rsplit_once('-')?.1.to_owned())
        })
        .collect();
    let has = |word: &str| words.iter().any(|w| w == word);
    ["cancel", "stop"]
        .into_iter()
        .find(|word| has(word))
        .map(str::to_owned)
}

/// All jobs of a slot that are known: from the journal and under the slot's name; `answers` are Slurm's.
fn jobs(
    run: &RunDir,
    slot: u32,
    plan: Option<&Plan>,
    entries: &[Entry],
    answers: Option<&Answers>,
) -> Vec<(String, JobState)> {
    let mut jobs = journalled(entries, slot);
    let name = token(run, slot);
    if let (true, Some(answers)) = (is_slurm(plan), answers) {
        if jobs.is_empty() {
            jobs = answers.named(&name);
        }
        let told = |job: String| {
            let state = answers.state(&name, &job);
            (job, state)
        };
        return jobs.into_iter().map(told).collect();
    }
    let scheduler = match scheduler_of(run, plan) {
        Ok(scheduler) => scheduler,
        Err(error) => {
            let unknown = JobState::Unknown(error.to_string());
            return jobs.into_iter().map(|j| (j, unknown.clone())).collect();
        }
    };
    for job in scheduler.look_up(&name).unwrap_or_default() {
        if !jobs.contains(&job) {
            jobs.push(job);
        }
    }
    let states = scheduler.states(&name, &jobs);
    jobs.into_iter()
        .filter_map(|job| Some((job.clone(), states.get(&job)?.clone())))
        .collect()
}

fn is_slurm(plan: Option<&Plan>) -> bool {
    plan.is_some_and(|plan| plan.machine.is_slurm())
}

/// Whether the newest supervisor has told the end of the run.
pub fn has_ended(entries: &[Entry]) -> bool {
    let told = entries.iter().rev().find_map(|entry| match entry.event {
        Event::Finished { .. } => Some(true),
        Event::Claimed { .. } | Event::Reopened { .. } => Some(false),
        _ => None,
    });
    told.unwrap_or(false)
}

/// Whether the newest attempt has written a metrics line lately, measured by its steps. A clock that differs costs a
/// question to Slurm, or delays one.
fn beats(run: &RunDir, progress: &Progress) -> bool {
    let step = Duration::try_from_secs_f64(progress.step_seconds.unwrap_or_default());
    let beat = (step.unwrap_or_default() * 3).clamp(BEAT, BEAT * 20);
    let newest = run.numbers("attempts").last().copied();
    let changed = newest.and_then(|attempt| {
        std::fs::metadata(run.metrics(attempt))
            .ok()?
            .modified()
            .ok()
    });
    changed.is_some_and(|at| at.elapsed().unwrap_or_default() < beat)
}

/// The job of the slot's owner, else the newest that lives, else the newest.
fn owner_or_newest(
    mut jobs: Vec<(String, JobState)>,
    claim: &Claimed,
) -> Option<(String, JobState)> {
    if let Claimed::Owner { job: owner, .. } = claim
        && let Some(at) = jobs.iter().position(|(job, _)| job == owner)
    {
        return Some(jobs.swap_remove(at));
    }
    let live = jobs
        .iter()
        .rposition(|(_, state)| !matches!(state, JobState::Ended(_)));
    let at = live.or(jobs.len().checked_sub(1))?;
    Some(jobs.swap_remove(at))
}

/// The name of a slot's job.
pub fn token(run: &RunDir, slot: u32) -> String {
    format!("haul-{}-{slot}", run.id())
}

/// What the journal knows of a slot's submission.
pub fn known(entries: &[Entry], slot: u32) -> Known {
    let mut known = Known::Nothing;
    for entry in entries {
        known = match (&entry.event, known) {
            (Event::Submitted { slot: s, job }, _) if *s == slot => Known::Submitted(job.clone()),
            (Event::Refused { slot: s, reason }, Known::Nothing | Known::Intent) if *s == slot => {
                Known::Refused(reason.clone())
            }
            (Event::Intent { slot: s, .. }, Known::Nothing) if *s == slot => Known::Intent,
            (_, known) => known,
        };
    }
    known
}

/// What is seen of all slots by somebody who wants to continue the run.
pub fn slots(run: &RunDir, entries: &[Entry]) -> Vec<Slot> {
    let numbers = run.numbers("jobs");
    let plans: Vec<Option<Plan>> = numbers.iter().map(|number| plan(run, *number)).collect();
    let under_slurm = plans.iter().flatten().rfind(|plan| is_slurm(Some(plan)));
    let answers = under_slurm.map(|plan| {
        let wanted: Vec<Wanted> = numbers.iter().map(|n| wanted(run, *n, entries)).collect();
        slurm(&run.root(), &plan.machine)
            .eager()
            .answers(&wanted, now())
    });
    numbers
        .into_iter()
        .zip(plans)
        .map(|(number, plan)| {
            let states = jobs(run, number, plan.as_ref(), entries, answers.as_ref());
            Slot {
                number,
                known: known(entries, number),
                submitter_alive: submitter(run, number).and_then(|p| match p.life() {
                    Life::Alive => Some(true),
                    Life::Dead => Some(false),
                    Life::Unknown => None,
                }),
                claim: match newest(run, number) {
                    None => submission::Claimed::Nobody,
                    Some(None) => submission::Claimed::Unknown,
                    Some(Some(owner)) if owner.job == CLOSED => submission::Claimed::Closed,
                    Some(Some(owner)) => match owner.process.life() {
                        Life::Alive => submission::Claimed::Alive,
                        Life::Dead => submission::Claimed::Dead,
                        Life::Unknown => submission::Claimed::Unknown,
                    },
                },
                job: together(&states),
            }
        })
        .collect()
}

fn together(states: &[(String, JobState)]) -> submission::Job {
    let any = |is: fn(&JobState) -> bool| states.iter().any(|(_, state)| is(state));
    let unknown = states.iter().find_map(|(_, state)| match state {
        JobState::Unknown(reason) => Some(reason.clone()),
        _ => None,
    });
    if any(|s| {
        matches!(
            s,
            JobState::Running | JobState::Unwatched(_) | JobState::Ending(_)
        )
    }) {
        submission::Job::Running
    } else if any(|s| matches!(s, JobState::Queued | JobState::Waiting(_))) {
        submission::Job::Queued
    } else if let Some(reason) = unknown {
        submission::Job::Unknown(reason)
    } else if states.is_empty() {
        submission::Job::None
    } else {
        submission::Job::Ended
    }
}

/// Numbers of all attempts, in order.
pub fn attempts(entries: &[Entry]) -> impl DoubleEndedIterator<Item = u32> {
    entries.iter().filter_map(|entry| match entry.event {
        Event::Attempt { attempt, .. } => Some(attempt),
        _ => None,
    })
}

/// How the attempts of a run ended, in order.
pub fn verdicts(entries: &[Entry]) -> Vec<(u32, &Verdict)> {
    let judged = entries.iter().filter_map(|entry| match &entry.event {
        Event::Judged { attempt, verdict } => Some((*attempt, verdict)),
        _ => None,
    });
    judged.collect()
}
