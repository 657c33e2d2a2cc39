//! Damaged checkpoints: refused with the reason in words, the one before is used, and never step 0 in silence.

use crate::bench::send;
use crate::field::{EVERY, Field, Outcome, Run, Told};
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};

/// A run that has failed in mid-run with at least two checkpoints, and the steps of all of them, newest first.
fn failed(field: &Field) -> (Run, Vec<u64>) {
    let follower = field.start(&[]);
    let run = field.at_step(1, 2 * EVERY + 1);
    send(run.bench.pid_of_rank(1, 1), Signal::SIGKILL);
    assert_eq!(Told::of(follower.wait_with_output().unwrap()).code, 3);
    let mut steps: Vec<u64> = (1..=12)
        .map(|n| n * EVERY)
        .filter(|step| run.checkpoint(1, *step).join("manifest.json").exists())
        .collect();
    steps.reverse();
    assert!(steps.len() >= 2, "{steps:?}");
    (run, steps)
}

/// Damages the newest checkpoint; the run then goes on from the one before, tells `words`, and its curve is unbroken.
fn refused(damage: impl Fn(&Path), words: &str) {
    let field = Field::new();
    let (run, steps) = failed(&field);
    damage(&run.checkpoint(1, steps[0]));
    let told = Told::of(field.haul(&["resume", "last", "--follow"]));
    assert_eq!(told.code, 0, "{told:#?}");
    told.says(words);
    told.says(&format!("step {}", steps[0]));
    let attempts = run.bench.events("attempt");
    let report = Told::of(field.haul(&["report", "last"]));
    for told in [report, Told::of(field.haul(&["status", "last"]))] {
        let all = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
        let refused = format!(
            "the checkpoint of step {} (attempt 1) is not used",
            steps[0]
        );
        assert!(
            all.contains(&refused) && all.contains(words.trim()),
            "{told:#?}"
        );
    }
    let last = attempts.last().unwrap();
    assert_eq!(last["parent"]["step"], steps[1], "{attempts:?}");
    assert_eq!(last["parent"]["attempt"], 1);
    Outcome::of(&field, &run).assert_unbroken();
    field.assert_clean();
}

/// The largest file of tensors.
fn tensors(checkpoint: &Path) -> PathBuf {
    checkpoint.join("model-0.safetensors")
}

fn truncate(path: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_truncated_file() {
    refused(|c| truncate(&tensors(c)), "model-0.safetensors has ");
}

#[test]
fn a_flipped_bit_of_a_tensor() {
    refused(
        |c| flip(&tensors(c), 100_000),
        "is unreadable: model-0.safetensors: the checksum of h.1.attn.c_attn.weight does not match: it is altered",
    );
}

#[test]
fn a_missing_file() {
    refused(
        |c| std::fs::remove_file(c.join("optimizer-1.safetensors")).unwrap(),
        "optimizer-1.safetensors",
    );
}

#[test]
fn a_torn_manifest() {
    refused(
        |c| truncate(&c.join("manifest.json")),
        "its manifest is refused: ",
    );
}

#[test]
fn a_flipped_bit_of_the_manifest() {
    refused(
        |c| flip(&c.join("manifest.json"), 2_000),
        "its manifest is refused: its own checksum does not match: it is torn or altered",
    );
}

#[test]
fn a_save_without_its_manifest() {
    refused(
        |c| std::fs::remove_file(c.join("manifest.json")).unwrap(),
        "its manifest is missing",
    );
}

#[test]
fn a_save_that_is_gone() {
    refused(
        |c| std::fs::remove_dir_all(c).unwrap(),
        "its directory is gone",
    );
}

#[test]
fn when_all_are_damaged_the_run_stops() {
    for sizes in [true, false] {
        let field = Field::new();
        let (run, steps) = failed(&field);
        for step in &steps {
            let file = tensors(&run.checkpoint(1, *step));
            // What sizes tell is seen by the supervisor, the rest by the ranks.
            match sizes {
                true => truncate(&file),
                false => flip(&file, 100_000),
            }
        }
        let told = Told::of(field.haul(&["resume", "last", "--follow"]));
        assert_eq!(told.code, 3, "{told:#?}");
        told.says("no checkpoint can be read");
        for attempt in &run.bench.events("attempt")[1..] {
            assert!(attempt["parent"]["step"].as_u64() >= Some(EVERY));
            let number = attempt["attempt"].as_u64().unwrap() as u32;
            assert!(run.bench.steps(number).is_empty(), "{attempt}");
        }
        Told::of(field.haul(&["status", "last"])).says("no checkpoint can be read");
        // Nor at a second try.
        let again = Told::of(field.haul(&["resume", "last", "--follow"]));
        assert_eq!(again.code, 3, "{again:#?}");
        field.assert_clean();
    }
}

#[test]
fn a_lost_journal_is_no_reason_to_begin_again() {
    let field = Field::new();
    let (run, _) = failed(&field);
    for entry in std::fs::read_dir(run.bench.run.join("journal")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let told = Told::of(field.haul(&["resume", "last", "--follow"]));
    assert_eq!(told.code, 3, "{told:#?}");
    told.says("starting from nothing would lose the run's work");
}
