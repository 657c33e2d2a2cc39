//! SIGKILL of each kind of process in mid-run: told in words, nothing left, and the curve goes on as if nothing had been.

use crate::bench::send;
use crate::field::{EVERY, Field, Outcome, Run, STEPS, Told};
use crate::harness::{process, wait_for};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// The stated limit is 2 s; a loaded machine gets ten times that.
const TOLD: Duration = Duration::from_secs(20);

/// Kills `victim` of a run that may not fail; follower, journal and `haul status` tell `words`; then the run is resumed.
fn killed_told_and_resumed(set: &[&str], victim: impl Fn(&Field, &Run) -> i32, words: &str) {
    let field = Field::new();
    let follower = field.start(set);
    let run = field.at_step(1, EVERY + 2);
    let victim = victim(&field, &run);
    let since = Instant::now();
    send(victim, Signal::SIGKILL);
    let told = Told::of(follower.wait_with_output().unwrap());
    let took = since.elapsed();
    println!("told after {took:?}: {}", told.out);
    assert_eq!(told.code, 3, "{told:#?}");
    assert!(took < TOLD);
    told.says(words);
    Told::of(field.haul(&["status", "last"])).says(words);
    let status = Told::of(field.haul(&["status", "last", "--json"])).json();
    assert_eq!(status["run"]["state"], "failed", "{status:#}");
    field.assert_clean();

    let resumed = Told::of(field.haul(&["resume", "last", "--follow"]));
    assert_eq!(resumed.code, 0, "{resumed:#?}");
    let parent = &run.bench.events("attempt")[1]["parent"];
    assert!(parent["step"].as_u64().unwrap() >= EVERY, "{parent}");
    Outcome::of(&field, &run).assert_unbroken();
    field.assert_clean();
}

fn judged(run: &Run) -> String {
    run.bench.verdict(1)["words"].as_str().unwrap().to_owned()
}

#[test]
fn a_killed_worker() {
    killed_told_and_resumed(
        &[],
        |_, run| run.bench.pid_of_rank(1, 1),
        "rank 1 on local0 was killed by SIGKILL at step ",
    );
}

#[test]
fn a_killed_shim() {
    killed_told_and_resumed(
        &[],
        |_, run| run.bench.pid_of_shim(1, 0),
        "the shim of rank 0 on local0 was killed by SIGKILL at step ",
    );
}

#[test]
fn a_killed_launcher() {
    killed_told_and_resumed(
        &["job.nodes=2", "job.ranks_per_node=1"],
        |_, run| {
            let mut processes = run.bench.processes();
            processes.retain(|(_, line)| line.contains(" launch ") && line.contains("--node 1"));
            processes[0].0
        },
        "the launcher of node local1 was killed by SIGKILL at step ",
    );
}

#[test]
fn a_killed_supervisor() {
    killed_told_and_resumed(
        &[],
        |field, _| process(&field.root, "1", "state").pid,
        "the supervisor was killed by SIGKILL",
    );
}

#[test]
fn a_killed_submitter_changes_nothing() {
    let field = Field::new();
    let mut follower = field.start(&[]);
    let run = field.at_step(1, EVERY + 2);
    send(follower.id() as i32, Signal::SIGKILL);
    follower.wait().unwrap();
    let logs = Told::of(field.haul(&["logs", "-f", "last"]));
    assert_eq!(logs.code, 0, "{logs:?}");
    Told::of(field.haul(&["status", "last"])).says("finished at step 60");
    assert_eq!(run.dir.numbers("attempts"), [1]);
    field.assert_clean();
    Outcome::of(&field, &run).assert_unbroken();
}

#[test]
fn a_killed_keeper_is_told_and_the_run_goes_on() {
    let field = Field::new();
    // Long enough to be seen without a keeper.
    let follower = field.start(&["train.until.steps=200"]);
    let run = field.at_step(1, EVERY + 2);
    send(process(&field.root, "1", "job").pid, Signal::SIGKILL);
    wait_for("the words", || {
        let status = Told::of(field.haul(&["status", "last"])).out;
        let words = "was killed, so nobody holds job 1 to its time limit";
        (status.contains("its keeper (process ") && status.contains(words)).then_some(())
    });
    let told = Told::of(follower.wait_with_output().unwrap());
    assert_eq!(told.code, 0, "{told:#?}");
    told.says("finished at step 200");
    assert_eq!(run.bench.steps(1), (1..=200).collect::<Vec<_>>());
    assert_eq!(run.dir.numbers("attempts"), [1]);
    field.assert_clean();
}

#[test]
fn within_the_limit_the_run_restarts_by_itself() {
    let field = Field::new();
    let follower = field.start(&["restart.failures=2"]);
    let run = field.at_step(1, EVERY + 2);
    send(run.bench.pid_of_rank(1, 0), Signal::SIGKILL);
    run.bench.wait_for_step(2, 2 * EVERY + 3);
    send(run.bench.pid_of_shim(2, 1), Signal::SIGKILL);
    let told = Told::of(follower.wait_with_output().unwrap());
    assert_eq!(told.code, 0, "{told:#?}");
    told.says("rank 0 on local0 was killed by SIGKILL")
        .says("the shim of rank 1 on local0 was killed by SIGKILL");
    assert!(judged(&run).starts_with("rank 0 on local0 was killed by SIGKILL at step "));
    assert_eq!(run.dir.numbers("attempts"), [1, 2, 3]);
    let outcome = Outcome::of(&field, &run);
    assert_eq!(outcome.losses.len() as u64, STEPS);
    outcome.assert_unbroken();
    field.assert_clean();
}

#[test]
fn what_a_worker_says_of_its_failure_stands_in_the_verdict() {
    let field = Field::new();
    let follower = field.start(&["restart.failures=1"]);
    let run = field.at_step(1, EVERY + 2);
    std::fs::remove_file(field.root.path().join("text.txt")).unwrap();
    send(run.bench.pid_of_rank(1, 0), Signal::SIGKILL);
    let told = Told::of(follower.wait_with_output().unwrap());
    assert_eq!(told.code, 3, "{told:#?}");
    let verdict = run.bench.verdict(2);
    let words = verdict["words"].as_str().unwrap();
    assert!(words.contains("on local0 exited with code 1"), "{words}");
    assert!(
        words.contains("text.txt") && words.contains("No such file"),
        "{words}"
    );
    told.says(words);
    Told::of(field.haul(&["status", "last"])).says("No such file");
}
