//! What people see: followers, states, logs.

use crate::harness::*;
use haul::actions::standing::State;
use haul::actions::view;
use haul::scheduler::{How, JobState};
use haul::store::journal::Event;
use haul::store::{RunDir, select};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// `haul run` of a recipe whose job does `setup` before its supervisor starts.
fn run_command(root: &TestRoot, setup: &str) -> std::process::Child {
    let recipe = root.path().join("run.yaml");
    let indented = setup.replace('\n', "\n    ");
    std::fs::write(
        &recipe,
        format!(
            "name: follow\nprogram: {{command: [\"true\"]}}\ntrain: {{until: {{steps: 3}}}}\njob: {{nodes: 1, ranks_per_node: 1, cores_per_rank: 1}}\nenvironment:\n  setup: |\n    {indented}\n"
        ),
    )
    .unwrap();
    follow(root, &recipe)
}

#[test]
fn leaving_a_follower_changes_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGKILL] {
        let root = TestRoot::new();
        let go = root.path().join("go");
        let setup = format!(
            "while [ ! -e {} ]; do sleep 0.02; done\nexit 7",
            go.display()
        );
        let follower = run_command(&root, &setup);
        wait_for("the job", || {
            let jobs = root.jobs();
            let job = jobs.first()?;
            (root.state(job) == JobState::Running).then_some(())
        });
        // Long enough to be following, and not needed for the assertions.
        std::thread::sleep(Duration::from_millis(200));
        kill(Pid::from_raw(follower.id() as i32), signal).unwrap();
        let output = follower.wait_with_output().unwrap();
        if signal != Signal::SIGKILL {
            assert_eq!(output.status.code(), Some(5), "{output:?}");
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(words.contains("the run goes on"), "{words}");
            assert!(words.contains("haul cancel follow-"), "{words}");
        }
        assert_eq!(root.state("1"), JobState::Running);
        std::fs::write(&go, "").unwrap();
        assert_eq!(ended(&root, "1").how, How::Exited(7));
    }
}

#[test]
fn a_follower_tells_a_job_that_failed_before_its_supervisor_with_what_it_wrote() {
    let root = TestRoot::new();
    let follower = run_command(&root, "echo no such module >&2\nexit 7");
    let output = follower.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("exited with code 7"), "{told}");
    assert!(told.contains("no such module"), "{told}");
    assert!(told.contains("haul resume follow-"), "{told}");
}

/// A recipe of the 20-line shell trainer on two virtual nodes: `steps` of 50 ms, a checkpoint every five.
fn shell_trainer(root: &TestRoot, steps: u32, failures: u32) -> PathBuf {
    let trainer = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/shell-trainer.sh");
    let recipe = root.path().join("shell.yaml");
    std::fs::write(
        &recipe,
        format!(
            "name: shell\nprogram: {{command: [bash, {:?}, \"{steps}\", \"0.05\", \"5\"]}}\ntrain: {{until: {{steps: {steps}}}}}\njob: {{nodes: 2, ranks_per_node: 1, cores_per_rank: 1}}\nrestart: {{failures: {failures}}}\n",
            trainer.display().to_string()
        ),
    )
    .unwrap();
    recipe
}

fn follow(root: &TestRoot, recipe: &Path) -> std::process::Child {
    Command::new(HAUL)
        .arg("run")
        .arg(recipe)
        .env("HAUL_ROOT", root.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The only run of a root, once it has taken `steps`.
fn at_step(root: &TestRoot, steps: u64) -> RunDir {
    wait_for("a step", || {
        let run = select::find(&root.root(), "last").ok()?;
        let step = view::look(&run).ok()?.view.progress.step?;
        (step >= steps).then_some(run)
    })
}

#[test]
fn a_run_is_followed_to_its_end_and_reported() {
    let root = TestRoot::new();
    let recipe = shell_trainer(&root, 12, 0);
    let output = follow(&root, &recipe).wait_with_output().unwrap();
    let (told, said) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.status.code(), Some(0), "{told}{said}");
    assert!(said.contains("2 ranks on local0, local1"), "{said}");
    assert!(said.contains("step 12/12"), "{said}");
    assert!(said.contains("checkpoint at step 10"), "{said}");
    let run = select::find(&root.root(), "shell").unwrap();
    assert!(told.contains(&format!("{} finished", run.id())), "{told}");
    let report = run.report().join("report.html");
    assert!(told.contains(&report.display().to_string()), "{told}");
    assert!(report.exists());
    let resumed = root.haul(&["resume", "last"]);
    assert_eq!(resumed.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&resumed.stderr).contains("nothing to resume"));
    assert_eq!(run.numbers("jobs"), [1]);
    let logs = root.haul(&["logs", "last", "--rank", "1"]);
    let logs = String::from_utf8_lossy(&logs.stdout).into_owned();
    assert!(
        logs.contains("local1:1 rank 1 of 2 starts at step 0"),
        "{logs}"
    );
    assert!(!logs.contains("rank 0 of 2"), "{logs}");
}

