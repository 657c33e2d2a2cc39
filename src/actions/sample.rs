//! Writes text with a checkpoint of a run: finds the checkpoint, then starts the run's own binary as a worker.

use crate::report::lineage::Lineage;
use crate::report::records;
use crate::store::RunDir;
use crate::store::journal::Event;
use anyhow::Context;
use haul_runtime::contract::checkpoint::{MANIFEST, Manifest, Point};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// What to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    pub prompt: String,
    pub tokens: u64,
    /// 0 takes the likeliest token always.
    pub temperature: f64,
    /// Only the k likeliest tokens; 0 is all.
    pub top_k: u64,
    pub seed: u64,
}

/// A checkpoint whose manifest and sizes are right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub at: Point,
    pub directory: PathBuf,
}

/// The newest checkpoint of the lineage of `run`, or the one of `step`. Ones that are not whole are passed over and told in `refused`.
pub fn checkpoint(
    run: &RunDir,
    step: Option<u64>,
    refused: &mut Vec<String>,
) -> anyhow::Result<Found> {
    let records = records::read(run)?;
    let lineage = Lineage::of(&records);
    let bad: Vec<Point> = records
        .entries
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Unreadable { at, .. } => Some(*at),
            _ => None,
        })
        .collect();
    let mut candidates = Vec::new();
    for attempt in run.numbers("checkpoints") {
        let listing = std::fs::read_dir(run.checkpoints(attempt));
        for entry in listing.into_iter().flatten().flatten() {
            let step = entry.file_name().to_str().and_then(|name| {
                let digits = name.strip_prefix("step-")?;
                digits.parse::<u64>().ok()
            });
            if let Some(step) = step {
                candidates.push(Found {
                    at: Point { attempt, step },
                    directory: entry.path(),
                });
            }
        }
    }
    candidates.retain(|c| lineage.keeps(c.at.attempt, c.at.step) && !bad.contains(&c.at));
    candidates.retain(|c| step.is_none_or(|step| step == c.at.step));
    candidates.sort_by_key(|c| std::cmp::Reverse((c.at.step, c.at.attempt)));
    for candidate in candidates {
        match whole(&candidate.directory) {
            Ok(()) => return Ok(candidate),
            Err(why) => refused.push(format!("{}: {why}", candidate.directory.display())),
        }
    }
    let wanted = step.map_or("checkpoint".to_owned(), |step| {
        format!("checkpoint of step {step}")
    });
    anyhow::bail!(
        "run {} has no {wanted} that is whole and valid, looked for in {}",
        run.id(),
        run.path().join("checkpoints").display()
    )
}

/// Whether the manifest can be read and every file has its size; sums are checked by the worker as it loads.
fn whole(directory: &Path) -> Result<(), String> {
    let path = directory.join(MANIFEST);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("no {MANIFEST} ({e})"))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|e| format!("{MANIFEST} is unreadable: {e}"))?;
    for file in &manifest.files {
        let size = std::fs::metadata(directory.join(&file.path)).map(|m| m.len());
        match size {
            Ok(size) if size == file.bytes => {}
            Ok(size) => {
                return Err(format!(
                    "{} has {size} bytes, its manifest says {}",
                    file.path, file.bytes
                ));
            }
            Err(error) => return Err(format!("{}: {error}", file.path)),
        }
    }
    Ok(())
}

/// The command that writes with `found`: the run's own binary, or this one where that is gone.
fn command(run: &RunDir, found: &Found, wish: &Wish) -> anyhow::Result<Command> {
    let slot = run
        .numbers("jobs")
        .into_iter()
        .rev()
        .find(|slot| run.plan(*slot).is_file());
    let slot = slot.with_context(|| {
        let jobs = run.path().join("jobs");
        format!("no plan.json of the run in {}", jobs.display())
    })?;
    let mut command = Command::new(binary(run)?);
    command
        .args(["worker", "--mode", "sample", "--plan"])
        .arg(run.plan(slot))
        .arg("--load")
        .arg(&found.directory)
        .arg(glued("--prompt", &wish.prompt))
        .arg(format!("--tokens={}", wish.tokens))
        .arg(format!("--temperature={}", wish.temperature))
        .arg(format!("--top-k={}", wish.top_k))
        .arg(format!("--seed={}", wish.seed))
        .stdin(Stdio::null());
    Ok(command)
}

/// `--flag=value`, so that a value that starts with a dash is no flag.
fn glued(flag: &str, value: &str) -> OsString {
    OsString::from(format!("{flag}={value}"))
}

fn binary(run: &RunDir) -> anyhow::Result<PathBuf> {
    let own = std::fs::read(run.provenance())
        .ok()
        .and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok())
        .and_then(|value| {
            let path = PathBuf::from(value.get("binary")?.as_str()?);
            let hash = path.file_name()?.to_str()?.to_owned();
            // A copied root has its binaries beside the run.
            let beside = run.root().bin(&hash);
            [path, beside].into_iter().find(|path| path.is_file())
        });
    match own {
        Some(path) => Ok(path),
        None => std::env::current_exe().context("cannot find the running binary"),
    }
}

