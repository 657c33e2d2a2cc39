//! Use case: the logs of a run, merged over nodes by time; what is added to them; and how its attempts ended.

mod fold;

use super::view;
use crate::store::journal::{self, Class, Verdict};
use crate::store::tail::Tail;
use crate::store::{RunDir, StoreError};
use fold::fold;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// While following, a line waits so long for earlier lines of other nodes, and for the same line of other ranks.
const HOLD: Duration = Duration::from_millis(1000);

/// Which lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// All attempts when absent.
    pub attempt: Option<u32>,
    pub rank: Option<usize>,
    /// job.out of all jobs instead: what job.sh and the supervisor wrote.
    pub job: bool,
}

/// The logs of a run as they grow.
#[derive(Debug)]
pub struct Logs {
    run: RunDir,
    wanted: Wanted,
    /// By (attempt or slot, node).
    files: BTreeMap<(u32, String), Growing>,
    /// Read and not yet given out.
    pending: Vec<Line>,
    /// Attempts of which the end was told.
    told: BTreeSet<u32>,
}

#[derive(Debug)]
struct Growing {
    tail: Tail,
    /// Of the newest line that has one.
    time: String,
    lines: u64,
}

/// A line of a file.
#[derive(Debug)]
struct Line {
    /// Attempt or slot.
    number: u32,
    /// Time, file, place in the file. A line without a time has that of the one before it.
    place: (String, String, u64),
    text: String,
    read: Instant,
}

/// A line of a rank: `<time> <node>:<rank>[+] <text>`.
#[derive(Debug, PartialEq, Eq)]
struct Said<'a> {
    time: &'a str,
    rank: usize,
    continued: bool,
    text: &'a str,
}

impl Line {
    /// Behind a line without a time.
    fn new(number: u32, file: &str, at: u64, text: String) -> Line {
        Line {
            number,
            place: (
                time_of(&text).unwrap_or_default().to_owned(),
                file.to_owned(),
                at,
            ),
            text,
            read: Instant::now(),
        }
    }

    fn said(&self) -> Option<Said<'_>> {
        let time = time_of(&self.text)?;
        let (who, text) = self.text.get(time.len() + 1..)?.split_once(' ')?;
        let rank = who.rsplit_once(':')?.1;
        Some(Said {
            time,
            rank: rank.trim_end_matches('+').parse().ok()?,
            continued: rank.ends_with('+'),
            text,
        })
    }
}

/// RFC 3339 UTC with milliseconds, which sorts as text.
fn time_of(line: &str) -> Option<&str> {
    let (time, _) = line.split_once(' ')?;
    (time.len() == 24 && time.ends_with('Z')).then_some(time)
}

impl Logs {
    pub fn new(run: &RunDir, wanted: Wanted) -> Logs {
        Logs {
            run: run.clone(),
            wanted,
            files: BTreeMap::new(),
            pending: Vec::new(),
            told: BTreeSet::new(),
        }
    }

    /// All lines since the last look, as they stand in the files: attempts in order, the nodes of one merged by time.
    pub fn lines(&mut self) -> Vec<String> {
        self.read();
        self.pending.drain(..).map(|line| line.text).collect()
    }

    /// The same with identical lines of several ranks as one.
    pub fn folded(&mut self) -> Vec<String> {
        self.read();
        let groups = fold(&self.pending);
        let text = groups
            .iter()
            .map(|group| group.show(&self.pending))
            .collect();
        self.pending.clear();
        text
    }

    /// While they grow: what has waited long enough for what belongs before it or to it.
    pub fn settled(&mut self) -> Vec<String> {
        self.read();
        let groups = fold(&self.pending);
        let settled = |line: &Line| line.read.elapsed() >= HOLD;
        let until = groups
            .iter()
            .rposition(|group| settled(&self.pending[group.lines[0]]));
        let out = &groups[..until.map_or(0, |at| at + 1)];
        let text = out.iter().map(|group| group.show(&self.pending)).collect();
        let gone: BTreeSet<usize> = out.iter().flat_map(|group| group.lines.clone()).collect();
        let mut index = 0..;
        self.pending
            .retain(|_| index.next().is_none_or(|index| !gone.contains(&index)));
        text
    }

    /// How attempts ended of which it was not told yet, where it was not in good order; of those that had ended before
    /// the first look the newest only.
    pub fn ends(&mut self) -> Result<Vec<(u32, Verdict)>, StoreError> {
        let first = self.told.is_empty();
        let (entries, _) = journal::read(&self.run)?;
        let mut news: Vec<(u32, Verdict)> = view::verdicts(&entries)
            .into_iter()
            .filter(|(attempt, _)| self.wanted.attempt.is_none_or(|only| only == *attempt))
            .filter(|(attempt, _)| self.told.insert(*attempt))
            .map(|(attempt, verdict)| (attempt, verdict.clone()))
            .collect();
        // No attempt has this number: whoever looks again is told of all.
        self.told.insert(0);
        if first {
            news.drain(..news.len().saturating_sub(1));
        }
        news.retain(|(_, verdict)| is_abnormal(verdict.class));
        Ok(news)
    }

