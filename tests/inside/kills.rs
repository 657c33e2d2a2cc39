//! SIGKILL of each kind of process in mid-run: told in words, nothing left running, continued where allowed.

use crate::bench::{Bench, Setup, bash, send, trainer, wait};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// The stated limit is 2 s; a loaded machine gets ten times that.
const TOLD: Duration = Duration::from_secs(20);

/// Runs a trainer without failures allowed, kills what `victim` names, returns the verdict's words.
fn kill_one(nodes: usize, victim: impl Fn(&Bench) -> i32) -> (Bench, String) {
    let bench = Bench::new(&Setup {
        nodes,
        ..trainer(100_000, "0.02", 5)
    });
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 7);
    let pid = victim(&bench);
    let since = Instant::now();
    send(pid, Signal::SIGKILL);
    assert_eq!(supervisor.wait(), 3, "{}", supervisor.output());
    let took = since.elapsed();
    let words = bench.verdict(1)["words"].as_str().unwrap().to_owned();
    println!("told after {took:?}: {words}");
    assert!(took < TOLD);
    assert_eq!(bench.events("finished")[0]["words"], words.as_str());
    bench.assert_clean();
    (bench, words)
}

/// The step in `… at step 7`.
fn step_in(words: &str, before: &str) -> u64 {
    let step = words
        .strip_prefix(before)
        .and_then(|rest| rest.strip_prefix(" at step "));
    step.unwrap_or_else(|| panic!("{words}")).parse().unwrap()
}

#[test]
fn a_killed_rank_is_named() {
    let (bench, words) = kill_one(1, |bench| bench.pid_of_rank(1, 1));
    assert!(step_in(&words, "rank 1 on local0 was killed by SIGKILL") >= 6);
    let verdict = bench.verdict(1);
    assert_eq!(
        (&verdict["rank"], &verdict["signal"]),
        (&1.into(), &9.into())
    );
    assert_eq!(verdict["log"][0], "rank 1 of 2 starts at step 0");
}

#[test]
fn a_killed_shim_is_named_and_takes_its_rank_along() {
    let (_, words) = kill_one(1, |bench| bench.pid_of_shim(1, 0));
    step_in(&words, "the shim of rank 0 on local0 was killed by SIGKILL");
}

#[test]
fn a_killed_launcher_is_named_and_takes_its_node_along() {
    let launcher = |bench: &Bench| {
        let launchers = bench.processes();
        let name = "--node 1";
        launchers
            .iter()
            .find(|(_, line)| line.contains(name))
            .unwrap()
            .0
    };
    let (_, words) = kill_one(2, launcher);
    step_in(&words, "the launcher of node local1 was killed by SIGKILL");
}

#[test]
fn ranks_of_a_killed_supervisor_end_by_themselves_and_the_next_one_continues() {
    let mut bench = Bench::new(&trainer(60, "0.02", 5));
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 7);
    let since = Instant::now();
    send(supervisor.pid(), Signal::SIGKILL);
    assert_eq!(supervisor.wait(), 128 + 9);
    wait("the end of all ranks", || bench.processes().is_empty());
    println!("all ended after {:?}", since.elapsed());
    bench.assert_clean();
    assert!(bench.log(1, "local0").contains("haul: lost the supervisor"));

    bench.reopen(&trainer(60, "0.02", 5));
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    // The ranks went on for a moment and saved: nothing of that is lost, and no step is missing or told twice.
    let steps = bench.steps(2);
    let parent = bench.events("attempt")[1]["parent"]["step"]
        .as_u64()
        .unwrap();
    assert!(
        bench
            .run
            .join(format!("checkpoints/1/state-{parent}"))
            .exists()
    );
    assert!(
        !bench
            .run
            .join(format!("checkpoints/1/state-{}", parent + 1))
            .exists()
    );
    assert!(
        parent > 7 && steps == (parent + 1..=60).collect::<Vec<_>>(),
        "{parent} {steps:?}"
    );
    let mut before = bench.steps(1);
    before.retain(|step| *step <= parent);
    assert_eq!(before, (1..=parent).collect::<Vec<_>>());
    assert!(!bench.attempt(1).join("late").exists());
    bench.assert_clean();
}

