//! Kills of anything at any moment, submitters included: whatever dies, `haul resume` ends in the curve of an unbroken run.

use crate::field::{Field, Outcome, Run, Told};
use crate::harness::PATIENCE;
use haul::store::select;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// A linear congruential generator: the same seed gives the same choices, if not the same moments.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// Submits until there is a run; the submitter is killed on its way now and then.
fn submitted(field: &Field, dice: &mut Dice) -> Run {
    loop {
        let mut submitter = field
            .command(&["submit", field.recipe(), "--set", "restart.failures=3"])
            .spawn()
            .unwrap();
        if dice.below(2) == 0 {
            std::thread::sleep(Duration::from_millis(dice.below(60)));
            let _ = submitter.kill();
        }
        submitter.wait().unwrap();
        if let Ok(run) = select::find(&field.root.root(), "last") {
            return field.view(run);
        }
    }
}

/// `haul status` in one word, and its words.
fn state(field: &Field) -> (String, String) {
    let status = Told::of(field.haul(&["status", "last", "--json"])).json();
    let text = |name: &str| status["run"][name].as_str().unwrap().to_owned();
    (text("state"), text("words"))
}

/// True when the run goes on or is finished; a run whose processes are on their way out is not resumed yet.
fn resumed(field: &Field) -> bool {
    let told = Told::of(field.haul(&["resume", "last"]));
    assert!(matches!(told.code, 0 | 1), "{told:#?}");
    told.code == 0
}

/// One run under `kills` kills; returns how many there were.
fn storm(seed: u64, kills: u64) -> u64 {
    let (field, mut dice) = (Field::new(), Dice(seed));
    let all = field.all();
    let run = submitted(&field, &mut dice);
    let (mut killed, mut since) = (0, Instant::now());
    loop {
        let (state, words) = state(&field);
        match state.as_str() {
            "finished" => break,
            "failed" | "planned" if resumed(&field) => since = Instant::now(),
            _ => {}
        }
        assert!(
            since.elapsed() < 2 * PATIENCE,
            "seed {seed}: stays {state} after {killed} kills: {words}"
        );
        std::thread::sleep(Duration::from_millis(20 + dice.below(300)));
        if killed < kills {
            let victims = all.processes();
            if !victims.is_empty() {
                let (pid, line) = &victims[dice.below(victims.len() as u64) as usize];
                println!("seed {seed}: {line}");
                // It may have ended since.
                if kill(Pid::from_raw(*pid), Signal::SIGKILL).is_ok() {
                    killed += 1;
                    since = Instant::now();
                }
            }
        }
    }
    println!(
        "seed {seed}: {killed} kills, {:?} attempts",
        run.dir.numbers("attempts")
    );
    field.assert_clean();
    Outcome::of(&field, &run).assert_unbroken();
    killed
}

/// 6 kills of one run, or as many as `HAUL_TEST_KILLS` says in runs of 12.
#[test]
fn whatever_dies_the_curve_is_that_of_an_unbroken_run() {
    let mut left = std::env::var("HAUL_TEST_KILLS").map_or(6, |text| text.parse().unwrap());
    for seed in 1.. {
        left -= storm(seed, left.min(12)).min(left);
        if left == 0 {
            break;
        }
    }
}
