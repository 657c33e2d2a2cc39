//! States and logs as somebody sees them who stays.

use crate::desk::{Desk, text, token};
use haul::store::journal::{Class, Event, Journal, Verdict};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

#[test]
fn a_waiting_job_says_why_and_from_when_and_its_states_come_as_lines_until_ctrl_c() {
    let desk = Desk::new("1s");
    let name = token(&desk.run());
    desk.says(
        "squeue",
        &format!("1|PENDING|1764590000|Resources|{name}\n"),
    );
    let mut watcher = desk.command(&["status", "--watch"]).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("queued: job 1: it waits for nodes"), "{line}");
    assert!(line.contains("Slurm expects it to start on 20"), "{line}");
    desk.says("squeue", &format!("1|RUNNING|1764590000|None|{name}\n"));
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("starting: job 1 has started"), "{line}");
    kill(Pid::from_raw(watcher.id() as i32), Signal::SIGINT).unwrap();
    assert!(watcher.wait().unwrap().success());
    // One run is watched until it is over.
    desk.says("squeue", &format!("1|COMPLETED|1764590000|None|{name}\n"));
    let told = text(&desk.haul(&["status", "last", "--watch"]));
    assert!(
        told.lines().last().unwrap().contains("failed: job 1"),
        "{told}"
    );
}

#[test]
fn on_a_terminal_it_is_drawn_in_its_place() {
    let desk = Desk::new("1s");
    let name = token(&desk.run());
    desk.says("squeue", &format!("1|PENDING|N/A|Resources|{name}\n"));
    let haul = format!("{} status --watch", env!("CARGO_BIN_EXE_haul"));
    let like = desk.command(&[]);
    let mut script = std::process::Command::new("script");
    script.args(["-qfc", &haul, "/dev/null"]);
    for (key, value) in like.get_envs() {
        script.env(key, value.unwrap());
    }
    let script = script
        .env("TERM", "xterm")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut script) = script else {
        println!("skipped: no `script` here");
        return;
    };
    std::thread::sleep(Duration::from_millis(3500));
    // The terminal makes a signal of it.
    use std::io::Write;
    script.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    let mut told = String::new();
    script
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    script.wait().unwrap();
    assert!(
        told.contains("\x1b[3A\r") && told.contains("\x1b[J"),
        "{told:?}"
    );
    assert!(told.matches("queued").count() >= 2, "{told:?}");
}

#[test]
fn logs_fold_what_ranks_say_alike_and_put_the_first_abnormal_rank_on_top() {
    let desk = Desk::new("60s");
    let run = desk.run();
    std::fs::create_dir_all(run.attempt(1).join("logs")).unwrap();
    for (node, ranks) in [("n1", 0..4), ("n2", 4..8)] {
        let mut log = String::new();
        for rank in ranks.clone() {
            log += &format!("2026-01-01T00:00:01.{rank:03}Z {node}:{rank} ready\n");
        }
        for rank in ranks {
            log += &format!("2026-01-01T00:00:02.{rank:03}Z {node}:{rank} my rank is {rank}\n");
        }
        std::fs::write(run.log(1, node), log).unwrap();
    }
    let verdict = Verdict {
        class: Class::Failed,
        words: "rank 5 on n2 was killed by SIGKILL".into(),
        rank: Some(5),
        node: Some("n2".into()),
        code: None,
        signal: Some(9),
        step: None,
        log: vec!["my last words".into()],
    };
    let mut journal = Journal::open(&run, "supervisor").unwrap();
    journal
        .append(Event::Judged {
            attempt: 1,
            verdict,
        })
        .unwrap();
    let told = text(&desk.haul(&["logs", "last"]));
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].contains("attempt 1 ended: rank 5"), "{told}");
    assert!(lines[1].contains("killed by SIGKILL"), "{told}");
    assert!(lines[2].contains("my last words"), "{told}");
    assert_eq!(lines[4], "2026-01-01T00:00:01.000Z ranks 0-7: ready");
    assert_eq!(lines.len(), 4 + 1 + 8, "{told}");
    let raw = text(&desk.haul(&["logs", "last", "--raw"]));
    assert_eq!(raw.lines().count(), 16, "{raw}");
    assert!(
        raw.starts_with("2026-01-01T00:00:01.000Z n1:0 ready\n"),
        "{raw}"
    );
}
