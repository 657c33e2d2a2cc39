//! Parts of the cluster go away while a run is on its way.

use crate::field::{Field, TWO_NODES, alone, cluster, idle_nodes, slurm, wait_for};
use std::time::Instant;

/// What was taken away comes back, however a test ends.
struct Fault(Vec<String>);

impl Fault {
    fn of(what: &[&str], back: &[&str]) -> Fault {
        cluster(what);
        Fault(back.iter().map(|word| (*word).to_owned()).collect())
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        let back: Vec<&str> = self.0.iter().map(String::as_str).collect();
        cluster(&back);
    }
}

#[track_caller]
fn all_nodes() {
    wait_for("all nodes", || (idle_nodes() == 4).then_some(()));
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_run_goes_on_while_the_controller_is_dead() {
    let _cluster = alone();
    let field = Field::new();
    let run = field.submit(&field.recipe("400, 0.05, 50", TWO_NODES));
    // The controller writes its state every 5 s; what it has not written it forgets.
    run.wait_for_step(1, 150);
    let fault = Fault::of(&["controller", "kill"], &["controller", "start"]);
    run.wait_for_step(1, 200);
    let (state, _) = field.state();
    assert_eq!(state, "training");
    drop(fault);
    field.wait_until("finished");
    field.assert_whole(400);
    all_nodes();
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_dead_controller_is_told_as_unclear_and_the_submission_is_completed_later() {
    let _cluster = alone();
    let field = Field::new();
    let recipe = field.recipe("20, 0.05, 50", TWO_NODES);
    let fault = Fault::of(&["controller", "kill"], &["controller", "start"]);
    let told = field.haul(&["submit", &recipe]);
    drop(fault);
    assert_eq!(told.code, 6, "{told:#?}");
    told.says("controller");
    let told = wait_for("an answer", || {
        let told = field.haul(&["resume", "last", "--follow"]);
        (told.code == 0).then_some(told)
    });
    told.says("finished at step 20");
    assert_eq!(field.newest().events("submitted").len(), 1);
    all_nodes();
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn without_the_database_a_run_is_submitted_trains_and_ends() {
    let _cluster = alone();
    let field = Field::new();
    let fault = Fault::of(&["database", "kill"], &["database", "start"]);
    let told = field.haul(&["run", &field.recipe("60, 0.05, 20", TWO_NODES)]);
    drop(fault);
    assert_eq!(told.code, 0, "{told:#?}");
    field.assert_whole(60);
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_node_that_loses_power_is_told_and_the_run_goes_on_elsewhere() {
    let _cluster = alone();
    all_nodes();
    let field = Field::new();
    let run = field.submit(&field.recipe("400, 0.05, 20", TWO_NODES));
    run.wait_for_step(1, 50);
    let nodes = run.events("launched")[0]["nodes"].clone();
    let lost = nodes[1].as_str().unwrap();
    let begin = Instant::now();
    let fault = Fault::of(&["node", lost, "off"], &["node", lost, "on"]);
    let words = field.wait_until_told("failed", "lost a node");
    println!("told after {:.1} s: {words}", begin.elapsed().as_secs_f64());
    let told = field.haul(&["resume", "last", "--follow"]);
    drop(fault);
    assert_eq!(told.code, 0, "{told:#?}");
    let again = run.events("launched").last().unwrap()["nodes"].clone();
    assert!(
        !again.as_array().unwrap().iter().any(|node| node == lost),
        "{again}"
    );
    field.assert_whole(400);
    all_nodes();
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn what_a_node_writes_that_was_cut_off_is_not_read() {
    let _cluster = alone();
    all_nodes();
    let field = Field::new();
    let run = field.submit(&field.recipe("300, 0.05, 10", TWO_NODES));
    run.wait_for_step(1, 50);
    let nodes = run.events("launched")[0]["nodes"].clone();
    let cut = nodes[1].as_str().unwrap();
    let fault = Fault::of(&["node", cut, "cut"], &["node", cut, "heal"]);
    field.wait_until("failed");
    let told = field.haul(&["resume", "last", "--follow"]);
    drop(fault);
    assert_eq!(told.code, 0, "{told:#?}");
    field.assert_whole(300);
    all_nodes();
    let left = slurm(&["squeue", "-h", "-o", "%j"]);
    assert!(!left.contains(&run.0.id()), "{left}");
    field.assert_whole(300);
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_job_that_cannot_write_its_output_says_so() {
    let _cluster = alone();
    all_nodes();
    let field = Field::of("ada");
    let holder = slurm(&[
        "sbatch",
        "--parsable",
        "--output=/dev/null",
        "-N",
        "4",
        "--wrap",
        "sleep 120",
    ]);
    let holder = holder.trim();
    wait_for("the holder", || {
        let state = slurm(&["squeue", "-h", "-j", holder, "-o", "%T"]);
        (state.trim() == "RUNNING").then_some(())
    });
    let run = field.submit(&field.recipe("20, 0.05, 10", TWO_NODES));
    let directory = run.0.job(1);
    cluster(&["exec", "chmod", "a-w", directory.to_str().unwrap()]);
    slurm(&["scancel", holder]);
    field.wait_until_told("failed", "output file or directory");
    cluster(&["exec", "chmod", "u+w", directory.to_str().unwrap()]);
    assert!(run.0.numbers("attempts").is_empty());
}
