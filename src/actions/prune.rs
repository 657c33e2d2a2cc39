//! Use case: what of a run root nobody needs any more, and its removal: old checkpoints and old runs, of runs that are over, and unused binaries.

use super::standing::State;
use super::submit::BINARY;
use super::view::{self, View};
use crate::store::binary::RESTED;
use crate::store::checkpoints::{LINK, directory, surplus, without_manifest};
use crate::store::{Root, RunDir, StoreError, journal, select, unfinished};
use crate::ui::style::Style;
use crate::ui::table::Table;
use crate::ui::units;
use haul_runtime::contract::checkpoint::Point;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub const SCHEMA: &str = "haul.prune/1";

/// What may go.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// Newest checkpoints of each run that stay; 1 at least.
    pub keep: usize,
    /// Runs that ended longer ago than this go as a whole.
    pub runs_older: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Checkpoint,
    Run,
    Binary,
}

/// One thing that may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    pub kind: Kind,
    /// Of the run; absent for binaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Within the root, all of one thing; removed in this order.
    pub paths: Vec<PathBuf>,
    pub bytes: u64,
    pub why: String,
    /// Why it could not be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What may go from `root`, newest run first.
pub fn find(root: &Root, wish: Wish) -> Result<Vec<Item>, StoreError> {
    let mut items = Vec::new();
    let mut going = BTreeSet::new();
    for run in select::newest_first(root)? {
        let found = of_run(root, &run, wish);
        if found.iter().any(|item| item.kind == Kind::Run) {
            going.insert(run.id());
        }
        items.extend(found);
    }
    items.extend(binaries(root, &going)?);
    Ok(items)
}

/// What may go of one run. What cannot be read stays.
fn of_run(root: &Root, run: &RunDir, wish: Wish) -> Vec<Item> {
    let Some(view) = view::view(run).ok().filter(is_over) else {
        return Vec::new();
    };
    if let Some(age) = age(&view)
        && wish.runs_older.is_some_and(|older| age > older)
    {
        let why = format!(
            "{} {} ago",
            view.state.word(),
            units::duration(age.as_secs_f64())
        );
        return vec![item(
            root,
            Kind::Run,
            Some(run),
            vec![run.path().to_path_buf()],
            why,
        )];
    }
    let Ok((entries, 0)) = journal::read(run) else {
        return Vec::new();
    };
    let old = surplus(run, &entries, wish.keep);
    let mut items: Vec<Item> = Vec::new();
    let mut told = BTreeSet::new();
    for at in &old {
        let mut paths = vec![directory(run, *at)];
        // Two that go may share what the program wrote.
        paths.extend(foreign(run, *at, &old).filter(|path| told.insert(path.clone())));
        let why = match view.state {
            State::Finished => "older than the newest of a finished run".to_owned(),
            state => format!("a {} run goes on from a newer one", state.word()),
        };
        items.push(item(root, Kind::Checkpoint, Some(run), paths, why));
    }
    if view.bundled {
        for attempt in run.numbers("checkpoints") {
            for step in without_manifest(run, attempt) {
                let path = directory(run, Point { attempt, step });
                let why = "never completed".to_owned();
                items.push(item(root, Kind::Checkpoint, Some(run), vec![path], why));
            }
        }
    }
    items.sort_by(|a, b| a.paths.cmp(&b.paths));
    items
}

/// Nothing goes on with it unless somebody resumes it. One that saved and stopped waits for that.
fn is_over(view: &View) -> bool {
    matches!(
        view.state,
        State::Finished | State::Failed | State::Cancelled
    )
}

/// How long ago a run ended; absent where it is not known, or in the future.
fn age(view: &View) -> Option<Duration> {
    let ended = chrono::DateTime::parse_from_rfc3339(view.ended.as_ref()?).ok()?;
    SystemTime::now().duration_since(ended.into()).ok()
}

/// What a program of its own wrote for a checkpoint, unless one that stays needs it too.
fn foreign(run: &RunDir, at: Point, going: &[Point]) -> Option<PathBuf> {
    let base = run.checkpoints(at.attempt).canonicalize().ok()?;
    let target = |point: Point| directory(run, point).join(LINK).canonicalize().ok();
    let own = target(at).filter(|own| *own != base && own.starts_with(&base))?;
    let siblings = std::fs::read_dir(&base).ok()?.flatten();
    let mut staying = siblings
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_prefix("step-")?
                .parse()
                .ok()
        })
        .map(|step| Point { step, ..at })
        .filter(|point| !going.contains(point));
    let shared = staying.any(|point| {
        let others = [Some(directory(run, point)), target(point)];
        others
            .into_iter()
            .flatten()
            .any(|other| other.starts_with(&own) || own.starts_with(&other))
    });
    // Back to the path as it is named here, for a root behind a link.
    let inside = own.strip_prefix(&base).ok()?;
    (!shared).then(|| run.checkpoints(at.attempt).join(inside))
}

