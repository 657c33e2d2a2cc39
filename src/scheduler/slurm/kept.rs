//! What Slurm said, kept beside the runs for all terminals; where this cannot be, for this process alone.

use super::parse::Row;
use crate::store::publish::{self, cache};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// So long after its end a job may still come back under its id, by a requeue, in milliseconds.
const SETTLES: u64 = 600_000;
/// Rows of ended jobs that are kept.
const MOST: usize = 4096;

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// When it was given, and when it was another one last; milliseconds since the epoch.
    pub(super) asked: u64,
    #[serde(default)]
    pub(super) changed: u64,
    pub(super) rows: Vec<Row>,
    /// Of sacct: jobs that were asked about, and when somebody wanted to know last.
    #[serde(default)]
    pub(super) jobs: BTreeMap<String, u64>,
    /// Of sacct: names that were asked about.
    #[serde(default)]
    pub(super) names: BTreeSet<String>,
    /// What the question came to, if it failed.
    #[serde(default)]
    pub(super) error: Option<String>,
}

impl Kept {
    /// Takes an answer in place of the one before.
    pub(super) fn hear(&mut self, now: u64, said: Result<Vec<Row>, String>) {
        let (rows, error) = match said {
            Ok(rows) => (rows, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        // When a job is expected to start changes all the time, and is no news.
        let news = |row: &Row| (row.job.clone(), row.state.clone(), row.reason.clone());
        let same = self.asked > 0
            && self.error == error
            && self.rows.iter().map(news).eq(rows.iter().map(news));
        if !same {
            self.changed = now;
        }
        (self.asked, self.rows, self.error) = (now, rows, error);
    }

    /// The same, with the rows of settled jobs as they were.
    pub(super) fn add(&mut self, now: u64, said: Result<Vec<Row>, String>) {
        let settled = self.settled(now);
        let mut newest: Vec<&str> = settled.iter().copied().collect();
        newest.sort_unstable_by_key(|job| std::cmp::Reverse((job.len(), *job)));
        newest.truncate(MOST);
        let newest: HashSet<&str> = newest.into_iter().collect();
        let stays = |row: &&Row| newest.contains(row.job.as_str());
        let old: Vec<Row> = self.rows.iter().filter(stays).cloned().collect();
        let known: HashSet<String> = old.iter().map(|row| row.job.clone()).collect();
        let said = said.map(|rows| {
            let fresh = rows.into_iter().filter(|row| !known.contains(&row.job));
            old.iter().cloned().chain(fresh).collect()
        });
        let failed = said.is_err();
        self.hear(now, said);
        if failed {
            self.rows = old;
        }
    }

    /// Jobs that have ended for good.
    pub(super) fn settled(&self, now: u64) -> HashSet<&str> {
        let mut last: HashMap<&str, &Row> = HashMap::new();
        last.extend(self.rows.iter().map(|row| (row.job.as_str(), row)));
        let is = |row: &Row| row.is_over() && row.end.is_some_and(|end| old(end, now));
        last.retain(|_, row| is(row));
        last.into_keys().collect()
    }
}

fn old(end: i64, now: u64) -> bool {
    u64::try_from(end).is_ok_and(|end| end.saturating_mul(1000).saturating_add(SETTLES) < now)
}

/// Answers of this process, by where they would be kept.
static OWN: Mutex<BTreeMap<PathBuf, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// A place for one answer.
#[derive(Debug)]
pub(super) struct Shelf(PathBuf);

impl Shelf {
    pub(super) fn new(path: PathBuf) -> Shelf {
        Shelf(path)
    }

    /// What is there, or nothing.
    pub(super) fn take<T: DeserializeOwned + Default>(&self) -> T {
        let own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match own.get(&self.0) {
            Some(text) => text.clone(),
            None => std::fs::read(&self.0).unwrap_or_default(),
        };
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub(super) fn put<T: Serialize>(&self, content: &T) {
        let Ok(text) = serde_json::to_vec(content) else {
            return;
        };
        let directory = self.0.parent().unwrap_or(Path::new("."));
        let written = is_keeper(directory) && {
            let _ = std::fs::create_dir(directory);
            cache(&self.0, &text).is_ok()
        };
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        match written {
            true => own.remove(&self.0),
            false => own.insert(self.0.clone(), text),
        };
    }
}

/// Whether answers may be kept in `directory`, which may have to be made.
pub(super) fn is_keeper(directory: &Path) -> bool {
    let root = directory.parent().unwrap_or(directory);
    publish::is_ours(root) && (publish::is_ours(directory) || !directory.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(job: &str, state: &str, end: Option<i64>) -> Row {
        Row {
            job: job.into(),
            name: "haul-x-1".into(),
            state: state.into(),
            end,
            ..Row::default()
        }
    }

    #[test]
    fn an_estimate_is_no_news_and_a_state_is() {
        let mut kept = Kept::default();
        kept.hear(5, Ok(vec![row("1", "PENDING", None)]));
        assert_eq!((kept.asked, kept.changed), (5, 5));
        let later = Row {
            start: Some(9),
            ..row("1", "PENDING", None)
        };
        kept.hear(6, Ok(vec![later]));
        assert_eq!((kept.asked, kept.changed), (6, 5));
        kept.hear(7, Ok(vec![row("1", "RUNNING", None)]));
        assert_eq!(kept.changed, 7);
        kept.hear(8, Err("down".into()));
        assert_eq!((kept.changed, kept.rows.len()), (8, 0));
    }

    #[test]
    fn rows_of_ended_jobs_stay_once_no_requeue_can_follow() {
        let hour = 3_600_000;
        let mut kept = Kept::default();
        let rows = vec![
            row("1", "COMPLETED", Some(100)),
            row("2", "NODE_FAIL", Some(100)),
            row("2", "RUNNING", None),
            row("3", "NODE_FAIL", Some(3590)),
        ];
        kept.add(hour, Ok(rows));
        assert_eq!(kept.settled(hour), HashSet::from(["1"]));
        kept.add(hour + 1, Err("down".into()));
        assert_eq!(kept.rows, [row("1", "COMPLETED", Some(100))]);
        kept.add(hour + 2, Ok(vec![row("3", "COMPLETED", Some(3599))]));
        let jobs: Vec<&str> = kept.rows.iter().map(|row| row.job.as_str()).collect();
        assert_eq!(jobs, ["1", "3"]);
    }
}
