//! Use case: makes the directory of a run and submits its first job. Returns at once; the run goes on without the submitter.

use super::view::{scheduler, token};
use crate::plan::Plan;
use crate::render::JobContext;
use crate::scheduler::{Request, SubmitError};
use crate::store::identity::Process;
use crate::store::journal::{Event, Journal};
use crate::store::publish::{Published, publish, sync_directory};
use crate::store::{Root, RunDir, StoreError, binary, select, unfinished};
use crate::supervise::submission::{Action, Event as Said, Known, Outcome, Submission};
use anyhow::{Context, bail};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File of a slot that names the binary its job executes.
pub(super) const BINARY: &str = "binary";

/// Makes the text of job.sh.
pub type Script<'a> = &'a dyn Fn(&Plan, &JobContext) -> anyhow::Result<String>;

/// What is submitted.
pub struct Order<'a> {
    pub root: Root,
    pub plan: &'a Plan,
    /// The recipe as written.
    pub recipe: &'a [u8],
    pub resolved: &'a str,
    /// What [`super::provenance`] tells of the caller.
    pub provenance: serde_json::Value,
    /// The binary that the jobs of the run execute a copy of.
    pub binary: &'a Path,
    pub script: Script<'a>,
}

/// A run that was submitted, or a submission whose outcome is not clear.
#[derive(Debug)]
pub struct Submitted {
    pub run: RunDir,
    pub slot: u32,
    pub outcome: Outcome,
}

/// Makes the run and submits slot 1.
pub fn submit(order: &Order) -> anyhow::Result<Submitted> {
    if order.plan.machine.here && std::env::var_os("SLURM_JOB_NODELIST").is_none() {
        bail!(
            "`--here` runs in an allocation that you hold, and there is none: `salloc --nodes={} --exclusive` gets one; nothing was made",
            order.plan.job.nodes
        );
    }
    if order.plan.machine.is_slurm() && !has("sbatch") {
        bail!(
            "machine {} is run by Slurm, and there is no `sbatch` here: submit on a login node of it; nothing was made (`haul render` shows its scripts)",
            order.plan.machine.profile
        );
    }
    for directory in [order.root.path(), &order.root.bins()] {
        unfinished::sweep(directory);
    }
    let haul = binary::keep(&order.root, order.binary)
        .context("cannot keep a copy of the binary in the run root")?;
    let mut provenance = order.provenance.clone();
    provenance["binary"] = haul.display().to_string().into();
    let provenance = serde_json::to_vec_pretty(&provenance)?;
    let run = select::create(&order.root, &order.plan.name, |fresh, run| {
        publish(&fresh.recipe(), order.recipe)?;
        publish(&fresh.resolved(), order.resolved.as_bytes())?;
        publish(&fresh.provenance(), &provenance)?;
        open(fresh, 1)?;
        write(fresh, run, 1, order.plan, &haul, order.script)
    })?;
    let mut journal = Journal::open(&run, "submitter")?;
    journal.append(Event::Created {
        name: order.plan.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        host: host(),
    })?;
    let outcome = drive(&run, 1, order.plan, &haul, &mut journal, Known::Nothing)?;
    Ok(Submitted {
        run,
        slot: 1,
        outcome,
    })
}

/// Makes the directory of a slot with its submitter in it, at once and exclusively: false when somebody was first.
pub fn open(run: &RunDir, slot: u32) -> anyhow::Result<bool> {
    let jobs = run.path().join("jobs");
    let own = Process::own().context("cannot read /proc/self/stat")?;
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    let fresh = jobs.join(format!(".{slot}.{}-{nanos:x}.tmp", own.pid));
    std::fs::create_dir_all(&fresh).map_err(StoreError::io("create", &fresh))?;
    publish(&fresh.join("submitter-1"), &serde_json::to_vec(&own)?)?;
    // A directory that is not empty cannot be renamed over, and a slot never is empty.
    match std::fs::rename(&fresh, run.job(slot)) {
        Ok(()) => {
            sync_directory(&jobs)?;
            Ok(true)
        }
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists
            ) =>
        {
            let _ = std::fs::remove_dir_all(&fresh);
            Ok(false)
        }
        Err(source) => Err(StoreError::io("create", run.job(slot))(source).into()),
    }
}

/// Becomes the submitter of a slot whose submitter is dead, exclusively: false when somebody else was first.
pub fn take_over(run: &RunDir, slot: u32) -> anyhow::Result<bool> {
    let own = Process::own().context("cannot read /proc/self/stat")?;
    let number = newest_submitter(run, slot) + 1;
    let path = run.job(slot).join(format!("submitter-{number}"));
    Ok(publish(&path, &serde_json::to_vec(&own)?)? == Published::Here)
}

