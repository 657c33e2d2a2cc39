//! Questions to Slurm, as few as possible: one for all jobs of a user, kept in the root for all terminals, none more often than the site allows.

use super::command::{Said, run};
use super::kept::{Kept, Shelf};
use super::parse::{PAST_FORMAT, QUEUE_FORMAT, Row, past, queue};
use super::refusal::one_line;
use crate::scheduler::SchedulerError;
use crate::store::publish::cache;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long Slurm may take; its own time-out is 10 s, and a dead controller takes 9 s to be told.
pub const LIMIT: Duration = Duration::from_secs(40);
/// An answer is asked for at most so much later than it is due, at random, so that terminals do not meet.
const JITTER: f64 = 0.25;
/// While the answer stays the same, the interval grows by this share of the time it has, up to [`WIDEST`] floors.
const WIDENING: f64 = 0.25;
const WIDEST: f64 = 4.0;
/// Characters of one argument; the kernel takes 128 KiB.
const ARGUMENT: usize = 100_000;
/// A job that nobody has asked about for so long is not asked about for others any more, in milliseconds.
const UNWANTED: u64 = 3_600_000;

/// Jobs of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Their name.
    pub token: String,
    /// Their ids; without any they are looked up by name.
    pub jobs: Vec<String>,
}

/// Answers and the count of calls, under `<root>/.slurm/`. Of a root that belongs to somebody else, or that cannot be
/// written to, they are kept by this process only.
#[derive(Debug, Clone)]
pub struct Queries {
    directory: PathBuf,
    user: String,
    floor: Duration,
    widens: bool,
}

/// Rows by job, in the order of its starts, and when they were told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    /// Milliseconds since the epoch.
    pub asked: u64,
    pub of: HashMap<String, Vec<Row>>,
    /// Jobs by name.
    pub named: HashMap<String, BTreeSet<u64>>,
}

impl Rows {
    fn new(asked: u64, rows: impl IntoIterator<Item = Row>) -> Rows {
        let mut all = Rows {
            asked,
            ..Rows::default()
        };
        for row in rows {
            if let Ok(number) = row.job.parse() {
                let named = all.named.entry(row.name.clone()).or_default();
                named.insert(number);
            }
            all.of.entry(row.job.clone()).or_default().push(row);
        }
        all
    }
}

impl Queries {
    pub fn new(root: &Path, user: String, floor: Duration) -> Queries {
        Queries {
            directory: root.join(".slurm"),
            user,
            floor,
            widens: true,
        }
    }

    /// For somebody who acts on the answers: they are no older than the floor.
    pub fn eager(mut self) -> Queries {
        self.widens = false;
        self
    }

    /// All jobs of ours that the controller knows of the user.
    pub fn queue(&self, now: u64) -> Result<Rows, SchedulerError> {
        let shelf = self.shelf("queue");
        let mut kept: Kept = shelf.take();
        if !self.is_fresh(&kept, now) {
            let said = self.call(
                "squeue",
                &["-h", "-t", "all", "-u", &self.user, "-o", QUEUE_FORMAT],
            );
            let rows = said.map(|text| {
                let rows = queue(&text).into_iter();
                rows.filter(|row| row.name.starts_with("haul-")).collect()
            });
            kept.hear(now, rows);
            shelf.put(&kept);
        }
        match kept.error {
            None => Ok(Rows::new(kept.asked, kept.rows)),
            Some(reason) => Err(SchedulerError {
                what: "ask squeue".into(),
                reason,
            }),
        }
    }

