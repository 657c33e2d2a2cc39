//! Use case: the logs of a run, merged over nodes by time; and what is added to them.

use crate::store::RunDir;
use crate::store::tail::Tail;
use std::collections::BTreeMap;

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
    tails: BTreeMap<(u32, String), Tail>,
}

impl Logs {
    pub fn new(run: &RunDir, wanted: Wanted) -> Logs {
        Logs {
            run: run.clone(),
            wanted,
            tails: BTreeMap::new(),
        }
    }

    /// Lines since the last look: attempts in order, the nodes of one merged by the time at the start of each line.
    pub fn lines(&mut self) -> Vec<String> {
        self.find();
        let mut by_number: BTreeMap<u32, Vec<Vec<String>>> = BTreeMap::new();
        for ((number, _), tail) in &mut self.tails {
            let mut lines = Vec::new();
            // Each look is bounded; a file is read to its end all the same.
            loop {
                let more = tail.lines();
                if more.is_empty() {
                    break;
                }
                lines.extend(more);
            }
            if let Some(rank) = self.wanted.rank.filter(|_| !self.wanted.job) {
                lines.retain(|line| rank_of(line) == Some(rank));
            }
            by_number.entry(*number).or_default().push(lines);
        }
        by_number.into_values().flat_map(merge).collect()
    }

    /// Looks for logs that have appeared.
    fn find(&mut self) {
        if self.wanted.job {
            for slot in self.run.numbers("jobs") {
                let path = self.run.job(slot).join("job.out");
                let key = (slot, String::new());
                self.tails.entry(key).or_insert_with(|| Tail::new(path));
            }
            return;
        }
        let attempts = match self.wanted.attempt {
            Some(attempt) => vec![attempt],
            None => self.run.numbers("attempts"),
        };
        for attempt in attempts {
            let directory = self.run.attempt(attempt).join("logs");
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if let Some(node) = name.strip_suffix(".log") {
                    let key = (attempt, node.to_owned());
                    self.tails
                        .entry(key)
                        .or_insert_with(|| Tail::new(entry.path()));
                }
            }
        }
    }
}

/// `<time> <node>:<rank>[+] <text>`.
fn rank_of(line: &str) -> Option<usize> {
    let who = line.split(' ').nth(1)?;
    who.rsplit_once(':')?.1.trim_end_matches('+').parse().ok()
}

/// Merges files that are each in order; a line without a time stays behind the one before it.
fn merge(files: Vec<Vec<String>>) -> Vec<String> {
    let mut keyed: Vec<(String, usize, String)> = Vec::new();
    for (file, lines) in files.into_iter().enumerate() {
        let mut time = String::new();
        for line in lines {
            match line.split_once(' ') {
                // RFC 3339 UTC with milliseconds sorts as text.
                Some((head, _)) if head.len() == 24 && head.ends_with('Z') => {
                    head.clone_into(&mut time);
                }
                _ => {}
            }
            keyed.push((time.clone(), file, line));
        }
    }
    keyed.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    keyed.into_iter().map(|(.., line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_merged_by_time_and_ranks_are_picked() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path());
        std::fs::create_dir_all(run.attempt(1).join("logs")).unwrap();
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}.000Z");
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
}
