//! Writes text with a checkpoint of a run: finds the checkpoint, then starts the run's own binary as a worker.

use super::view;
use crate::plan::{Plan, Program, SchedulerKind};
use crate::report::records::Sampled;
use crate::store::checkpoints::{directory, search};
use crate::store::journal::{self, Entry, Event};
use crate::store::{RunDir, publish};
use anyhow::{Context, ensure};
use haul_runtime::contract::checkpoint::Point;
use haul_runtime::contract::exit;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the sample at the end of a run may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Its length in bytes.
const LENGTH: u64 = 200;

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

/// The newest checkpoint of the lineage of `run`, or the one of `step`. Ones that are not whole are passed over and told in
/// `refused`, those in `unreadable` without a word.
fn checkpoint(
    run: &RunDir,
    step: Option<u64>,
    unreadable: &[Point],
    refused: &mut Vec<String>,
) -> anyhow::Result<Found> {
    let (_, plan) = newest_plan(run)?;
    ensure!(
        plan.program == Program::Bundled,
        "run {} trained a program of its own, and only that program can write with its checkpoints; they stand in {}",
        run.id(),
        run.path().join("checkpoints").display()
    );
    let (mut entries, _) = journal::read(run)?;
    entries.extend(unreadable.iter().map(|at| Entry {
        epoch: 0,
        seq: 0,
        time: String::new(),
        role: String::new(),
        event: Event::Unreadable {
            at: *at,
            reason: String::new(),
        },
    }));
    let found = search(run, &entries, step);
    for (at, why) in &found.refused {
        refused.push(format!("{}: {why}", directory(run, *at).display()));
    }
    match found.newest {
        Some(at) => Ok(Found {
            at,
            directory: directory(run, at),
        }),
        None => {
            let wanted = step.map_or("checkpoint".to_owned(), |step| {
                format!("checkpoint of step {step}")
            });
            anyhow::bail!(
                "run {} has no {wanted} that is whole and valid, looked for in {}",
                run.id(),
                run.path().join("checkpoints").display()
            )
        }
    }
}

/// The newest slot that has a plan, and that plan.
fn newest_plan(run: &RunDir) -> anyhow::Result<(u32, Plan)> {
    let slots = run.numbers("jobs").into_iter().rev();
    slots
        .filter_map(|slot| Some((slot, view::plan(run, slot)?)))
        .next()
        .with_context(|| {
            let jobs = run.path().join("jobs");
            format!("no plan.json of the run can be read in {}", jobs.display())
        })
}

