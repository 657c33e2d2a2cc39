//! How often Slurm is asked.

use crate::desk::{Desk, json, text, token};
use std::time::Instant;

#[test]
fn a_thousand_runs_cost_one_question_of_each_kind() {
    let desk = Desk::new("60s");
    let (mut queue, mut past) = (String::new(), String::new());
    queue += &format!("1|RUNNING|1764580000|None|{}\n", token(&desk.run()));
    for number in 1..1000 {
        let job = (100_000 + number).to_string();
        // Of some nobody knows whether they were submitted.
        let run = desk.more(number, (number % 10 > 0).then_some(&job));
        let name = token(&run);
        match number % 3 {
            0 => queue += &format!("{job}|PENDING|1764590000|Priority|{name}\n"),
            1 => queue += &format!("{job}|RUNNING|1764580000|None|{name}\n"),
            _ => {
                past += &format!(
                    "{job}|FAILED|3:0|1764580000|1764580100|1764579000|1764579900|100|2|{name}\n"
                );
            }
        }
    }
    desk.says("squeue", &queue);
    desk.says("sacct", &past);
    let begin = Instant::now();
    let told = json(&desk.haul(&["status", "--all", "--json"]));
    println!("{:.2} s", begin.elapsed().as_secs_f64());
    let runs = told["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1000);
    let count = |state: &str| runs.iter().filter(|run| run["state"] == state).count();
    assert_eq!(
        (count("queued"), count("starting"), count("failed")),
        (333, 334, 333)
    );
    let asked = desk.asked();
    let of = |name: &str| asked.iter().filter(|call| call.starts_with(name)).count();
    assert_eq!((of("squeue "), of("sacct "), asked.len()), (1, 1, 2));
    // Another terminal, a moment later.
    let again = json(&desk.haul(&["status", "--all", "--json"]));
    for (one, two) in runs.iter().zip(again["runs"].as_array().unwrap()) {
        assert_eq!(one, two);
    }
    assert_eq!(desk.asked().len(), 2);
    // With the submission.
    let one = text(&desk.haul(&["status", &desk.run().id()]));
    assert!(one.contains("3 this hour"), "{one}");
    assert_eq!(desk.asked().len(), 2);
}

#[test]
fn terminals_that_watch_different_runs_share_their_questions() {
    let desk = Desk::new("1s");
    let other = desk.more(1, Some("2"));
    let (a, b) = (desk.run().id(), other.id());
    for _ in 0..2 {
        for run in [&a, &b] {
            text(&desk.haul(&["status", run]));
        }
        std::thread::sleep(std::time::Duration::from_millis(1300));
    }
    let asked = desk.asked();
    let past: Vec<&String> = asked
        .iter()
        .filter(|call| call.starts_with("sacct"))
        .collect();
    // The second is new, and later questions are about both.
    assert!(past.len() <= 3, "{asked:#?}");
    assert!(
        past[1..]
            .iter()
            .all(|call| call.contains("1,2") || call.contains("2,1")),
        "{asked:#?}"
    );
}

#[test]
fn what_others_run_is_not_kept_and_a_failed_question_is_not_repeated() {
    let desk = Desk::new("60s");
    desk.says("squeue", "77|RUNNING|1|None|somebody's\n");
    let failing = "#!/bin/sh\necho sacct >> \"$0.asked\"\necho 'sacct: error: slurm_persist_conn_open: Connection refused' >&2\nexit 1\n";
    std::fs::write(desk.bin().join("sacct"), failing).unwrap();
    for _ in 0..3 {
        let told = json(&desk.haul(&["status", "last", "--json"]));
        assert_eq!(told["run"]["state"], "unknown");
        let words = told["run"]["words"].as_str().unwrap();
        assert!(words.contains("Connection refused"), "{words}");
    }
    let calls = std::fs::read_to_string(desk.bin().join("sacct.asked")).unwrap();
    assert_eq!(calls, "sacct\n");
    let directory = desk.root().path().join(".slurm");
    for entry in std::fs::read_dir(directory).unwrap() {
        let kept = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!kept.contains("somebody"), "{kept}");
    }
}
