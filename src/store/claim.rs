//! Claims: which job owns a slot. A chain of files `claim-<n>`, made by exclusive publication; the newest counts.

use super::StoreError;
use super::identity::{Life, Process};
use super::layout::RunDir;
use super::publish::{Published, publish};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Who claims: the job and the supervisor's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub job: String,
    pub restart: u32,
    pub epoch: u64,
    pub process: Process,
}

/// The outcome of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    Won,
    /// Another job, or another start of it, owns the slot; the owner is absent when its claim is unreadable.
    Double(Option<Owner>),
}

/// Claims `slot` for `owner`: the first place of the chain, or the next one behind a claim of the same job, which was
/// requeued, or started again by a controller that forgot the first time. Any other job is a double, and so is a second
/// supervisor of a start whose first one lives.
pub fn claim(run: &RunDir, slot: u32, owner: &Owner) -> Result<Claim, StoreError> {
    let directory = run.job(slot);
    let place = match chain(&directory).enumerate().last() {
        None => 0,
        Some((place, Some(before)))
            if before.job == owner.job
                && (owner.restart > before.restart || before.process.life() != Life::Alive) =>
        {
            place + 1
        }
        Some((_, other)) => return Ok(Claim::Double(other)),
    };
    let path = directory.join(format!("claim-{place}"));
    let content = serde_json::to_vec(owner).unwrap_or_default();
    Ok(match publish(&path, &content)? {
        Published::Here => Claim::Won,
        Published::Before => Claim::Double(read(&directory, place).flatten()),
    })
}

/// The job of a claim that belongs to no job: the slot is closed.
pub const CLOSED: &str = "closed";

/// Closes a slot: takes the next place of its chain for nobody, so that neither a late job nor a requeue of its owner can claim it.
/// [`Claim::Won`] when it is closed now or was before; else the owner that came in between.
pub fn close(run: &RunDir, slot: u32, process: &Process, epoch: u64) -> Result<Claim, StoreError> {
    let directory = run.job(slot);
    std::fs::create_dir_all(&directory).map_err(StoreError::io("create", &directory))?;
    if let Some(Some(owner)) = newest(run, slot)
        && owner.job == CLOSED
    {
        return Ok(Claim::Won);
    }
    let place = chain(&directory).count();
    let owner = Owner {
        job: CLOSED.into(),
        restart: 0,
        epoch,
        process: process.clone(),
    };
    let content = serde_json::to_vec(&owner).unwrap_or_default();
    Ok(
        match publish(&directory.join(format!("claim-{place}")), &content)? {
            Published::Here => Claim::Won,
            Published::Before => match read(&directory, place).flatten() {
                Some(owner) if owner.job == CLOSED => Claim::Won,
                other => Claim::Double(other),
            },
        },
    )
}

/// The newest claim of a slot: absent when unclaimed, `Some(None)` when it is unreadable (taken by an unknown owner).
pub fn newest(run: &RunDir, slot: u32) -> Option<Option<Owner>> {
    chain(&run.job(slot)).last()
}

/// All claims, in order.
fn chain(directory: &Path) -> impl Iterator<Item = Option<Owner>> {
    (0..).map_while(|place| read(directory, place))
}

fn read(directory: &Path, place: usize) -> Option<Option<Owner>> {
    let path = directory.join(format!("claim-{place}"));
    match std::fs::read(&path) {
        Ok(content) => Some(serde_json::from_slice(&content).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(_) => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_slot_is_claimed_by_nobody_not_even_by_a_requeue_of_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path());
        let own = Process::own().unwrap();
        let owner = |restart| Owner {
            job: "a".into(),
            restart,
            epoch: 1,
            process: own.clone(),
        };
        assert_eq!(close(&run, 1, &own, 2).unwrap(), Claim::Won);
        assert_eq!(close(&run, 1, &own, 3).unwrap(), Claim::Won);
        assert!(matches!(
            claim(&run, 1, &owner(0)).unwrap(),
            Claim::Double(_)
        ));
        std::fs::create_dir_all(run.job(2)).unwrap();
        assert_eq!(claim(&run, 2, &owner(0)).unwrap(), Claim::Won);
        assert_eq!(close(&run, 2, &own, 2).unwrap(), Claim::Won);
        assert!(matches!(
            claim(&run, 2, &owner(1)).unwrap(),
            Claim::Double(_)
        ));
        assert_eq!(newest(&run, 2).unwrap().unwrap().job, CLOSED);
    }

    #[test]
    fn a_slot_has_one_owner_and_only_its_requeue_may_follow() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path());
        std::fs::create_dir_all(run.job(1)).unwrap();
        let owner = |job: &str, restart| Owner {
            job: job.into(),
            restart,
            epoch: 1,
            process: Process::own().unwrap(),
        };
        assert_eq!(newest(&run, 1), None);
        assert_eq!(claim(&run, 1, &owner("a", 0)).unwrap(), Claim::Won);
        assert_eq!(
            claim(&run, 1, &owner("b", 0)).unwrap(),
            Claim::Double(Some(owner("a", 0)))
        );
        assert_eq!(
            claim(&run, 1, &owner("b", 1)).unwrap(),
            Claim::Double(Some(owner("a", 0)))
        );
        assert_eq!(claim(&run, 1, &owner("a", 1)).unwrap(), Claim::Won);
        // The start that lives owns it.
        assert_eq!(
            claim(&run, 1, &owner("a", 1)).unwrap(),
            Claim::Double(Some(owner("a", 1)))
        );
        // Not every start comes as far as its claim.
        let mut dead = owner("a", 3);
        dead.process.start += 1;
        assert_eq!(claim(&run, 1, &dead).unwrap(), Claim::Won);
        // A controller that forgot the start begins to count again.
        assert_eq!(claim(&run, 1, &owner("a", 0)).unwrap(), Claim::Won);
        assert_eq!(newest(&run, 1), Some(Some(owner("a", 0))));
        std::fs::write(run.job(1).join("claim-4"), "torn").unwrap();
        assert_eq!(newest(&run, 1), Some(None));
        assert_eq!(claim(&run, 1, &owner("a", 9)).unwrap(), Claim::Double(None));
    }
}
