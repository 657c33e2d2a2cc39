//! What an attempt left behind whose supervisor was killed: late progress lines, a checkpoint nobody has committed.

use super::checkpoints::{self, Foreign};
use super::late;
use crate::plan::{Plan, Program};
use crate::store::RunDir;
use crate::store::journal::{Entry, Event};
use haul_runtime::contract::checkpoint::Point;

/// A checkpoint that was committed here, with the name its program gave it.
pub(super) type Committed = (Point, String);

/// Completes the records of the newest attempt if its supervisor has not judged it. Ranks go on for a while without
/// a supervisor and may save, so their steps up to there belong to the run's history.
pub(super) fn recover(
    run: &RunDir,
    journal: &[Entry],
    plan: &Plan,
) -> anyhow::Result<Option<Committed>> {
    let attempts = journal.iter().filter_map(|entry| match &entry.event {
        Event::Attempt {
            attempt, parent, ..
        } => Some((entry.epoch, *attempt, *parent)),
        _ => None,
    });
    let Some((_, attempt, parent)) = attempts.max_by_key(|(epoch, attempt, _)| (*epoch, *attempt))
    else {
        return Ok(None);
    };
    if run.attempt(attempt).join("verdict.json").exists() {
        return Ok(None);
    }
    let last_step = late::merge(run, attempt, plan.world())?;
    if plan.program == Program::Bundled {
        return Ok(None);
    }
    let Some(path) = checkpoints::pointer(&run.checkpoints(attempt)) else {
        return Ok(None);
    };
    let Some(step) = checkpoints::step_in(&path).or(last_step) else {
        return Ok(None);
    };
    let at = Point { attempt, step };
    if checkpoints::is_committed(run, at) {
        return Ok(None);
    }
    let foreign = Foreign {
        at,
        path: &path,
        parent,
        fingerprint: &plan.fingerprint,
    };
    Ok(match checkpoints::commit(run, &foreign) {
        Ok(()) => Some((at, path)),
        Err(reason) => {
            super::say(&format!(
                "the checkpoint {path} of attempt {attempt} does not count: {reason}"
            ));
            None
        }
    })
}