#[test]
fn a_finished_run_of_the_bundled_trainer_shows_what_its_model_writes() {
    let root = TestRoot::new();
    std::fs::write(root.path().join("text"), "to be or not to be ".repeat(200)).unwrap();
    let recipe = root.path().join("tiny.yaml");
    std::fs::write(
        &recipe,
        "name: tiny\nmodel: {layers: 1, hidden: 32, heads: 2, ffn: 64, vocab: 256, seq_len: 16}\nbatch: {micro: 2, per_replica: 2}\ntrain: {until: {steps: 3}}\ndata: {path: text, format: bytes, validation: 0.1}\njob: {nodes: 1, ranks_per_node: 1, cores_per_rank: 1}\n",
    )
    .unwrap();
    let output = follow(&root, &recipe).wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(told.contains("─ sample of step 3 ─"), "{told}");
    let run = select::find(&root.root(), "tiny").unwrap();
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(run.sample()).unwrap()).unwrap();
    assert_eq!(kept["step"], 3);
    let text = kept["text"].as_str().unwrap();
    assert!(text.chars().count() > 20, "{text:?}");
    let report = root.haul(&["--json", "report", "last"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["sample"]["text"], text);
    assert!(told.contains("haul sample tiny-"), "{told}");
}

#[test]
fn a_killed_supervisor_is_told_to_followers_and_the_run_goes_on_from_its_checkpoint() {
    let root = TestRoot::new();
    let recipe = shell_trainer(&root, 24, 0);
    let follower = follow(&root, &recipe);
    let run = at_step(&root, 7);
    let lead = process(&root, "1", "state");
    kill(Pid::from_raw(lead.pid), Signal::SIGKILL).unwrap();
    let output = follower.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(
        told.contains("the supervisor was killed by SIGKILL"),
        "{told}"
    );
    let resumed = root.haul(&["resume", "last", "--follow"]);
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert_eq!(resumed.status.code(), Some(0), "{said}");
    let seen = view::look(&run).unwrap();
    assert_eq!((seen.view.state, seen.view.slot), (State::Finished, 2));
    assert!(
        said.contains("starts from the checkpoint of step"),
        "{said}"
    );
}

