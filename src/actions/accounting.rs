//! What Slurm's accounting tells of the jobs of a run: asked for once a job has ended, and kept once it is final.

use super::view::{self, token};
use crate::plan::Plan;
use crate::report::accounting::{Accounting, Accounts};
use crate::scheduler::slurm::parse::Row;
use crate::scheduler::slurm::queries::{Wanted, now};
use crate::store::accounts::{self, Account};
use crate::store::journal::{Entry, Event};
use crate::store::{RunDir, select};
use std::collections::BTreeMap;

/// Seconds after its end in which a requeue may still add a start.
const SETTLES: i64 = 600;

/// The accounts of the run's slots; `over` tells that the job of the newest has ended. Absent for a run that is not under Slurm.
pub fn accounts(run: &RunDir, entries: &[Entry], over: bool) -> Option<Accounts> {
    let plans = plans(run);
    let (newest, plan) = plans.last_key_value()?;
    if !plan.machine.is_slurm() {
        return None;
    }
    let mut known = Accounts::new();
    let mut wanted = BTreeMap::new();
    for slot in plans.keys() {
        if let Some(kept) = accounts::kept(run, *slot) {
            known.insert(*slot, kept);
            continue;
        }
        let jobs = jobs(entries, *slot);
        if (slot < newest || over) && !jobs.is_empty() {
            let token = token(run, *slot);
            wanted.insert(*slot, Wanted { token, jobs });
        }
    }
    // A copy of a run lies somewhere else, where nothing shall be asked for and kept.
    let is_run = select::Id::parse(&run.id()).is_some();
    if !wanted.is_empty() && is_run {
        let all: Vec<Wanted> = wanted.values().cloned().collect();
        let slurm = view::slurm(&run.root(), &plan.machine);
        let (told, _) = slurm.queries().past(&all, now());
        for (slot, wanted) in wanted {
            let rows = wanted.jobs.iter().map(|job| {
                let rows = told.of.get(job).into_iter().flatten();
                rows.filter(|row| row.name == wanted.token).collect()
            });
            if let Some(starts) = ended(rows.collect()) {
                let last = starts.iter().filter_map(|start| start.ended).max();
                if last.is_some_and(|last| last + SETTLES < (now() / 1000) as i64) {
                    accounts::keep(run, slot, &starts);
                }
                known.insert(slot, starts);
            }
        }
    }
    Some(known)
}

/// In figures.
pub fn accounting(run: &RunDir, entries: &[Entry], over: bool) -> Option<Accounting> {
    let accounts = accounts(run, entries, over)?;
    Some(Accounting::of(&plans(run), &accounts))
}

fn plans(run: &RunDir) -> BTreeMap<u32, Plan> {
    let slots = run.numbers("jobs").into_iter();
    slots
        .filter_map(|slot| Some((slot, view::plan(run, slot)?)))
        .collect()
}

/// Jobs that were ever seen for a slot; a double uses nodes too.
fn jobs(entries: &[Entry], slot: u32) -> Vec<String> {
    let mut jobs = Vec::new();
    for entry in entries {
        match &entry.event {
            Event::Submitted { slot: s, job }
            | Event::Claimed { slot: s, job, .. }
            | Event::Double { slot: s, job, .. }
                if *s == slot && !jobs.contains(job) =>
            {
                jobs.push(job.clone());
            }
            _ => {}
        }
    }
    jobs
}

/// The starts of all jobs of a slot, once accounting has told how each ended: it lags.
fn ended(jobs: Vec<Vec<&Row>>) -> Option<Vec<Account>> {
    let is_told = |rows: &Vec<&Row>| rows.last().is_some_and(|row| row.is_over());
    let all = jobs.iter().all(is_told);
    let accounts = jobs.iter().flatten().filter_map(|row| row.account.clone());
    let accounts: Vec<Account> = accounts.collect();
    (all && accounts.iter().all(|account| account.ended.is_some())).then_some(accounts)
}