    /// What accounting knows of the jobs that are wanted. One question for all of them and for those that others want.
    /// With an error some of them are not known.
    pub fn past(&self, wanted: &[Wanted], now: u64) -> (Rows, Option<SchedulerError>) {
        let shelf = self.shelf("past");
        let mut kept: Kept = shelf.take();
        let settled = kept.settled(now);
        let open = |job: &&String| !settled.contains(job.as_str());
        let jobs: BTreeSet<String> = wanted
            .iter()
            .flat_map(|one| &one.jobs)
            .filter(open)
            .cloned()
            .collect();
        let nameless = |one: &&Wanted| one.jobs.is_empty();
        let names: BTreeSet<String> = wanted
            .iter()
            .filter(nameless)
            .map(|one| one.token.clone())
            .collect();
        let nothing = jobs.is_empty() && names.is_empty();
        let asked = self.is_fresh(&kept, now)
            && jobs.iter().all(|job| kept.jobs.contains_key(job))
            && names.is_subset(&kept.names);
        if !asked && !nothing {
            let mut all: BTreeMap<String, u64> = jobs.into_iter().map(|job| (job, now)).collect();
            for (job, since) in &kept.jobs {
                if now.saturating_sub(*since) < UNWANTED && !settled.contains(job.as_str()) {
                    all.entry(job.clone()).or_insert(*since);
                }
            }
            drop(settled);
            let said = match names.is_empty() {
                true => self.by_number(&mut all),
                false => {
                    let open = |one: &&Wanted| {
                        one.jobs.is_empty() || one.jobs.iter().any(|job| all.contains_key(job))
                    };
                    let tokens: Vec<&str> = wanted
                        .iter()
                        .filter(open)
                        .map(|one| one.token.as_str())
                        .collect();
                    let said = self.by_name(&tokens);
                    // Only those that are wanted now are among the names.
                    all.retain(|_, since| *since == now);
                    said
                }
            };
            kept.jobs = all;
            kept.names = names;
            kept.add(now, said);
            shelf.put(&kept);
        }
        let error = kept.error.map(|reason| SchedulerError {
            what: "ask sacct".into(),
            reason,
        });
        (Rows::new(kept.asked, kept.rows), error)
    }

    /// Asks about as many of the newest `jobs` as one question holds; the others are taken out.
    fn by_number(&self, jobs: &mut BTreeMap<String, u64>) -> Result<Vec<Row>, String> {
        let mut numbers: Vec<&String> = jobs.keys().collect();
        numbers.sort_by_key(|job| std::cmp::Reverse((job.len(), job.as_str())));
        let list = argument(numbers.iter().map(|job| job.as_str()));
        let asked: BTreeSet<&str> = list.split(',').collect();
        let said = self.sacct(&["-j", &list]);
        jobs.retain(|job, _| asked.contains(job.as_str()));
        said
    }

    fn by_name(&self, names: &[&str]) -> Result<Vec<Row>, String> {
        let list = argument(names.iter().copied());
        self.sacct(&["-u", &self.user, "--name", &list, "-S", "now-90days"])
    }

    fn sacct(&self, whose: &[&str]) -> Result<Vec<Row>, String> {
        let form = ["-P", "-n", "-X", "-D", "-o", PAST_FORMAT];
        self.call("sacct", &[whose, &form].concat())
            .map(|text| past(&text))
    }

    /// Jobs of this name that accounting knows, oldest first.
    pub fn named(&self, name: &str) -> Result<Vec<Row>, SchedulerError> {
        self.by_name(&[name]).map_err(|reason| SchedulerError {
            what: format!("look up job {name} with sacct"),
            reason,
        })
    }

    /// Since when the controller has not known each of the jobs that accounting takes for alive, in milliseconds.
    /// `absent` are those of `seen` of which this is so now, and since when at the latest.
    pub fn absent(
        &self,
        seen: &BTreeSet<String>,
        absent: &BTreeMap<String, u64>,
    ) -> BTreeMap<String, u64> {
        let shelf = self.shelf("absent");
        let before: BTreeMap<String, u64> = shelf.take();
        let mut after = before.clone();
        after.retain(|job, _| !seen.contains(job) || absent.contains_key(job));
        for (job, since) in absent {
            after.entry(job.clone()).or_insert(*since);
        }
        if after != before {
            shelf.put(&after);
        }
        after
    }

    /// The next question is asked, not answered from what is kept.
    pub fn forget(&self) {
        for what in ["queue", "past"] {
            let shelf = self.shelf(what);
            let mut kept: Kept = shelf.take();
            (kept.asked, kept.changed) = (0, 0);
            shelf.put(&kept);
        }
    }

    fn shelf(&self, what: &str) -> Shelf {
        Shelf::new(self.directory.join(format!("{what}-{}.json", self.user)))
    }

    /// Whether it is too early to ask again.
    fn is_fresh(&self, kept: &Kept, now: u64) -> bool {
        let Some(age) = now.checked_sub(kept.asked).filter(|_| kept.asked > 0) else {
            return false;
        };
        Duration::from_millis(age) < self.interval(kept).mul_f64(1.0 + jitter() * JITTER)
    }

    /// From one floor to [`WIDEST`], the longer the answer has been the same.
    fn interval(&self, kept: &Kept) -> Duration {
        let same = Duration::from_millis(kept.asked.saturating_sub(kept.changed));
        match self.widens {
            true => same
                .mul_f64(WIDENING)
                .clamp(self.floor, self.floor.mul_f64(WIDEST)),
            false => self.floor,
        }
    }