#[test]
fn a_run_is_stopped_with_a_checkpoint_resumed_and_cancelled() {
    let root = TestRoot::new();
    let recipe = shell_trainer(&root, 4000, 0);
    let follower = follow(&root, &recipe);
    let run = at_step(&root, 3);
    let stopped = root.haul(&["cancel", "--save", "last"]);
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    let told = String::from_utf8_lossy(&stopped.stdout).into_owned();
    assert!(told.contains("waiting"), "{told}");
    // Stopped is not finished.
    let followed = follower.wait_with_output().unwrap();
    assert_eq!(followed.status.code(), Some(5));
    let before = view::look(&run).unwrap().view.progress.step.unwrap();
    assert_eq!(root.haul(&["resume", "last"]).status.code(), Some(0));
    at_step(&root, before + 2);
    let follower = Command::new(HAUL)
        .args(["logs", "-f", "last"])
        .env("HAUL_ROOT", root.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let cancelled = root.haul(&["cancel", "last"]);
    assert_eq!(cancelled.status.code(), Some(0), "{cancelled:?}");
    let seen = view::look(&run).unwrap();
    assert_eq!((seen.view.state, seen.view.slot), (State::Cancelled, 2));
    let logs = follower.wait_with_output().unwrap();
    assert!(logs.status.success());
    let logs = String::from_utf8_lossy(&logs.stdout).into_owned();
    let starts: Vec<&str> = logs
        .lines()
        .filter(|line| line.contains("starts at step"))
        .collect();
    assert_eq!(starts.len(), 4, "{logs}");
    assert!(!starts[2].ends_with("step 0"), "{logs}");
}

#[test]
fn status_and_logs_speak_json_and_name_candidates() {
    let root = TestRoot::new();
    let empty = root.haul(&["status"]);
    assert_eq!(empty.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&empty.stdout).contains("no runs"));
    let mut runs = Vec::new();
    for script in ["echo from the job\nexit 0\n", "exit 0\n"] {
        let (mut submitter, run) = in_another_process(&root, script, &[]);
        submitter.kill().unwrap();
        submitter.wait().unwrap();
        ended(&root, &(runs.len() + 1).to_string());
        runs.push(run);
    }
    let [first, second] = [&runs[0], &runs[1]];
    for _ in 0..2 {
        // The second time from what was kept of runs that are over.
        let output = root.haul(&["status", "--json"]);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["schema"], "haul.status/1");
        assert_eq!(document["total"], 2);
        let ids: Vec<&str> = document["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, [second.id(), first.id()]);
        assert_eq!(document["runs"][0]["state"], "failed");
    }
    assert!(first.path().join("summary.json").exists());
    let output = root.haul(&["status", "te"]);
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains(&first.id()) && words.contains(&second.id()),
        "{words}"
    );
    let output = root.haul(&["logs", "--job", &first.id()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from the job\n");
}

#[test]
fn the_end_of_a_run_is_told_once_by_the_command_of_the_recipe() {
    let root = TestRoot::new();
    let out = root.path().join("told");
    let script = root.path().join("tell.sh");
    let lines = format!(
        "#!/bin/sh\necho \"$HAUL_RUN $HAUL_EVENT $HAUL_WORDS\" >> {}\nexit 5\n",
        out.display()
    );
    std::fs::write(&script, lines).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let recipe = root.path().join("run.yaml");
    let run = |program: &str, on: &str| {
        let text = format!(
            "name: told\nprogram: {{command: {program}}}\ntrain: {{until: {{steps: 3}}}}\njob: {{nodes: 1, ranks_per_node: 1, cores_per_rank: 1}}\nrestart: {{failures: 1}}\nnotify: {{on: {on}, command: [./tell.sh]}}\n"
        );
        std::fs::write(&recipe, text).unwrap();
        let output = root.haul(&["run", recipe.to_str().unwrap()]);
        let run = select::find(&root.root(), "last").unwrap();
        let events = wait_for("the end of the job", || {
            let seen = view::look(&run).ok()?;
            matches!(seen.job, Some(JobState::Ended(_))).then_some(seen.entries)
        });
        let notified: Vec<Event> = events
            .into_iter()
            .map(|entry| entry.event)
            .filter(|event| matches!(event, Event::Notified { .. }))
            .collect();
        let told = std::fs::read_to_string(&out).unwrap_or_default();
        let _ = std::fs::remove_file(&out);
        (output.status.code(), run.id(), notified, told)
    };
    // Two attempts fail, the run once. That the command fails changes nothing.
    let (code, id, notified, told) = run("[sh, -c, \"exit 9\"]", "[failed]");
    assert_eq!(code, Some(3));
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.starts_with(&format!("{id} failed ")) && told.contains('9'),
        "{told}"
    );
    let [
        Event::Notified {
            on,
            error: Some(error),
        },
    ] = &notified[..]
    else {
        panic!("{notified:?}");
    };
    assert!(
        on == "failed" && error.contains("exit status: 5"),
        "{notified:?}"
    );
    let (code, id, notified, told) = run("[\"true\"]", "[failed, finished]");
    assert_eq!((code, notified.len()), (Some(0), 1), "{told}");
    assert!(told.starts_with(&format!("{id} finished ")), "{told}");
    let (code, _, notified, told) = run("[\"true\"]", "[failed]");
    assert_eq!((code, notified.len(), told.as_str()), (Some(0), 0, ""));
}
