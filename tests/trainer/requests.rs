//! Stops, the time limit, runs beside each other, a second resume.

use crate::field::{EVERY, Field, Outcome, Run, Told};
use haul_runtime::contract::metrics::Kind;
use std::collections::BTreeMap;

#[test]
fn a_run_stopped_with_a_checkpoint_goes_on_to_the_bit() {
    let field = Field::new();
    let follower = field.start(&["checkpoint.every=1000"]);
    let run = field.at_step(1, 7);
    let stopped = Told::of(field.haul(&["cancel", "--save", "last"]));
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    stopped.says("waiting");
    let told = Told::of(follower.wait_with_output().unwrap());
    assert_eq!(told.code, 5, "{told:#?}");
    let saved = run.bench.events("saved");
    let saved = saved[0]["step"].as_u64().unwrap();
    assert!((7..60).contains(&saved), "{saved}");
    field.assert_clean();
    let resumed = Told::of(field.haul(&["resume", "last", "--follow"]));
    assert_eq!(resumed.code, 0, "{resumed:#?}");
    assert_eq!(run.bench.steps(2), (saved + 1..=60).collect::<Vec<_>>());
    Outcome::of(&field, &run).assert_unbroken();
    field.assert_clean();
}

#[test]
fn a_run_saves_before_its_time_limit_and_goes_on_to_the_bit() {
    let field = Field::new();
    // Warned a quarter before the end.
    let set = [
        "checkpoint.every=100000",
        "job.walltime=2s",
        "train.until.steps=2000",
    ];
    let follower = field.start(&set);
    let run = field.at_step(1, 2);
    let told = Told::of(follower.wait_with_output().unwrap());
    assert_eq!(told.code, 5, "{told:#?}");
    told.says("saved and stopped before the time limit at step ");
    field.assert_clean();
    let saved = run.bench.events("saved")[0]["step"].as_u64().unwrap();
    let status = Told::of(field.haul(&["status", "last", "--json"])).json();
    assert_eq!(status["run"]["state"], "waiting", "{status:#}");
    let resumed = Told::of(field.haul(&["resume", "last", "--follow"]));
    assert_eq!(resumed.code, 5, "{resumed:#?}");
    let steps = run.bench.steps(2);
    assert_eq!(steps[0], saved + 1);
    // As far as both slots came, they are one unbroken run.
    let whole = Field::new();
    let until = *steps.last().unwrap();
    let other = whole.start(&["checkpoint.every=100000", "train.until.steps=2000"]);
    let unbroken = whole.at_step(1, until);
    let cancelled = Told::of(whole.haul(&["cancel", "last"]));
    assert_eq!(cancelled.code, 0, "{cancelled:#?}");
    assert_eq!(Told::of(other.wait_with_output().unwrap()).code, 4);
    let bits = |run: &Run, attempt| -> Vec<_> {
        let lines = run.bench.metrics(attempt).into_iter();
        let steps = lines.filter(|l| l.kind == Kind::Step);
        let bits: BTreeMap<u64, String> = steps
            .filter_map(|l| Some((l.step?, l.loss_bits?)))
            .collect();
        bits.into_iter().collect()
    };
    let mut both = bits(&run, 1);
    both.retain(|(step, _)| *step <= saved);
    both.extend(bits(&run, 2));
    let mut one = bits(&unbroken, 1);
    one.retain(|(step, _)| *step <= until);
    assert_eq!(both, one);
    whole.assert_clean();
    field.assert_clean();
}

#[test]
fn two_runs_at_once_do_not_meet() {
    let field = Field::new();
    let followers = [field.start(&[]), field.start(&[])];
    for follower in followers {
        let told = Told::of(follower.wait_with_output().unwrap());
        assert_eq!(told.code, 0, "{told:#?}");
    }
    let runs: Vec<_> = haul::store::select::newest_first(&field.root.root())
        .unwrap()
        .into_iter()
        .map(|run| field.view(run))
        .collect();
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!(run.dir.numbers("attempts"), [1]);
        Outcome::of(&field, run).assert_unbroken();
    }
    field.assert_clean();
}

#[test]
fn a_live_run_is_not_resumed_and_a_finished_one_says_so() {
    let field = Field::new();
    let follower = field.start(&[]);
    let run = field.at_step(1, EVERY);
    let refused = Told::of(field.haul(&["resume", "last"]));
    assert_eq!(refused.code, 1, "{refused:#?}");
    refused.says("is running");
    assert_eq!(Told::of(follower.wait_with_output().unwrap()).code, 0);
    let resumed = Told::of(field.haul(&["resume", "last"]));
    assert_eq!(resumed.code, 0, "{resumed:#?}");
    resumed.says("nothing to resume");
    assert_eq!(run.dir.numbers("jobs"), [1]);
    Outcome::of(&field, &run).assert_unbroken();
    field.assert_clean();
}

#[test]
fn a_chain_of_jobs_is_one_unbroken_run_up_to_its_limit() {
    let field = Field::new();
    let set = [
        "train.until.steps=1000000",
        "checkpoint.every=100000",
        "train.eval.every=1000000",
        "chain=at-end",
        "limits.jobs=2",
        "job.walltime=4s",
    ];
    let told = Told::of(field.start(&set).wait_with_output().unwrap());
    assert_eq!(told.code, 5, "{told:#?}");
    told.says("goes on in slot 2");
    told.says("the chain stops: 2 jobs are its limit");
    let run = field.newest();
    assert_eq!(run.dir.numbers("jobs"), [1, 2]);
    assert_eq!(run.bench.events("link").len(), 1);
    assert!(run.bench.events("reopened").is_empty());
    field.assert_clean();
    let steps: Vec<u64> = (1..=2)
        .flat_map(|attempt| run.bench.steps(attempt))
        .collect();
    let until = *steps.last().unwrap();
    assert_eq!(steps, (1..=until).collect::<Vec<_>>());
    let bits = |run: &Run, attempts: std::ops::RangeInclusive<u32>| -> Vec<_> {
        let lines = attempts.flat_map(|attempt| run.bench.metrics(attempt));
        let steps = lines.filter(|l| l.kind == Kind::Step && l.step <= Some(until));
        let bits: BTreeMap<u64, String> = steps
            .filter_map(|l| Some((l.step?, l.loss_bits?)))
            .collect();
        bits.into_iter().collect()
    };
    let whole = Field::new();
    let other = whole.start(&set[..3]);
    let unbroken = whole.at_step(1, until);
    assert_eq!(Told::of(whole.haul(&["cancel", "last"])).code, 0);
    assert_eq!(Told::of(other.wait_with_output().unwrap()).code, 4);
    assert_eq!(bits(&run, 1..=2), bits(&unbroken, 1..=1));
}

#[test]
fn a_chain_is_cancelled_as_a_whole() {
    let field = Field::new();
    let set = [
        "chain=at-end",
        "job.walltime=4s",
        "train.until.steps=1000000",
        "checkpoint.every=100000",
    ];
    let follower = field.start(&set);
    let run = field.at_step(2, 1);
    let cancelled = Told::of(field.haul(&["cancel", "last"]));
    assert_eq!(cancelled.code, 0, "{cancelled:#?}");
    let told = Told::of(follower.wait_with_output().unwrap());
    assert_eq!(told.code, 4, "{told:#?}");
    field.assert_clean();
    let slots = run.dir.numbers("jobs").len();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(run.dir.numbers("jobs").len(), slots);
}
