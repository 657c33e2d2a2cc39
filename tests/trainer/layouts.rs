//! What may change without changing a bit: virtual nodes, threads, evaluations, saves.

use crate::field::{Field, Outcome, Told, unbroken};

#[track_caller]
fn outcome(set: &[&str]) -> Outcome {
    let field = Field::new();
    field.run(set);
    let outcome = Outcome::of(&field, &field.newest());
    field.assert_clean();
    outcome
}

#[test]
fn two_virtual_nodes_of_one_rank_are_one_of_two() {
    let field = Field::new();
    field.run(&["job.nodes=2", "job.ranks_per_node=1"]);
    let run = field.newest();
    Outcome::of(&field, &run).assert_unbroken();
    let notes = run
        .bench
        .metrics(1)
        .into_iter()
        .filter_map(|line| line.values);
    let transports: Vec<_> = notes.filter_map(|v| v.get("transport").cloned()).collect();
    assert_eq!(transports, ["tcp"]);
    field.assert_clean();
}

#[test]
fn two_threads_a_rank_are_one() {
    outcome(&["job.cores_per_rank=2"]).assert_unbroken();
}

#[test]
fn evaluations_and_saves_change_no_bit_of_training() {
    let seldom = outcome(&["train.eval.every=0", "checkpoint.every=1000"]);
    assert!(seldom.validation.is_empty());
    assert_eq!(seldom.losses, unbroken().losses);
    assert_eq!(seldom.state, unbroken().state);
    let field = Field::new();
    let told = field.run(&["checkpoint=off", "train.eval.every=7"]);
    assert!(!told.err.contains("checkpoint at step"), "{}", told.err);
    let run = field.newest();
    assert!(run.bench.events("saved").is_empty());
    let losses: Vec<(u64, u64)> = run
        .bench
        .metrics(1)
        .into_iter()
        .filter(|line| line.kind == haul_runtime::contract::metrics::Kind::Step)
        .map(|line| (line.step.unwrap(), line.loss.unwrap().to_bits()))
        .collect();
    assert_eq!(losses, unbroken().losses);
    field.assert_clean();
}

#[test]
fn more_ranks_than_cores_train_and_are_told_to_share_them() {
    let field = Field::new();
    let cores = std::thread::available_parallelism().unwrap().get();
    let ranks = format!("job.ranks_per_node={}", 2 * cores);
    let told = field.run(&[&ranks, "batch.per_replica=4", "train.until.steps=20"]);
    told.says("shared cores");
    assert_eq!(field.newest().bench.steps(1), (1..=20).collect::<Vec<_>>());
    let report = Told::of(field.haul(&["report", "last"]));
    report.says("ranks share cores");
    field.assert_clean();
}