/// The command that writes with `found`: the run's own binary, or this one where that is gone.
fn command(run: &RunDir, found: &Found, wish: &Wish) -> anyhow::Result<Command> {
    let (slot, _) = newest_plan(run)?;
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

/// Writes with the newest checkpoint that can be read, or with that of `step`; `tell` hears which one is used and which are not.
/// The text goes to this process's standard output, or is returned where it shall be `held`.
pub fn sample(
    run: &RunDir,
    step: Option<u64>,
    wish: &Wish,
    held: bool,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<(Point, Option<String>)> {
    let mut unreadable = Vec::new();
    let mut told = Vec::new();
    loop {
        let mut refused = Vec::new();
        let found = checkpoint(run, step, &unreadable, &mut refused);
        for words in refused {
            if !told.contains(&words) {
                tell(&format!("warning: checkpoint passed over: {words}"));
                told.push(words);
            }
        }
        let found = found?;
        tell(&format!(
            "{}: checkpoint of step {} (attempt {})",
            run.id(),
            found.at.step,
            found.at.attempt
        ));
        let mut command = command(run, &found, wish)?;
        // Its errors pass through; bytes of its text that are no UTF-8 are replaced.
        command.stderr(Stdio::inherit());
        if !held {
            command.stdout(Stdio::inherit());
        }
        let output = command
            .output()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        // It loads before it writes, so nothing of this checkpoint stands anywhere.
        if output.status.code() == Some(exit::BAD_CHECKPOINT) {
            tell(&format!(
                "warning: checkpoint passed over: {} is unreadable, as told above",
                found.directory.display()
            ));
            unreadable.push(found.at);
            continue;
        }
        ensure!(
            output.status.success(),
            "the worker ended with {}; what it said stands above",
            output.status
        );
        let text = held.then(|| String::from_utf8_lossy(&output.stdout).into_owned());
        return Ok((found.at, text));
    }
}

/// Some lines of the newest checkpoint, kept in report/sample.json. Absent for what has no text: programs of others, tokens that
/// are no bytes, and runs of a cluster, whose models need not fit where they are followed.
pub fn keep(run: &RunDir) -> anyhow::Result<Option<Sampled>> {
    let (_, plan) = newest_plan(run)?;
    let bytes = plan
        .train_config
        .as_ref()
        .is_some_and(|config| config.model.vocab <= 256);
    let local = plan.machine.scheduler == SchedulerKind::Local;
    if plan.program != Program::Bundled || !bytes || !local {
        return Ok(None);
    }
    let found = checkpoint(run, None, &[], &mut Vec::new())?;
    let path = run.sample();
    let kept = std::fs::read(&path).ok();
    if let Some(kept) = kept.and_then(|text| serde_json::from_slice::<Sampled>(&text).ok())
        && (kept.attempt, kept.step) == (found.at.attempt, found.at.step)
    {
        return Ok(Some(kept));
    }
    let wish = Wish {
        prompt: "\n".into(),
        tokens: LENGTH,
        temperature: 0.8,
        top_k: 0,
        seed: 1,
    };
    let child = command(run, &found, &wish)?
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the worker that samples")?;
    let sampled = Sampled {
        attempt: found.at.attempt,
        step: found.at.step,
        text: output(child, PATIENCE)?.trim().to_owned(),
    };
    std::fs::create_dir_all(run.report())
        .and_then(|()| Ok(serde_json::to_vec_pretty(&sampled)?))
        .map_err(anyhow::Error::from)
        .and_then(|text| Ok(publish::replace(&path, &text)?))
        .with_context(|| format!("cannot keep the sample in {}", path.display()))?;
    Ok(Some(sampled))
}

/// What `child` writes, which is less than a pipe holds. It is killed after `patience`.
fn output(mut child: Child, patience: Duration) -> anyhow::Result<String> {
    let until = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for the worker")? {
            break status;
        }
        if Instant::now() >= until {
            // It may have ended just now.
            let _ = child.kill();
            child.wait().context("cannot wait for the worker")?;
            anyhow::bail!("the worker took longer than {} s", patience.as_secs_f64());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    ensure!(status.success(), "the worker ended with {status}");
    let mut text = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_end(&mut text)
            .context("cannot read from the worker")?;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Root;
    use crate::store::journal::Journal;
    use haul_runtime::contract::checkpoint::{FileEntry, MANIFEST, SCHEMA};

    /// A run of two attempts, the second from step 20 of the first, with checkpoints at (attempt, step).
    fn run(points: &[(u32, u64)]) -> (tempfile::TempDir, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let run = Root::new(root.path()).run("tiny-261130-aaaa");
        std::fs::create_dir_all(run.job(1)).unwrap();
        std::fs::copy(
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/fixtures/report/quickstart-261130-s7nt/jobs/1/plan.json"
            ),
            run.plan(1),
        )
        .unwrap();
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
        let found = checkpoint(run, step, &[], &mut refused).ok();
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
    fn a_checkpoint_that_its_worker_cannot_read_leads_to_the_one_before() {
        let (root, run) = run(&[(1, 20), (2, 30), (2, 40)]);
        std::fs::create_dir_all(root.path().join("bin")).unwrap();
        let binary = root.path().join("bin/abc");
        // The argument behind --load decides.
        let worker = "#!/bin/sh\ncase \"$*\" in *step-30*) echo words;; *) exit 76;; esac\n";
        std::fs::write(&binary, worker).unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&binary, all).unwrap();
        std::fs::write(run.provenance(), r#"{"binary": "/gone/bin/abc"}"#).unwrap();
        let wish = Wish {
            prompt: "x".into(),
            tokens: 5,
            temperature: 0.5,
            top_k: 3,
            seed: 9,
        };
        let mut told = Vec::new();
        let mut tell = |words: &str| told.push(words.to_owned());
        let (at, text) = sample(&run, None, &wish, true, &mut tell).unwrap();
        assert_eq!((at.step, text.as_deref()), (30, Some("words\n")));
        let error = sample(&run, Some(40), &wish, true, &mut tell).unwrap_err();
        assert!(
            error.to_string().contains("no checkpoint of step 40"),
            "{error}"
        );
        assert!(told[1].contains("step-40 is unreadable"), "{told:?}");
        assert!(
            told[2].contains("checkpoint of step 30 (attempt 2)"),
            "{told:?}"
        );
    }

    #[test]
    fn the_runs_own_binary_gets_the_wish_unchanged() {
        let (root, run) = run(&[(2, 40)]);
        let at = checkpoint(&run, None, &[], &mut Vec::new()).unwrap();
        let binary = root.path().join("bin/abc");
        std::fs::create_dir_all(root.path().join("bin")).unwrap();
        std::fs::write(&binary, "").unwrap();
        // The run was copied: the recorded place is gone, the copy beside the run stands.
        std::fs::write(run.provenance(), r#"{"binary": "/gone/bin/abc"}"#).unwrap();
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

    #[test]
    fn programs_of_others_are_not_sampled() {
        let (_root, run) = run(&[(2, 40)]);
        let (_, mut plan) = newest_plan(&run).unwrap();
        plan.program = Program::Command {
            command: vec!["true".into()],
        };
        std::fs::write(run.plan(1), serde_json::to_vec(&plan).unwrap()).unwrap();
        let error = checkpoint(&run, None, &[], &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("of its own"), "{error}");
        assert_eq!(keep(&run).unwrap(), None);
    }

    #[test]
    fn a_worker_that_hangs_or_fails_is_told_and_ended() {
        let worker = |script: &str| {
            Command::new("sh")
                .args(["-c", script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let hanging = worker("exec sleep 60");
        let pid = hanging.id() as i32;
        let error = output(hanging, Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("longer than 0.05 s"), "{error}");
        assert!(crate::store::identity::Process::of(pid).is_none());
        let error = output(worker("exit 3"), PATIENCE).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        assert_eq!(output(worker("echo words"), PATIENCE).unwrap(), "words\n");
    }
}
