//! Nodes that are cut off, and programs that no node can start.

use crate::bench::*;

#[test]
fn a_node_that_is_cut_off_is_named_and_the_next_attempt_hears_nothing_of_the_old_one() {
    let faults = tempfile::tempdir().unwrap();
    let setup = Setup {
        nodes: 2,
        failures: 1,
        ..trainer(100, "0.05", 5)
    };
    let mut bench = Bench::new(&setup);
    bench.timing = "silence=1.5,orphan=0.3,abort=0.5,cancel=0.5,margin=1";
    bench.faults = Some(faults.path().to_owned());
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 6);
    let cut = faults.path().join("local1");
    std::fs::write(&cut, "cut").unwrap();
    wait("the verdict", || !bench.events("judged").is_empty());
    let words = bench.verdict(1)["words"].as_str().unwrap().to_owned();
    assert!(
        words.contains("node local1 has been silent for 1.5 s"),
        "{words}"
    );
    // Its ranks found out by themselves; what they write reaches the log all the time.
    let log = bench.log(1, "local1");
    assert!(log.contains("the supervisor fell silent"), "{log}");
    for rank in 2..4 {
        let pid = bench.pid_of_rank(1, rank);
        assert!(!bench.processes().iter().any(|(p, _)| *p == pid), "{rank}");
    }
    let before = std::fs::read(bench.attempt(1).join("metrics.jsonl")).unwrap();
    std::fs::write(&cut, "heal").unwrap();
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    let after = std::fs::read(bench.attempt(1).join("metrics.jsonl")).unwrap();
    assert_eq!(before, after);
    let steps = bench.steps(2);
    assert!(steps.first() > Some(&5), "{steps:?}");
    assert_eq!(steps.last(), Some(&100));
    assert!(
        steps.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{steps:?}"
    );
    bench.assert_clean();
}

#[test]
fn a_program_that_cannot_be_started_fails_the_run_at_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let not_executable = file.path().to_str().unwrap();
    for (command, code, words) in [
        (
            vec!["/nowhere/trainer"],
            None,
            "cannot start /nowhere/trainer: No such file",
        ),
        (vec![not_executable], None, "Permission denied"),
        (
            vec!["bash", "-c", "/nowhere/trainer"],
            Some(127),
            "code 127 before its first step",
        ),
    ] {
        let setup = Setup {
            failures: 3,
            command: command.into_iter().map(str::to_owned).collect(),
            ..trainer(1, "0", 1)
        };
        let bench = Bench::new(&setup);
        let mut supervisor = bench.supervise();
        assert_eq!(supervisor.wait(), 3, "{}", supervisor.output());
        let verdict = bench.verdict(1);
        assert_eq!(verdict["class"], "never", "{verdict}");
        assert_eq!(verdict["code"].as_i64(), code);
        assert!(
            verdict["words"].as_str().unwrap().contains(words),
            "{verdict}"
        );
        assert!(!bench.attempt(2).exists());
        bench.assert_clean();
    }
}
