//! A job that the controller has forgotten while accounting takes it for alive.

use crate::desk::{Desk, json, token};
use haul::scheduler::slurm::Slurm;
use haul::scheduler::slurm::queries::Wanted;
use haul::scheduler::{End, How, JobState};
use haul::store::Root;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const MINUTE: u64 = 60_000;

#[test]
fn it_is_lost_after_a_quarter_of_an_hour_and_not_before() {
    let desk = Desk::new("60s");
    let path = std::env::var("PATH").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lost::on_a_clock", "--nocapture"])
        .env("PATH", format!("{}:{path}", desk.bin().display()))
        .env("HAUL_TEST_DESK", desk.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let asked = desk.asked();
    assert!(asked.len() > 20, "the commands were not asked: {asked:?}");
}

/// Runs in the process that the test above starts, which finds its own commands.
#[test]
fn on_a_clock() {
    let Some(desk) = std::env::var_os("HAUL_TEST_DESK").map(PathBuf::from) else {
        return;
    };
    let root = Root::new(desk.join("runs"));
    let slurm = Slurm::new(&root, "me".into(), Duration::from_secs(60));
    let says = |command: &str, lines: &str| std::fs::write(desk.join(command), lines).unwrap();
    let wanted = [Wanted {
        token: "haul-x-1".into(),
        jobs: vec!["7".into()],
    }];
    let begin = 1_800_000_000_000;
    let at = |minute: u64| {
        let answers = slurm.answers(&wanted, begin + minute * MINUTE);
        answers.state("haul-x-1", "7")
    };
    let is_lost = |state: &JobState| matches!(state, JobState::Ended(End { how: How::Lost(words), .. }) if words.contains("Slurm has lost the job"));
    let running = "7|RUNNING|0:0|1764580000|Unknown|1764579000|1764579900|100|2|haul-x-1\n";
    says("sacct", running);
    for minute in 0..=15 {
        assert!(matches!(at(minute), JobState::Unknown(_)), "{minute}");
    }
    // Seen again in between: the time begins anew.
    says("squeue", "7|RUNNING|1764580000|None|haul-x-1\n");
    let seen = (16..24).find(|minute| at(*minute) == JobState::Running);
    assert!(seen.is_some());
    says("squeue", "");
    for minute in 24..39 {
        assert!(
            matches!(at(minute), JobState::Unknown(_) | JobState::Running),
            "{minute}"
        );
    }
    // No answer is not an absence.
    let broken = desk.join("bin/squeue");
    let script = std::fs::read_to_string(&broken).unwrap();
    std::fs::write(&broken, "#!/bin/sh\nexit 1\n").unwrap();
    let silent = at(50);
    assert!(!is_lost(&silent), "{silent:?}");
    std::fs::write(&broken, script).unwrap();
    let lost = at(60);
    assert!(is_lost(&lost), "{lost:?}");
    // Its end is told after all.
    says(
        "sacct",
        "7|FAILED|3:0|1764580000|1764580100|1764579000|1764579900|100|2|haul-x-1\n",
    );
    let JobState::Ended(end) = at(70) else {
        panic!("{:?}", at(70));
    };
    assert_eq!(end.how, How::Exited(3));
}

#[test]
fn a_run_whose_job_is_lost_can_be_resumed() {
    let desk = Desk::new("1s");
    let run = desk.run();
    desk.says(
        "sacct",
        &format!(
            "1|PENDING|0:0|Unknown|Unknown|1764579000|Unknown|0|0|{}\n",
            token(&run)
        ),
    );
    let told = json(&desk.haul(&["status", "last", "--json"]));
    assert_eq!(told["run"]["state"], "unknown");
    assert_eq!(desk.haul(&["resume", "last"]).status.code(), Some(1));
    let directory = desk.root().path().join(".slurm");
    let kept = std::fs::read_dir(directory).unwrap().flatten();
    let kept = kept.map(|entry| entry.path());
    let kept = kept.filter(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("absent")
    });
    let kept: Vec<PathBuf> = kept.collect();
    assert_eq!(kept.len(), 1);
    let text = std::fs::read_to_string(&kept[0]).unwrap();
    let since: u64 = serde_json::from_str::<serde_json::Value>(&text).unwrap()["1"]
        .as_u64()
        .unwrap();
    std::fs::write(&kept[0], format!("{{\"1\":{}}}", since - 16 * MINUTE)).unwrap();
    let told = json(&desk.haul(&["status", "last", "--json"]));
    assert_eq!(told["run"]["state"], "failed");
    let words = told["run"]["words"].as_str().unwrap();
    assert!(words.contains("Slurm has lost the job"), "{words}");
    let bin = desk.bin().join("sbatch");
    std::fs::write(bin, "#!/bin/sh\necho 2\n").unwrap();
    let resumed = json(&desk.haul(&["resume", "last", "--json"]));
    assert_eq!(
        (&resumed["slot"], &resumed["job"]),
        (&2.into(), &"2".into())
    );
}