/// Copies of the binary that no run names which stays. A directory of copies behind a link may serve other roots.
fn binaries(root: &Root, going: &BTreeSet<String>) -> Result<Vec<Item>, StoreError> {
    let bins = root.bins();
    let own = std::fs::symlink_metadata(&bins).is_ok_and(|meta| meta.is_dir());
    let Some(named) = named(root, going)?.filter(|_| own) else {
        return Ok(Vec::new());
    };
    let listing = std::fs::read_dir(&bins).map_err(StoreError::io("list", &bins))?;
    let mut unused: Vec<PathBuf> = listing
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let rested = entry
                .metadata()
                .ok()
                .and_then(|meta| meta.modified().ok()?.elapsed().ok());
            let hash = name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
            hash && !named.contains(&name) && rested.is_some_and(|rested| rested > RESTED)
        })
        .map(|entry| entry.path())
        .collect();
    unused.sort();
    let unused = unused.into_iter();
    Ok(unused
        .map(|path| {
            item(
                root,
                Kind::Binary,
                None,
                vec![path],
                "no run of this root uses it".into(),
            )
        })
        .collect())
}

/// Names of the binaries that the jobs of the root execute, of runs that are being made too; absent where one cannot be read.
fn named(root: &Root, going: &BTreeSet<String>) -> Result<Option<BTreeSet<String>>, StoreError> {
    let listing = match std::fs::read_dir(root.path()) {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::io("list", root.path())(source)),
    };
    let mut named = BTreeSet::new();
    for entry in listing.flatten() {
        let run = RunDir::new(entry.path());
        if going.contains(&run.id()) {
            continue;
        }
        let jobs = run.path().join("jobs");
        if std::fs::read_dir(&jobs).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        {
            return Ok(None);
        }
        for slot in run.numbers("jobs") {
            match std::fs::read_to_string(run.job(slot).join(BINARY)) {
                Ok(name) => {
                    named.insert(name.trim().to_owned());
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => return Ok(None),
            }
        }
    }
    Ok(Some(named))
}

fn item(root: &Root, kind: Kind, run: Option<&RunDir>, paths: Vec<PathBuf>, why: String) -> Item {
    let within = |path: &PathBuf| path.strip_prefix(root.path()).unwrap_or(path).to_path_buf();
    Item {
        kind,
        run: run.map(RunDir::id),
        bytes: paths.iter().map(|path| bytes(path)).sum(),
        paths: paths.iter().map(within).collect(),
        why,
        error: None,
    }
}

/// Bytes of all files under `path`; links are not followed.
fn bytes(path: &Path) -> u64 {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return 0;
    };
    match meta.is_dir() {
        true => {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| bytes(&entry.path())).sum()
        }
        false => meta.len(),
    }
}

/// Removes the items, each looked at again before; what cannot be removed has its error.
pub fn remove(root: &Root, wish: Wish, items: Vec<Item>) -> Vec<Item> {
    let mut items = items;
    for item in &mut items {
        item.error = remove_one(root, wish, item)
            .err()
            .map(|error| format!("{error:#}"));
    }
    items
}

fn remove_one(root: &Root, wish: Wish, item: &Item) -> anyhow::Result<()> {
    if let Some(id) = &item.run {
        let still = of_run(root, &root.run(id), wish);
        let same =
            |other: &Item| other.kind == item.kind && other.paths.first() == item.paths.first();
        anyhow::ensure!(still.iter().any(same), "it is needed by now");
    }
    for (at, path) in item.paths.iter().enumerate() {
        let path = root.path().join(path);
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        unfinished::sweep(path.parent().unwrap_or(root.path()));
        // It disappears at once, so that a removal that is killed leaves no half of it.
        let hidden = path.with_file_name(unfinished::name(&name));
        match std::fs::rename(&path, &hidden) {
            // It lay within another one.
            Err(error) if at > 0 && error.kind() == ErrorKind::NotFound => continue,
            renamed => renamed.map_err(StoreError::io("rename", &path))?,
        }
        let removed = match std::fs::symlink_metadata(&hidden).is_ok_and(|meta| meta.is_dir()) {
            true => std::fs::remove_dir_all(&hidden),
            false => std::fs::remove_file(&hidden),
        };
        removed.map_err(StoreError::io("remove", &hidden))?;
    }
    Ok(())
}

/// For people: a table and what comes next. `done`: they have been removed.
pub fn text(root: &Root, items: &[Item], done: bool, width: Option<usize>, style: Style) -> String {
    if items.is_empty() {
        return format!("nothing to free in {}\n", root.path().display());
    }
    let mut table = Table::new(&["what", ">size", "path", "why"]);
    for item in items {
        let path = item
            .paths
            .first()
            .map(|path| path.display().to_string())
            .unwrap_or_default();
        let what = format!("{:?}", item.kind).to_lowercase();
        let why = item
            .error
            .as_ref()
            .map_or(item.why.clone(), |error| style.red(error));
        table.row([what, units::bytes(item.bytes), path, why]);
    }
    let total = units::bytes(freed(items));
    let words = match done {
        true => format!("freed {total}\n"),
        false => format!("would free {total}; nothing is removed without --yes\n"),
    };
    format!("{}{words}", table.render(width, style))
}

fn freed(items: &[Item]) -> u64 {
    items
        .iter()
        .filter(|item| item.error.is_none())
        .map(|item| item.bytes)
        .sum()
}

/// The document of `--json`.
pub fn to_json(root: &Root, items: &[Item], done: bool) -> Value {
    json!({
        "schema": SCHEMA,
        "root": root.path(),
        "removed": done,
        "bytes": freed(items),
        "items": items,
    })
}

#[cfg(test)]
mod tests;