/// Who submits a slot, or did last.
pub fn submitter(run: &RunDir, slot: u32) -> Option<Process> {
    let number = newest_submitter(run, slot);
    let path = run.job(slot).join(format!("submitter-{number}"));
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// The highest n of the files `submitter-<n>`; 0 when there is none.
fn newest_submitter(run: &RunDir, slot: u32) -> u32 {
    (1..)
        .take_while(|n| run.job(slot).join(format!("submitter-{n}")).exists())
        .last()
        .unwrap_or(0)
}

/// Writes what the slot's job needs; what stands there already stays.
pub fn prepare(
    run: &RunDir,
    slot: u32,
    plan: &Plan,
    haul: &Path,
    script: Script,
) -> anyhow::Result<()> {
    write(run, run, slot, plan, haul, script)
}

/// The same into `at`, which becomes `run`.
fn write(
    at: &RunDir,
    run: &RunDir,
    slot: u32,
    plan: &Plan,
    haul: &Path,
    script: Script,
) -> anyhow::Result<()> {
    let context = JobContext {
        haul: haul.to_path_buf(),
        run_dir: run.path().to_path_buf(),
        slot,
        token: token(run, slot),
    };
    let name = haul.file_name().unwrap_or_default().to_string_lossy();
    publish(&at.job(slot).join(BINARY), name.as_bytes())?;
    publish(&at.plan(slot), &serde_json::to_vec_pretty(plan)?)?;
    let text = script(plan, &context)?;
    publish(&at.job(slot).join("job.sh"), text.as_bytes())?;
    std::fs::create_dir_all(at.control()).map_err(StoreError::io("create", at.control()))?;
    Ok(())
}

/// Carries the submission protocol out, from what is known of the slot to its end.
pub fn drive(
    run: &RunDir,
    slot: u32,
    plan: &Plan,
    haul: &Path,
    journal: &mut Journal,
    known: Known,
) -> anyhow::Result<Outcome> {
    let scheduler = scheduler(&run.root(), Some(&plan.machine), haul);
    let name = token(run, slot);
    let request = Request::new(
        name.clone(),
        run.job(slot).join("job.sh"),
        run.job(slot),
        plan.job.walltime_seconds.map(|seconds| seconds as f64),
    );
    let (mut submission, mut action) = Submission::begin(known);
    loop {
        let said = match action {
            Action::Done(outcome) => return Ok(outcome),
            Action::JournalIntent => {
                let token = name.clone();
                journal.append(Event::Intent { slot, token })?;
                Said::Journalled
            }
            Action::JournalSubmitted(job) => {
                journal.append(Event::Submitted { slot, job })?;
                Said::Journalled
            }
            Action::JournalRefused(reason) => {
                journal.append(Event::Refused { slot, reason })?;
                Said::Journalled
            }
            Action::Submit => match scheduler.submit(&request) {
                Ok(job) => Said::Accepted(job),
                Err(SubmitError::Refused(reason)) => Said::Refused(reason),
                Err(SubmitError::Ambiguous(reason)) => Said::Unclear(reason),
            },
            Action::LookUp => match scheduler.look_up(&name) {
                Ok(jobs) => Said::Found(jobs),
                Err(error) => Said::CannotLookUp(error.to_string()),
            },
            Action::Wait(times) => {
                std::thread::sleep(Duration::from_millis(250) * times);
                Said::Waited
            }
        };
        action = submission.step(said);
    }
}

/// The copy of the binary that the newest job of a run executes. By its name in the root, so that a root may be moved.
pub fn own_binary(run: &RunDir) -> anyhow::Result<PathBuf> {
    let slots = run.numbers("jobs");
    let name = slots.iter().rev().find_map(|slot| {
        let name = std::fs::read_to_string(run.job(*slot).join(BINARY)).ok()?;
        Some(name.trim().to_owned())
    });
    let name = name.with_context(|| format!("no job of {} names its binary", run.id()))?;
    let path = run.root().bin(&name);
    if !path.exists() {
        bail!(
            "the run's own binary {} is gone; `haul resume --upgrade` goes on with this one",
            path.display()
        );
    }
    Ok(path)
}

/// Whether a command is on the path.
pub(super) fn has(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(command).exists())
}

fn host() -> String {
    nix::unistd::gethostname().map_or_else(
        |_| String::new(),
        |name| name.to_string_lossy().into_owned(),
    )
}
