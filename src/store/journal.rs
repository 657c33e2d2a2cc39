//! The journal: what was decided, as checksummed lines in one file a process; ordered by (epoch, seq), never by time.
//!
//! A line is `<crc32 of the rest, 8 hex> <json>`. A torn last line is skipped; a damaged line elsewhere is reported and skipped.

use super::StoreError;
use super::layout::RunDir;
pub use crate::supervise::verdict::{Class, Outcome, Verdict};
use haul_runtime::contract::checkpoint::Point;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// What happened. Unknown events of newer versions are kept as [`Event::Unknown`] and skipped by readers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run directory was made.
    Created {
        name: String,
        version: String,
        host: String,
    },
    /// A job for `slot` is about to be submitted under the name `token`.
    Intent { slot: u32, token: String },
    /// The scheduler accepted it.
    Submitted { slot: u32, job: String },
    /// The scheduler refused it.
    Refused { slot: u32, reason: String },
    /// This job owns the slot.
    Claimed {
        slot: u32,
        job: String,
        restart: u32,
    },
    /// This job found the slot taken and left.
    Double {
        slot: u32,
        job: String,
        of: Option<String>,
    },
    /// An attempt begins, from `parent` or from nothing.
    Attempt {
        attempt: u32,
        slot: u32,
        parent: Option<Point>,
    },
    /// Its ranks were started.
    Launched {
        attempt: u32,
        nodes: Vec<String>,
        world: usize,
    },
    /// A checkpoint is complete; `path` is relative to `checkpoints/<attempt>`.
    Saved {
        attempt: u32,
        step: u64,
        path: String,
    },
    /// A checkpoint was refused and is not used again.
    Unreadable { at: Point, reason: String },
    /// How an attempt ended.
    Judged { attempt: u32, verdict: Verdict },
    /// Nobody shall start this run again unless `haul resume` says so.
    Tombstone { reason: String },
    /// A job at its time limit submits its successor for `slot`.
    Link { slot: u32 },
    /// `haul resume` opened the run again.
    Reopened { slot: u32, upgrade: bool },
    /// The run has ended.
    Finished { outcome: Outcome, words: String },
    /// Somebody was told so by a command, or why not.
    Notified {
        on: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    #[serde(other)]
    Unknown,
}

/// One line with its place in the order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub epoch: u64,
    pub seq: u64,
    /// RFC 3339 UTC, for people; never compared.
    pub time: String,
    #[serde(skip)]
    pub role: String,
    #[serde(flatten)]
    pub event: Event,
}

/// The journal file of this process: one epoch.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    epoch: u64,
    seq: u64,
}

impl Journal {
    /// Takes the next epoch of `run` for `role` by exclusive creation of `journal/<epoch>-<role>.jsonl`.
    pub fn open(run: &RunDir, role: &str) -> Result<Journal, StoreError> {
        let directory = run.journal();
        std::fs::create_dir_all(&directory).map_err(StoreError::io("create", &directory))?;
        let mut epoch = files(run)?.last().map_or(0, |(epoch, ..)| *epoch) + 1;
        loop {
            // The epoch belongs to whoever makes its marker; the role only names the file.
            let marker = directory.join(format!("{epoch}.epoch"));
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&marker)
            {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => epoch += 1,
                Err(source) => {
                    return Err(StoreError::Io {
                        what: "create",
                        path: marker,
                        source,
                    });
                }
            }
        }
        let path = directory.join(format!("{epoch}-{role}.jsonl"));
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(&path)
            .map_err(StoreError::io("create", &path))?;
        super::publish::sync_directory(&directory)?;
        Ok(Journal {
            file,
            path,
            epoch,
            seq: 0,
        })
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Writes the event as one line and fsyncs it.
    pub fn append(&mut self, event: Event) -> Result<(), StoreError> {
        self.seq += 1;
        let time = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let entry = Entry {
            epoch: self.epoch,
            seq: self.seq,
            time,
            role: String::new(),
            event,
        };
        let json = serde_json::to_string(&entry).map_err(|e| StoreError::Damaged {
            path: self.path.clone(),
            reason: e.to_string(),
        })?;
        let line = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
        self.file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(StoreError::io("append to", &self.path))
    }
}

/// All events of the run in order; damaged lines are left out and counted.
pub fn read(run: &RunDir) -> Result<(Vec<Entry>, usize), StoreError> {
    let mut entries = Vec::new();
    let mut damaged = 0;
    for (_, role, path) in files(run)? {
        let text = std::fs::read(&path).map_err(StoreError::io("read", &path))?;
        for line in text.split_inclusive(|b| *b == b'\n') {
            match parse(line) {
                Some(entry) => entries.push(Entry {
                    role: role.clone(),
                    ..entry
                }),
                None => damaged += 1,
            }
        }
    }
    entries.sort_by_key(|entry| (entry.epoch, entry.seq));
    Ok((entries, damaged))
}

fn parse(line: &[u8]) -> Option<Entry> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, json) = line.split_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(json.as_bytes()) {
        return None;
    }
    serde_json::from_str(json).ok()
}

fn files(run: &RunDir) -> Result<Vec<(u64, String, PathBuf)>, StoreError> {
    let directory = run.journal();
    let listing = match std::fs::read_dir(&directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(StoreError::Io {
                what: "list",
                path: directory,
                source,
            });
        }
    };
    let mut files: Vec<_> = listing
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (epoch, role) = name.strip_suffix(".jsonl")?.split_once('-')?;
            Some((epoch.parse().ok()?, role.to_owned(), entry.path()))
        })
        .collect();
    files.sort_by_key(|(epoch, ..)| *epoch);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_taken_once_and_damage_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path());
        let epochs: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|i| {
                    scope.spawn({
                        let run = run.clone();
                        move || {
                            let mut journal = Journal::open(
                                &run,
                                if i % 2 == 0 {
                                    "submitter"
                                } else {
                                    "supervisor"
                                },
                            )
                            .unwrap();
                            journal
                                .append(Event::Intent {
                                    slot: i,
                                    token: format!("t{i}"),
                                })
                                .unwrap();
                            journal
                                .append(Event::Tombstone {
                                    reason: "x \"y\"\n".into(),
                                })
                                .unwrap();
                            journal.epoch()
                        }
                    })
                })
                .collect();
            let mut epochs: Vec<u64> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            epochs.sort_unstable();
            epochs
        });
        let mut unique = epochs.clone();
        unique.dedup();
        assert_eq!(unique.len(), 6, "{epochs:?}");
        let (entries, damaged) = read(&run).unwrap();
        assert_eq!((entries.len(), damaged), (12, 0));
        assert!(
            entries
                .windows(2)
                .all(|w| (w[0].epoch, w[0].seq) < (w[1].epoch, w[1].seq))
        );

        let (_, _, path) = files(&run).unwrap().pop().unwrap();
        let mut text = std::fs::read(&path).unwrap();
        text[12] ^= 1;
        text.extend_from_slice(b"00000000 {\"torn");
        std::fs::write(&path, text).unwrap();
        let (entries, damaged) = read(&run).unwrap();
        assert_eq!((entries.len(), damaged), (11, 2));
    }

    #[test]
    fn events_of_newer_versions_are_kept_as_unknown() {
        let entry: Entry =
            serde_json::from_str(r#"{"epoch":1,"seq":1,"time":"","event":"paused","by":3}"#)
                .unwrap();
        assert_eq!(entry.event, Event::Unknown);
    }
}