    fn read(&mut self) {
        self.find();
        for ((number, file), growing) in &mut self.files {
            // Each look is bounded; a file is read to its end all the same.
            loop {
                let more = growing.tail.lines();
                if more.is_empty() {
                    break;
                }
                for text in more {
                    growing.lines += 1;
                    let mut line = Line::new(*number, file, growing.lines, text);
                    match line.place.0.is_empty() {
                        true => line.place.0.clone_from(&growing.time),
                        false => growing.time.clone_from(&line.place.0),
                    }
                    let rank = self.wanted.rank.filter(|_| !self.wanted.job);
                    if rank.is_none_or(|rank| line.said().is_some_and(|said| said.rank == rank)) {
                        self.pending.push(line);
                    }
                }
            }
        }
        self.pending
            .sort_by(|a, b| (a.number, &a.place).cmp(&(b.number, &b.place)));
    }

    /// Looks for logs that have appeared.
    fn find(&mut self) {
        let mut found = Vec::new();
        if self.wanted.job {
            let slots = self.run.numbers("jobs").into_iter();
            found.extend(
                slots.map(|slot| (slot, String::new(), self.run.job(slot).join("job.out"))),
            );
        } else {
            let attempts = match self.wanted.attempt {
                Some(attempt) => vec![attempt],
                None => self.run.numbers("attempts"),
            };
            for attempt in attempts {
                let directory = self.run.attempt(attempt).join("logs");
                for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    if let Some(node) = name.strip_suffix(".log") {
                        found.push((attempt, node.to_owned(), entry.path()));
                    }
                }
            }
        }
        for (number, file, path) in found {
            self.files.entry((number, file)).or_insert_with(|| Growing {
                tail: Tail::new(path),
                time: String::new(),
                lines: 0,
            });
        }
    }
}

fn is_abnormal(class: Class) -> bool {
    !matches!(
        class,
        Class::Done | Class::Again | Class::Stopped | Class::Cancelled | Class::Unknown
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::journal::{Event, Journal};

    fn at(second: u32) -> String {
        format!("2026-01-01T00:00:{second:02}.000Z")
    }

    #[test]
    fn nodes_are_merged_by_time_and_ranks_are_picked() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path());
        std::fs::create_dir_all(run.attempt(1).join("logs")).unwrap();
        std::fs::write(
            run.log(1, "local0"),
            format!("{} local0:0 a\n{} local0:1 c\n", at(1), at(3)),
        )
        .unwrap();
        std::fs::write(
            run.log(1, "local1"),
            format!("{} local1:2 b\nno time\n{} local1:12+ d\n", at(2), at(4)),
        )
        .unwrap();
        let mut all = Logs::new(&run, Wanted::default());
        let texts: Vec<String> = all
            .lines()
            .iter()
            .map(|line| line.rsplit(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(texts, ["a", "b", "time", "c", "d"]);
        assert!(all.lines().is_empty());
        let mut one = Logs::new(
            &run,
            Wanted {
                rank: Some(12),
                ..Wanted::default()
            },
        );
        let lines = one.lines();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("local1:12+ d"));
    }

    #[test]
    fn a_line_waits_for_earlier_ones_of_other_nodes_and_for_the_same_of_other_ranks() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path());
        std::fs::create_dir_all(run.attempt(1).join("logs")).unwrap();
        let write = |node: &str, text: String| {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options
                .append(true)
                .create(true)
                .open(run.log(1, node))
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let mut logs = Logs::new(&run, Wanted::default());
        write("n1", format!("{} n1:0 up\n{} n1:0 late\n", at(3), at(4)));
        assert!(logs.settled().is_empty());
        std::thread::sleep(HOLD);
        write("n2", format!("{} n2:1 early\n{} n2:1 up\n", at(2), at(3)));
        // The lines of the first node are due; the second's are earlier, or the same.
        let expected = [
            format!("{} n2:1 early", at(2)),
            format!("{} ranks 0-1: up", at(3)),
            format!("{} n1:0 late", at(4)),
        ];
        assert_eq!(logs.settled(), expected);
        write("n2", format!("{} n2:1 end\n", at(5)));
        assert!(logs.settled().is_empty());
        assert_eq!(logs.folded(), [format!("{} n2:1 end", at(5))]);
    }

    #[test]
    fn ends_in_disorder_are_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path());
        let mut journal = Journal::open(&run, "supervisor").unwrap();
        let mut judge = |attempt, class| {
            let verdict = Verdict {
                class,
                words: "so it ended".into(),
                rank: Some(3),
                node: None,
                code: None,
                signal: None,
                step: None,
                log: vec!["last".into()],
            };
            journal.append(Event::Judged { attempt, verdict }).unwrap();
        };
        let mut logs = Logs::new(&run, Wanted::default());
        judge(1, Class::Failed);
        judge(2, Class::Failed);
        let told = |logs: &mut Logs| -> Vec<u32> {
            logs.ends()
                .unwrap()
                .into_iter()
                .map(|(attempt, _)| attempt)
                .collect()
        };
        assert_eq!(told(&mut logs), [2]);
        assert!(told(&mut logs).is_empty());
        judge(3, Class::Done);
        judge(4, Class::Never);
        assert_eq!(told(&mut logs), [4]);
    }
}
