//! A colleague's run: looked at, and nothing is written.

use crate::desk::{Desk, token};
use haul::store::journal::{Event, Journal};
use nix::unistd::{Gid, Uid, chown, geteuid};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// A user without rights, where tests run as root.
const NOBODY: u32 = 65534;

/// Everything under `path`, with what changes when it is written to.
fn picture(path: &Path) -> BTreeMap<PathBuf, (i64, i64, u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![path.to_path_buf()];
    while let Some(at) = open.pop() {
        let meta = std::fs::symlink_metadata(&at).unwrap();
        let content = match meta.is_file() {
            true => std::fs::read(&at).unwrap(),
            false => Vec::new(),
        };
        if meta.is_dir() {
            open.extend(
                std::fs::read_dir(&at)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        found.insert(at, (meta.ctime(), meta.ctime_nsec(), meta.len(), content));
    }
    found
}

fn everything(path: &Path, change: &dyn Fn(&Path)) {
    for at in picture(path).into_keys() {
        change(&at);
    }
}

/// A root with a Slurm run that has ended and one that waits.
fn desk() -> Desk {
    let desk = Desk::new("60s");
    let run = desk.run();
    std::fs::create_dir_all(run.attempt(1).join("logs")).unwrap();
    std::fs::write(run.log(1, "n1"), "2026-01-01T00:00:01.000Z n1:0 ready\n").unwrap();
    let mut journal = Journal::open(&run, "supervisor").unwrap();
    let attempt = Event::Attempt {
        attempt: 1,
        slot: 1,
        parent: None,
    };
    journal.append(attempt).unwrap();
    let waits = desk.more(1, Some("2"));
    desk.says(
        "sacct",
        &format!(
            "1|FAILED|3:0|1764580000|1764580100|1764579000|1764579900|100|2|{}\n",
            token(&run)
        ),
    );
    desk.says(
        "squeue",
        &format!("2|PENDING|N/A|Priority|{}\n", token(&waits)),
    );
    std::fs::copy(env!("CARGO_BIN_EXE_haul"), desk.path().join("haul")).unwrap();
    desk
}

/// What each command prints, run by somebody who must not change anything.
#[track_caller]
fn look(desk: &Desk, like: &dyn Fn(&mut Command)) {
    let root = desk.root();
    let root = root.path();
    let before = picture(root);
    let run = desk.run().id();
    let haul = |arguments: &[&str]| -> Output {
        let mut command = Command::new(desk.path().join("haul"));
        command
            .args(arguments)
            .arg("--root")
            .arg(root)
            .current_dir("/");
        for (key, value) in desk.command(&[]).get_envs() {
            command.env(key, value.unwrap());
        }
        command.env_remove("HAUL_ROOT");
        like(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !said.contains("error") && !said.contains("cannot create"),
            "{arguments:?}: {said}"
        );
        output
    };
    let says = |arguments: &[&str], words: &str| {
        let told = String::from_utf8(haul(arguments).stdout).unwrap();
        assert!(told.contains(words), "no `{words}` in {told}");
    };
    says(&["status"], "queued");
    says(&["status", "--all", "--json"], "haul.status/1");
    says(&["status", &run], "exited with code 3");
    says(&["logs", &run], "ready");
    says(&["report", &run, "--html"], "<html");
    says(&["report", &run, "--json"], "haul.report/1");
    says(&["report", &run], "Attempts");
    assert!(picture(root) == before, "something was written");
    // Nothing is kept, and still Slurm is asked at its pace.
    std::fs::write(desk.path().join("asked"), "").unwrap();
    let mut command = Command::new("timeout");
    command.args(["2"]).arg(desk.path().join("haul"));
    command.args(["logs", "-f", "more", "--root"]).arg(root);
    for (key, value) in desk.command(&[]).get_envs() {
        command.env(key, value.unwrap());
    }
    like(&mut command);
    command.output().unwrap();
    assert_eq!(desk.asked().len(), 1, "{:?}", desk.asked());
    assert!(picture(root) == before, "something was written");
}

#[test]
fn a_root_that_cannot_be_written_to_is_read() {
    let desk = desk();
    if geteuid().is_root() {
        look(&desk, &|command| {
            command.uid(NOBODY).gid(NOBODY);
        });
    } else {
        println!("only a root without write permission is tried: not root here");
        let mode = |bits: u32, at: &Path| {
            let old = std::fs::metadata(at).unwrap().permissions().mode();
            let mode = if bits == 0 { old & !0o222 } else { old | bits };
            std::fs::set_permissions(at, PermissionsExt::from_mode(mode)).unwrap();
        };
        everything(desk.root().path(), &|at| mode(0, at));
        look(&desk, &|_| {});
        everything(desk.root().path(), &|at| mode(0o200, at));
    }
}

#[test]
fn a_root_of_somebody_else_is_left_alone_by_those_who_could_write_to_it() {
    if !geteuid().is_root() {
        println!("skipped: only root can give files away");
        return;
    }
    let desk = desk();
    everything(desk.root().path(), &|at| {
        chown(at, Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY))).unwrap();
    });
    std::thread::sleep(Duration::from_millis(20));
    look(&desk, &|_| {});
}