#[test]
fn a_failure_within_the_limit_continues_from_the_checkpoint() {
    let setup = trainer(30, "0.02", 5);
    let bench = Bench::new(&Setup {
        failures: 1,
        ..setup
    });
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 12);
    send(bench.pid_of_rank(1, 0), Signal::SIGKILL);
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    assert_eq!(bench.verdict(1)["class"], "failed");
    assert_eq!(bench.verdict(2)["class"], "done");
    let parent = bench.events("attempt")[1]["parent"].clone();
    assert_eq!(parent["attempt"], 1);
    let from = parent["step"].as_u64().unwrap();
    assert!(from >= 10, "{from}");
    assert_eq!(bench.steps(2), (from + 1..=30).collect::<Vec<_>>());
    // The curve is that of an unbroken run.
    let unbroken = Bench::new(&trainer(30, "0", 5));
    assert_eq!(unbroken.supervise().wait(), 0);
    let losses = |bench: &Bench, attempt| -> Vec<_> {
        let lines = bench.metrics(attempt).into_iter();
        lines
            .filter(|l| l.loss.is_some())
            .map(|l| (l.step, l.loss_bits))
            .collect()
    };
    let unbroken = losses(&unbroken, 1);
    assert_eq!(unbroken.len(), 30);
    assert_eq!(losses(&bench, 2)[..], unbroken[from as usize..]);
    bench.assert_clean();
}

#[test]
fn children_of_a_rank_end_with_it_even_in_groups_of_their_own() {
    let bench = Bench::new(&bash(
        r#"setsid sleep 1000 & (sleep 1000 &) & sleep 1000 &
           echo '{"kind":"step","step":1}' >> "$HAUL_PROGRESS"; wait"#,
    ));
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 1);
    send(bench.pid_of_shim(1, 1), Signal::SIGKILL);
    assert_eq!(supervisor.wait(), 3);
    bench.assert_clean();

    // The same when the program just leaves them.
    let bench = Bench::new(&bash("setsid sleep 1000 & (sleep 1000 &) & exit 0"));
    assert_eq!(bench.supervise().wait(), 0);
    bench.assert_clean();
}

#[test]
fn a_frozen_shim_is_silent_and_is_killed() {
    let mut bench = Bench::new(&trainer(100_000, "0.02", 5));
    bench.timing = "silence=1.5,abort=0.2,margin=0.3,orphan=0.3";
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 3);
    send(bench.pid_of_shim(1, 1), Signal::SIGSTOP);
    assert_eq!(supervisor.wait(), 3, "{}", supervisor.output());
    let words = bench.verdict(1)["words"].as_str().unwrap().to_owned();
    step_in(&words, "rank 1 on local0 has been silent for 1.5 s");
    bench.assert_clean();
}

#[test]
fn a_storm_of_kills_ends_in_the_curve_of_an_unbroken_run() {
    let bench = Bench::new(&Setup {
        nodes: 2,
        failures: 100,
        ..trainer(100, "0.02", 5)
    });
    let mut supervisor = bench.supervise();
    let mut state: u64 = 7;
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(400));
        let mut victims = bench.processes();
        victims.retain(|(pid, _)| *pid != supervisor.pid());
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        if !victims.is_empty() {
            let (pid, _) = victims[(state >> 33) as usize % victims.len()];
            // It may have ended since.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    println!("{}", supervisor.output());
    bench.assert_clean();
    // Steps of the lineage, from the last attempt back to the first.
    let attempts = bench.events("attempt");
    let mut steps = std::collections::BTreeMap::new();
    let (mut attempt, mut last) = (attempts.len() as u32, u64::MAX);
    loop {
        for line in bench.metrics(attempt).iter().filter(|l| l.loss.is_some()) {
            if line.step.unwrap() <= last {
                steps.insert(line.step.unwrap(), line.loss_bits.clone());
            }
        }
        let parent = &attempts[attempt as usize - 1]["parent"];
        let Some(from) = parent["attempt"].as_u64() else {
            break;
        };
        attempt = from as u32;
        last = parent["step"].as_u64().unwrap();
    }
    let unbroken = Bench::new(&trainer(100, "0", 5));
    assert_eq!(unbroken.supervise().wait(), 0);
    let whole = unbroken.metrics(1).into_iter().filter(|l| l.loss.is_some());
    let whole: Vec<_> = whole.map(|l| (l.step.unwrap(), l.loss_bits)).collect();
    assert_eq!(steps.into_iter().collect::<Vec<_>>(), whole);
}
