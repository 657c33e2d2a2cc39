//! Checkpoints of a run: where they lie, and which one of the lineage is the newest that is whole.

use super::RunDir;
use super::journal::{Entry, Event};
use haul_runtime::contract::checkpoint::{MANIFEST, Manifest, Point};
use haul_runtime::contract::resume::{lineage, newest};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// What the search found.
#[derive(Debug, Default)]
pub struct Found {
    pub newest: Option<Point>,
    /// Newer ones that are refused, with the reason.
    pub refused: Vec<(Point, String)>,
    /// Some checkpoint of the run was complete at some time, of the lineage or of attempts that no journal tells of any more.
    pub existed: bool,
}

/// The newest checkpoint of the lineage whose manifest and sizes are right, or the one of `step` of it.
pub fn search(run: &RunDir, journal: &[Entry], step: Option<u64>) -> Found {
    // The head is the newest attempt of the highest reign; a fenced supervisor's later one is not.
    let mut head: Option<(u64, u32)> = None;
    let mut parents = BTreeMap::new();
    let mut unreadable = Vec::new();
    let mut saved = Vec::new();
    for entry in journal {
        match &entry.event {
            Event::Attempt {
                attempt, parent, ..
            } => {
                head = head.max(Some((entry.epoch, *attempt)));
                parents.insert(*attempt, *parent);
            }
            Event::Unreadable { at, .. } => unreadable.push(*at),
            Event::Saved { attempt, step, .. } => saved.push(Point {
                attempt: *attempt,
                step: *step,
            }),
            _ => {}
        }
    }
    // A lost journal must not make a run begin again: what lies there counts.
    let lies = |attempt: &u32| !points(run, *attempt).is_empty();
    let stray = run.numbers("checkpoints").iter().any(lies);
    let Some((_, head)) = head else {
        return Found {
            existed: stray,
            ..Found::default()
        };
    };
    let ancestors = lineage(head, |attempt| parents.get(&attempt).copied().flatten());
    let mut candidates: Vec<Point> = ancestors
        .iter()
        .flat_map(|ancestor| points(run, ancestor.attempt))
        .collect();
    // Saves that the journal tells of and that are torn now are told; older ones may have been tidied away.
    let told = newest(&saved, &ancestors, &unreadable);
    let torn = |(i, at): &(usize, Point)| *i == 0 || directory(run, *at).exists();
    let told = told.into_iter().enumerate().filter(torn);
    candidates.extend(told.map(|(_, at)| at));
    // What the journal knows and the directory has no more existed as well.
    saved.extend(&candidates);
    saved.extend(&unreadable);
    let mut found = Found {
        existed: stray || !newest(&saved, &ancestors, &[]).is_empty(),
        ..Found::default()
    };
    let wanted = |point: &Point| step.is_none_or(|step| step == point.step);
    for point in newest(&candidates, &ancestors, &unreadable)
        .into_iter()
        .filter(wanted)
    {
        match check(run, point) {
            Ok(()) => {
                found.newest = Some(point);
                break;
            }
            Err(reason) => found.refused.push((point, reason)),
        }
    }
    found
}

/// Checkpoints of an attempt that have a manifest. One without is an unfinished save.
fn points(run: &RunDir, attempt: u32) -> Vec<Point> {
    steps(run, attempt, |directory| directory.join(MANIFEST).exists())
        .map(|step| Point { attempt, step })
        .collect()
}

/// Steps of the directories `step-<s>` of an attempt that `are` so.
fn steps(run: &RunDir, attempt: u32, are: fn(&Path) -> bool) -> impl Iterator<Item = u64> {
    std::fs::read_dir(run.checkpoints(attempt))
        .into_iter()
        .flatten()
        .flatten()
        .filter(move |entry| are(&entry.path()))
        .filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix("step-")?.parse().ok()
        })
}

/// The step that the bundled trainer is saving: its directory stands, its manifest does not yet. One that failed is removed, one
/// that a kill interrupted is of an attempt that is over.
pub fn unfinished(run: &RunDir, attempt: u32) -> Option<u64> {
    steps(run, attempt, |directory| !directory.join(MANIFEST).exists()).max()
}

/// The directory of a checkpoint.
pub fn directory(run: &RunDir, at: Point) -> PathBuf {
    run.checkpoints(at.attempt)
        .join(format!("step-{}", at.step))
}

/// What is told of a checkpoint that was refused.
pub fn refused(at: Point, reason: &str) -> String {
    format!(
        "the checkpoint of step {} (attempt {}) is not used: {reason}",
        at.step, at.attempt
    )
}

/// Checks manifest and sizes; contents are checked by the ranks that load them.
fn check(run: &RunDir, at: Point) -> Result<(), String> {
    let directory = directory(run, at);
    let text = std::fs::read_to_string(directory.join(MANIFEST)).map_err(|e| {
        match (e.kind(), directory.exists()) {
            (ErrorKind::NotFound, true) => "its manifest is missing".to_owned(),
            (ErrorKind::NotFound, false) => "its directory is gone".to_owned(),
            _ => format!("its manifest cannot be read: {e}"),
        }
    })?;
    let manifest =
        Manifest::parse(&text).map_err(|reason| format!("its manifest is refused: {reason}"))?;
    if manifest.point() != at {
        return Err(format!(
            "its manifest is that of attempt {}, step {}",
            manifest.attempt, manifest.step
        ));
    }
    for file in &manifest.files {
        let path = Path::new(&file.path);
        if path
            .components()
            .any(|part| !matches!(part, Component::Normal(_)))
        {
            return Err(format!(
                "its manifest names a file elsewhere: {}",
                file.path
            ));
        }
        match std::fs::metadata(directory.join(path)) {
            Ok(metadata) if metadata.len() == file.bytes => {}
            Ok(metadata) => {
                return Err(format!(
                    "{} has {} bytes, its manifest says {}",
                    file.path,
                    metadata.len(),
                    file.bytes
                ));
            }
            Err(error) => return Err(format!("{} cannot be read: {error}", file.path)),
        }
    }
    Ok(())
}