    /// Calls of the last hour, by anybody in this root.
    pub fn calls(&self) -> usize {
        let text = std::fs::read_to_string(self.directory.join("calls")).unwrap_or_default();
        let since = now().saturating_sub(3_600_000);
        let times = text.lines().filter_map(|line| line.parse::<u64>().ok());
        times.filter(|time| *time >= since).count()
    }

    /// Counts, then runs; an error in words where it failed.
    pub fn call(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let said = self.said(program, arguments)?;
        match said.succeeded() {
            true => Ok(said.out),
            false if said.status.is_none() => {
                Err(format!("{program} gave no answer in {} s", LIMIT.as_secs()))
            }
            false => Err(match one_line(&said.err) {
                words if words.is_empty() => format!("{program} failed and said nothing"),
                words => words,
            }),
        }
    }

    /// As [`Queries::call`], whatever came of it.
    pub fn said(&self, program: &str, arguments: &[&str]) -> Result<Said, String> {
        self.count();
        run(program, arguments, LIMIT).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("there is no `{program}` here: is this a login node of a Slurm cluster?")
            }
            _ => format!("cannot run {program}: {error}"),
        })
    }

    fn count(&self) {
        if !super::kept::is_keeper(&self.directory) {
            return;
        }
        let path = self.directory.join("calls");
        let _ = std::fs::create_dir_all(&self.directory);
        // Old ones are dropped now and then; two that do so at once lose a few counts.
        if std::fs::metadata(&path).is_ok_and(|meta| meta.len() > 256 * 1024) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let half = text.len() / 2;
            let rest = text.get(half..).and_then(|rest| rest.split_once('\n'));
            let _ = cache(&path, rest.map_or("", |(_, rest)| rest).as_bytes());
        }
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path);
        let _ = file.and_then(|mut file| file.write_all(format!("{}\n", now()).as_bytes()));
    }
}

/// As many of `items` as one argument holds, with commas between them.
fn argument<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let mut list = String::new();
    for item in items {
        if list.len() + item.len() >= ARGUMENT {
            break;
        }
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(item);
    }
    list
}

/// From 0 to 1, the same in a process.
fn jitter() -> f64 {
    f64::from(std::process::id() % 64) / 64.0
}

/// Milliseconds since the epoch.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(asked: u64, changed: u64) -> Kept {
        Kept {
            asked,
            changed,
            ..Kept::default()
        }
    }

    #[test]
    fn the_interval_widens_while_the_answer_stays_the_same() {
        let queries = Queries::new(Path::new("none"), "me".into(), Duration::from_secs(60));
        let seconds = |same: u64| queries.interval(&kept(10_000_000, 10_000_000 - same * 1000));
        assert_eq!(seconds(0), Duration::from_secs(60));
        assert_eq!(seconds(240), Duration::from_secs(60));
        assert_eq!(seconds(600), Duration::from_secs(150));
        assert_eq!(seconds(9000), Duration::from_secs(240));
        let now = 10_000_000 + 59_999;
        assert!(queries.is_fresh(&kept(10_000_000, 10_000_000), now));
        let late = 10_000_000 + 75_001;
        assert!(!queries.is_fresh(&kept(10_000_000, 10_000_000), late));
        assert!(queries.is_fresh(&kept(10_000_000, 1_000_000), late));
        let eager = queries.eager();
        assert!(!eager.is_fresh(&kept(10_000_000, 1_000_000), late));
        // A clock that went back, and an answer that was forgotten.
        assert!(!eager.is_fresh(&kept(10_000_000, 0), 9_000_000));
        assert!(!eager.is_fresh(&kept(0, 0), 1));
    }

    #[test]
    fn one_question_holds_what_an_argument_may() {
        let many: Vec<String> = (0..50_000).map(|n| (10_000_000 + n).to_string()).collect();
        let list = argument(many.iter().map(String::as_str));
        assert!(list.len() <= ARGUMENT && list.len() > ARGUMENT - 10);
        assert!(list.split(',').all(|job| job.len() == 8));
    }

    #[test]
    fn calls_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let queries = Queries::new(dir.path(), "me".into(), Duration::ZERO);
        assert_eq!(queries.call("sh", &["-c", "echo 1"]).as_deref(), Ok("1\n"));
        let error = queries.call("sh", &["-c", "echo 'sbatch: error: no' >&2; exit 1"]);
        assert_eq!(error, Err("no".into()));
        let error = queries.call("no-such-command-of-slurm", &[]).unwrap_err();
        assert!(error.contains("login node"), "{error}");
        assert_eq!(queries.calls(), 3);
    }
}
