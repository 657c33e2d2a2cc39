//! The files of an attempt that its supervisor writes: metrics.jsonl, ranks.jsonl, binding.jsonl, verdict.json.

use crate::store::publish::publish;
use crate::store::tail::newest_lines;
use crate::store::{RunDir, StoreError};
use crate::supervise::verdict::Verdict;
use haul_runtime::contract::metrics::Line;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Lines of a log that a verdict keeps.
const LOG_LINES: usize = 20;
/// Bytes at a log's end in which they are looked for.
const LOG_BYTES: u64 = 256 * 1024;

/// Open files of one attempt; one line a write.
#[derive(Debug)]
pub(super) struct Record {
    metrics: Append,
    ranks: Append,
    binding: Append,
}

#[derive(Debug)]
struct Append {
    file: File,
    path: PathBuf,
    /// The last write failed, perhaps in the middle of a line.
    torn: bool,
}

/// What became of a rank, in ranks.jsonl.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum RankEvent {
    /// Its shim reported.
    Joined {
        shim: i32,
    },
    Spawned {
        pid: i32,
        group: i32,
        start: u64,
    },
    Exit(crate::control::Ended),
    Lost,
    /// The node saw its shim end.
    ShimGone {
        code: Option<i32>,
        signal: Option<i32>,
    },
}

#[derive(Debug, Serialize)]
struct RankLine<'a> {
    time: String,
    rank: usize,
    node: &'a str,
    #[serde(flatten)]
    event: &'a RankEvent,
}

#[derive(Debug, Serialize)]
struct BindingLine<'a> {
    rank: usize,
    node: &'a str,
    /// Read back from the kernel.
    cores: &'a [usize],
    /// Absent when nothing was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<&'a [usize]>,
    /// Absent when nothing was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_asked: Option<bool>,
}

impl Record {
    pub(super) fn open(run: &RunDir, attempt: u32) -> Result<Record, StoreError> {
        let directory = run.attempt(attempt);
        Ok(Record {
            metrics: Append::open(run.metrics(attempt))?,
            ranks: Append::open(directory.join("ranks.jsonl"))?,
            binding: Append::open(directory.join("binding.jsonl"))?,
        })
    }

    pub(super) fn metrics(&mut self, lines: &[Line]) {
        self.metrics.lines(lines);
    }

    pub(super) fn rank(&mut self, rank: usize, node: &str, event: &RankEvent) {
        self.ranks.lines(&[RankLine {
            time: now(),
            rank,
            node,
            event,
        }]);
    }

    pub(super) fn binding(
        &mut self,
        rank: usize,
        node: &str,
        cores: &[usize],
        asked: Option<&[usize]>,
    ) {
        self.binding.lines(&[BindingLine {
            rank,
            node,
            cores,
            asked,
            as_asked: asked.map(|asked| asked == cores),
        }]);
    }
}

impl Append {
    fn open(path: PathBuf) -> Result<Append, StoreError> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        // A supervisor that was killed may have left half a line.
        let torn = match file.metadata().map(|m| m.len()) {
            Ok(0) | Err(_) => false,
            Ok(len) => {
                let mut last = [0];
                File::open(&path)
                    .and_then(|f| f.read_exact_at(&mut last, len - 1))
                    .is_ok_and(|()| last != *b"\n")
            }
        };
        Ok(Append { file, path, torn })
    }

    /// A full disk costs lines of the record, not the training: told once, tried again with the next lines.
    fn lines<T: Serialize>(&mut self, lines: &[T]) {
        let mut text = Vec::new();
        for line in lines {
            // What is written here is plain data, which always has a JSON form.
            if serde_json::to_writer(&mut text, line).is_ok() {
                text.push(b'\n');
            }
        }
        if text.is_empty() {
            return;
        }
        if self.torn {
            text.insert(0, b'\n');
        }
        match self.file.write_all(&text) {
            Ok(()) => self.torn = false,
            Err(error) => {
                if !std::mem::replace(&mut self.torn, true) {
                    let path = self.path.display();
                    super::say(&format!(
                        "cannot append to {path}: {error}; lines are missing from here"
                    ));
                }
            }
        }
    }
}

/// RFC 3339 UTC.
pub(super) fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// Adds the last lines of the log of the rank it accuses and publishes verdict.json.
pub(super) fn judge(run: &RunDir, attempt: u32, verdict: &mut Verdict) -> Result<(), StoreError> {
    if let (Some(rank), Some(node)) = (verdict.rank, &verdict.node) {
        verdict.log = last_lines(&run.log(attempt, node), &format!("{node}:{rank}"));
    }
    let path = run.attempt(attempt).join("verdict.json");
    let text = serde_json::to_vec_pretty(verdict).map_err(|e| StoreError::Damaged {
        path: path.clone(),
        reason: e.to_string(),
    })?;
    publish(&path, &text).map(|_| ())
}

/// The last lines of `who` in a node's log, without time and name; empty when they cannot be read.
fn last_lines(path: &Path, who: &str) -> Vec<String> {
    let mut lines: Vec<String> = newest_lines(path, LOG_BYTES)
        .iter()
        .rev()
        .filter_map(|line| {
            let (head, rest) = line.split_once(' ')?.1.split_once(' ')?;
            (head.trim_end_matches('+') == who).then(|| rest.to_owned())
        })
        .take(LOG_LINES)
        .collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_those_of_the_rank() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("local0.log");
        let mut text = String::new();
        for i in 0..30 {
            text.push_str(&format!(
                "T local0:1 line {i}\nT local0:11 other\nT local0:0 other\n"
            ));
        }
        text.push_str("T local0:1+ more\ntorn");
        std::fs::write(&path, text).unwrap();
        let lines = last_lines(&path, "local0:1");
        assert_eq!(lines.len(), LOG_LINES);
        assert_eq!(lines[18..], ["line 29", "more"]);
        assert!(last_lines(&dir.path().join("none"), "local0:1").is_empty());
    }
}
