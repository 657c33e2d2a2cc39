//! Checkpoints of a run: where they lie, and which one of the lineage is the newest that is whole.

use super::RunDir;
use super::journal::{Entry, Event};
use haul_runtime::contract::checkpoint::{MANIFEST, Manifest, Point};
use haul_runtime::contract::resume::{Ancestor, lineage, newest};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Link beside a foreign checkpoint's manifest that leads to what the program wrote.
pub const LINK: &str = "data";

/// What the search found.
#[derive(Debug, Default)]
pub struct Found {
    pub newest: Option<Point>,
    /// Newer ones that are refused, with the reason.
    pub refused: Vec<(Point, String)>,
    /// Some checkpoint of the run was complete at some time, of the lineage or of attempts that no journal tells of any more.
    pub existed: bool,
}

/// What the journal says of attempts and their checkpoints.
struct Told {
    /// The newest attempt of the highest reign; a fenced supervisor's later one is not.
    head: Option<u32>,
    parents: BTreeMap<u32, Option<Point>>,
    unreadable: Vec<Point>,
    saved: Vec<Point>,
}

impl Told {
    fn by(journal: &[Entry]) -> Told {
        let mut head: Option<(u64, u32)> = None;
        let mut told = Told {
            head: None,
            parents: BTreeMap::new(),
            unreadable: Vec::new(),
            saved: Vec::new(),
        };
        for entry in journal {
            match &entry.event {
                Event::Attempt {
                    attempt, parent, ..
                } => {
                    head = head.max(Some((entry.epoch, *attempt)));
                    told.parents.insert(*attempt, *parent);
                }
                Event::Unreadable { at, .. } => told.unreadable.push(*at),
                Event::Saved { attempt, step, .. } => told.saved.push(Point {
                    attempt: *attempt,
                    step: *step,
                }),
                _ => {}
            }
        }
        told.head = head.map(|(_, attempt)| attempt);
        told
    }

    fn ancestors(&self, head: u32) -> Vec<Ancestor> {
        lineage(head, |attempt| {
            self.parents.get(&attempt).copied().flatten()
        })
    }
}

/// Checkpoints that no resumption needs: all but the `keep` newest of the lineage that are whole. None where no one is whole,
/// and none of attempts that the journal does not know: there a person decides.
pub fn surplus(run: &RunDir, journal: &[Entry], keep: usize) -> Vec<Point> {
    let told = Told::by(journal);
    let Some(head) = told.head else {
        return Vec::new();
    };
    let all: Vec<Point> = told
        .parents
        .keys()
        .flat_map(|attempt| points(run, *attempt))
        .collect();
    let ordered = newest(&all, &told.ancestors(head), &told.unreadable);
    let (mut kept, mut whole) = (Vec::new(), 0);
    for point in ordered {
        if whole == keep.max(1) {
            break;
        }
        // A damaged one that is newer stays as well.
        whole += usize::from(check(run, point).is_ok());
        kept.push(point);
    }
    if whole == 0 {
        return Vec::new();
    }
    all.into_iter()
        .filter(|point| !kept.contains(point))
        .collect()
}

/// The newest checkpoint of the lineage whose manifest and sizes are right, or the one of `step` of it.
pub fn search(run: &RunDir, journal: &[Entry], step: Option<u64>) -> Found {
    let told = Told::by(journal);
    // A lost journal must not make a run begin again: what lies there counts.
    let lies = |attempt: &u32| !points(run, *attempt).is_empty();
    let stray = run.numbers("checkpoints").iter().any(lies);
    let Some(head) = told.head else {
        return Found {
            existed: stray,
            ..Found::default()
        };
    };
    let ancestors = told.ancestors(head);
    let mut candidates: Vec<Point> = ancestors
        .iter()
        .flat_map(|ancestor| points(run, ancestor.attempt))
        .collect();
    // Saves that the journal tells of and that are torn now are told; older ones may have been tidied away.
    let said = newest(&told.saved, &ancestors, &told.unreadable);
    let torn = |(i, at): &(usize, Point)| *i == 0 || directory(run, *at).exists();
    let said = said.into_iter().enumerate().filter(torn);
    candidates.extend(said.map(|(_, at)| at));
    // What the journal knows and the directory has no more existed as well.
    let Told {
        mut saved,
        unreadable,
        ..
    } = told;
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
    without_manifest(run, attempt).max()
}

/// Steps of all saves of an attempt that were not completed.
pub fn without_manifest(run: &RunDir, attempt: u32) -> impl Iterator<Item = u64> {
    steps(run, attempt, |directory| !directory.join(MANIFEST).exists())
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
