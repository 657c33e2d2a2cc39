//! Reads the records of a run. Whatever is missing, torn or of a newer version is left out and told, never an error.

use super::accounting::Accounts;
use crate::plan::Plan;
use crate::store::journal::{self, Entry, Event, Outcome, Verdict};
use crate::store::{RunDir, StoreError};
use haul_runtime::contract::metrics::Line;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;

/// All that is known about a run.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// The run id: the directory's name.
    pub id: String,
    /// By slot.
    pub plans: BTreeMap<u32, Plan>,
    /// In the order of the journal.
    pub entries: Vec<Entry>,
    /// By number.
    pub attempts: BTreeMap<u32, Attempt>,
    /// provenance.json, whatever it holds.
    pub provenance: Option<serde_json::Value>,
    /// What the trained model writes.
    pub sample: Option<Sampled>,
    /// Of a run under a scheduler that keeps accounts.
    pub accounts: Option<Accounts>,
    /// How the run ended, where only its scheduler tells.
    pub ended: Option<(Outcome, String)>,
    /// What could not be read, in words with the path relative to the run.
    pub warnings: Vec<String>,
}

/// Records of one attempt.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    /// In the order of the file.
    pub lines: Vec<Line>,
    pub verdict: Option<Verdict>,
    pub placement: Vec<Place>,
    pub bound: Vec<Bound>,
}

/// Where a rank was put.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    pub rank: usize,
    pub node: String,
    pub local_rank: Option<usize>,
    pub cores: Option<Vec<usize>>,
    pub device: Option<String>,
}

/// What a rank proved about its binding before step 1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bound {
    pub rank: usize,
    pub node: String,
    /// Cores the kernel says it may run on.
    pub cores: Option<Vec<usize>>,
    /// Cores it was to run on; absent when none were asked for.
    pub asked: Option<Vec<usize>>,
}

/// Text written with a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    pub attempt: u32,
    pub step: u64,
    pub text: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Placement {
    ranks: Vec<Place>,
}

/// Reads `run`. Fails only when the directory itself cannot be read.
pub fn read(run: &RunDir) -> Result<Records, StoreError> {
    std::fs::read_dir(run.path()).map_err(StoreError::io("list", run.path()))?;
    let mut reader = Reader {
        run,
        warnings: Vec::new(),
    };
    let entries = reader.entries();
    let plans = run
        .numbers("jobs")
        .into_iter()
        .filter_map(|slot| Some((slot, reader.json(&run.plan(slot))?)))
        .collect();
    let mut numbers = BTreeSet::from_iter(run.numbers("attempts"));
    numbers.extend(entries.iter().filter_map(|entry| match &entry.event {
        Event::Attempt { attempt, .. } => Some(*attempt),
        _ => None,
    }));
    let attempts = numbers
        .into_iter()
        .map(|number| (number, reader.attempt(number)))
        .collect();
    let provenance = reader.json(&run.provenance());
    let sample = reader.json(&run.sample());
    Ok(Records {
        id: run
            .path()
            .canonicalize()
            .map_or_else(|_| run.id(), |path| RunDir::new(path).id()),
        plans,
        entries,
        attempts,
        provenance,
        sample,
        accounts: None,
        ended: None,
        warnings: reader.warnings,
    })
}

impl Records {
    /// The plan of the newest slot that has one.
    pub fn plan(&self) -> Option<&Plan> {
        self.plans.values().next_back()
    }

    /// How attempt `number` ended: what the journal says, else its own file.
    pub fn verdict(&self, number: u32) -> Option<&Verdict> {
        let judged = self.entries.iter().rev().find_map(|e| match &e.event {
            Event::Judged { attempt, verdict } if *attempt == number => Some(verdict),
            _ => None,
        });
        judged.or_else(|| self.attempts.get(&number)?.verdict.as_ref())
    }
}

struct Reader<'a> {
    run: &'a RunDir,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn entries(&mut self) -> Vec<Entry> {
        match journal::read(self.run) {
            Ok((entries, damaged)) => {
                if damaged > 0 {
                    let words = format!("journal: {} left out", lines(damaged, "damaged"));
                    self.warnings.push(words);
                }
                if entries.is_empty() {
                    self.warnings
                        .push("journal: missing or empty; what jobs did is unknown".into());
                }
                entries
            }
            Err(error) => {
                self.warnings.push(format!("journal: {error}"));
                Vec::new()
            }
        }
    }

    fn attempt(&mut self, number: u32) -> Attempt {
        let directory = self.run.attempt(number);
        let placement: Option<Placement> = self.json(&directory.join("placement.json"));
        Attempt {
            lines: self.lines(&self.run.metrics(number)),
            verdict: self.json(&directory.join("verdict.json")),
            placement: placement.map(|p| p.ranks).unwrap_or_default(),
            bound: self.lines(&directory.join("binding.jsonl")),
        }
    }

    fn name(&self, path: &Path) -> String {
        let relative = path.strip_prefix(self.run.path()).unwrap_or(path);
        relative.display().to_string()
    }

    fn bytes(&mut self, path: &Path) -> Option<Vec<u8>> {
        match std::fs::read(path) {
            Ok(content) => Some(content),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    let name = self.name(path);
                    self.warnings.push(format!("{name}: {error}"));
                }
                None
            }
        }
    }

    fn json<T: DeserializeOwned>(&mut self, path: &Path) -> Option<T> {
        let content = self.bytes(path)?;
        match serde_json::from_slice(&content) {
            Ok(value) => Some(value),
            Err(error) => {
                let name = self.name(path);
                self.warnings
                    .push(format!("{name}: unreadable, left out ({error})"));
                None
            }
        }
    }

    /// JSON lines. A last line without its end is one still being written, or torn by a crash.
    fn lines<T: DeserializeOwned>(&mut self, path: &Path) -> Vec<T> {
        let Some(content) = self.bytes(path) else {
            return Vec::new();
        };
        let (mut good, mut damaged, mut torn) = (Vec::new(), 0, 0);
        for line in content.split_inclusive(|b| *b == b'\n') {
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(value) => good.push(value),
                Err(_) if !line.ends_with(b"\n") => torn += 1,
                Err(_) => damaged += 1,
            }
        }
        for (count, what) in [(damaged, "damaged"), (torn, "unfinished")] {
            if count > 0 {
                let words = format!("{}: {} left out", self.name(path), lines(count, what));
                self.warnings.push(words);
            }
        }
        good
    }
}

fn lines(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what} line"),
        n => format!("{n} {what} lines"),
    }
}
