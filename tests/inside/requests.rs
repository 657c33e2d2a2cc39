//! What people and schedulers ask of a job: save, stop, cancel, the time limit.

use crate::bench::{Bench, Setup, bash, send, trainer, wait};
use nix::sys::signal::Signal;

#[test]
fn stop_saves_and_stops_and_the_next_slot_continues() {
    let mut bench = Bench::new(&trainer(60, "0.02", 1000));
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 5);
    bench.ask("stop");
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    assert_eq!(bench.verdict(1)["class"], "stopped");
    assert_eq!(bench.events("finished")[0]["outcome"], "stopped");
    let saved = bench.events("saved")[0]["step"].as_u64().unwrap();
    assert!((5..60).contains(&saved), "{saved}");
    bench.assert_clean();

    // The request was for the job before.
    std::thread::sleep(std::time::Duration::from_millis(20));
    bench.reopen(&trainer(60, "0.001", 1000));
    assert_eq!(bench.supervise().wait(), 0);
    assert_eq!(bench.steps(2), (saved + 1..=60).collect::<Vec<_>>());
}

#[test]
fn save_saves_and_goes_on() {
    let bench = Bench::new(&trainer(100_000, "0.02", 100_000));
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 3);
    bench.ask("save");
    wait("a save", || !bench.events("saved").is_empty());
    let saved = bench.events("saved")[0]["step"].as_u64().unwrap();
    bench.wait_for_step(1, saved + 3);
    bench.ask("cancel");
    assert_eq!(supervisor.wait(), 4);
    assert_eq!(bench.events("saved").len(), 1);
}

#[test]
fn cancel_ends_even_a_program_that_ignores_term() {
    let bench = Bench::new(&Setup {
        failures: 3,
        ..bash(
            r#"trap '' TERM INT
               echo '{"kind":"step","step":1}' >> "$HAUL_PROGRESS"
               while :; do sleep 0.05; done"#,
        )
    });
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 1);
    bench.ask("cancel");
    assert_eq!(supervisor.wait(), 4, "{}", supervisor.output());
    assert_eq!(bench.verdict(1)["class"], "cancelled");
    assert_eq!(bench.rank_event(1, 0, "exit").unwrap()["signal"], 9);
    assert_eq!(bench.events("finished")[0]["outcome"], "cancelled");
    bench.assert_clean();
}

#[test]
fn usr1_saves_and_stops_before_the_time_limit() {
    let bench = Bench::new(&trainer(100_000, "0.02", 100_000));
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 3);
    send(supervisor.pid(), Signal::SIGUSR1);
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    let words = bench.verdict(1)["words"].as_str().unwrap().to_owned();
    assert!(
        words.starts_with("saved and stopped before the time limit at step "),
        "{words}"
    );
    assert_eq!(bench.events("saved").len(), 1);
    bench.assert_clean();
}

#[test]
fn a_signal_to_end_does_so_at_once_and_fails_the_run() {
    for (signal, name) in [(Signal::SIGTERM, "SIGTERM"), (Signal::SIGINT, "SIGINT")] {
        ended_by(signal, name);
    }
}

fn ended_by(signal: Signal, name: &str) {
    let bench = Bench::new(&Setup {
        failures: 3,
        ..trainer(100_000, "0.02", 5)
    });
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 3);
    send(supervisor.pid(), signal);
    assert_eq!(supervisor.wait(), 3, "{}", supervisor.output());
    let words = bench.verdict(1)["words"].as_str().unwrap().to_owned();
    assert!(
        words.starts_with(&format!("ended by {name} to the supervisor at step ")),
        "{words}"
    );
    assert!(!bench.attempt(2).exists());
    bench.assert_clean();
}