/// Starts the worker and waits; its words go to this process's standard output.
pub fn sample(run: &RunDir, found: &Found, wish: &Wish) -> anyhow::Result<ExitStatus> {
    let mut command = command(run, found, wish)?;
    command
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))
}

/// The same, with what the worker writes in hand; bytes that are no UTF-8 are replaced.
pub fn text(run: &RunDir, found: &Found, wish: &Wish) -> anyhow::Result<(ExitStatus, String)> {
    let mut command = command(run, found, wish)?;
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Root;
    use crate::store::journal::Journal;
    use haul_runtime::contract::checkpoint::{FileEntry, SCHEMA};

    /// A run of two attempts, the second from step 20 of the first, with checkpoints at (attempt, step).
    fn run(points: &[(u32, u64)]) -> (tempfile::TempDir, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let run = Root::new(root.path()).run("tiny-261130-aaaa");
        let mut journal = Journal::open(&run, "supervisor").unwrap();
        for (attempt, parent) in [
            (1, None),
            (
                2,
                Some(Point {
                    attempt: 1,
                    step: 20,
                }),
            ),
        ] {
            let event = Event::Attempt {
                attempt,
                slot: 1,
                parent,
            };
            journal.append(event).unwrap();
        }
        for (attempt, step) in points {
            let directory = run.checkpoints(*attempt).join(format!("step-{step}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("w.safetensors"), [0; 8]).unwrap();
            let manifest = serde_json::json!({
                "schema": SCHEMA, "attempt": attempt, "step": step, "parent": null, "fingerprint": "",
                "files": [FileEntry { path: "w.safetensors".into(), bytes: 8, blake3: None }],
                "pieces": [],
            });
            std::fs::write(directory.join(MANIFEST), manifest.to_string()).unwrap();
        }
        (root, run)
    }

    fn found(run: &RunDir, step: Option<u64>) -> (Option<(u32, u64)>, usize) {
        let mut refused = Vec::new();
        let found = checkpoint(run, step, &mut refused).ok();
        (found.map(|f| (f.at.attempt, f.at.step)), refused.len())
    }

    #[test]
    fn the_newest_whole_checkpoint_of_the_lineage_is_taken() {
        let (_root, run) = run(&[(1, 10), (1, 20), (1, 90), (2, 30), (2, 40)]);
        assert_eq!(found(&run, None), (Some((2, 40)), 0));
        assert_eq!(found(&run, Some(10)), (Some((1, 10)), 0));
        assert_eq!(found(&run, Some(90)), (None, 0), "abandoned");

        std::fs::write(run.checkpoints(2).join("step-40/w.safetensors"), [0; 5]).unwrap();
        std::fs::write(run.checkpoints(2).join("step-30").join(MANIFEST), "{").unwrap();
        assert_eq!(found(&run, None), (Some((1, 20)), 2));
        let mut journal = Journal::open(&run, "supervisor").unwrap();
        let event = Event::Unreadable {
            at: Point {
                attempt: 1,
                step: 20,
            },
            reason: "sum".into(),
        };
        journal.append(event).unwrap();
        assert_eq!(found(&run, None), (Some((1, 10)), 2));
    }

    #[test]
    fn the_runs_own_binary_gets_the_wish_unchanged() {
        let (root, run) = run(&[(2, 40)]);
        let at = checkpoint(&run, None, &mut Vec::new()).unwrap();
        let binary = root.path().join("bin/abc");
        std::fs::create_dir_all(root.path().join("bin")).unwrap();
        std::fs::write(&binary, "").unwrap();
        // The run was copied: the recorded place is gone, the copy beside the run stands.
        std::fs::write(run.provenance(), r#"{"binary": "/gone/bin/abc"}"#).unwrap();
        std::fs::create_dir_all(run.job(1)).unwrap();
        std::fs::write(run.plan(1), "{}").unwrap();
        let wish = Wish {
            prompt: "--x $(y) 'z'".into(),
            tokens: 5,
            temperature: 0.5,
            top_k: 3,
            seed: 9,
        };
        let command = command(&run, &at, &wish).unwrap();
        assert_eq!(command.get_program(), binary);
        let arguments: Vec<&str> = command.get_args().map(|a| a.to_str().unwrap()).collect();
        let plan = run.plan(1);
        let expected = [
            "worker",
            "--mode",
            "sample",
            "--plan",
            plan.to_str().unwrap(),
            "--load",
            at.directory.to_str().unwrap(),
            "--prompt=--x $(y) 'z'",
            "--tokens=5",
            "--temperature=0.5",
            "--top-k=3",
            "--seed=9",
        ];
        assert_eq!(arguments, expected);
    }
}
