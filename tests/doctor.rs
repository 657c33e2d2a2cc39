//! `haul doctor` on a login node: commands of Slurm are scripts that count their calls.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const COMMANDS: [(&str, &str); 8] = [
    ("sbatch", "echo slurm 24.05.3"),
    ("squeue", "exit 9"),
    ("srun", "exit 9"),
    ("scancel", "exit 9"),
    ("sacct", ":"),
    (
        "scontrol",
        "case $1 in ping) echo 'Slurmctld(primary) at head is UP' ;; *) echo 'ClusterName = lab'; echo 'MinJobAge = 300 sec' ;; esac",
    ),
    (
        "sinfo",
        "echo 'work*|up|2:00:00|1-infinite|6|32|128000|idle|(null)'",
    ),
    (
        "sacctmgr",
        "case $4 in qos) echo 'normal||2|' ;; *) echo 'lab|proj|normal|normal|||' ;; esac",
    ),
];

const PROFILE: &str = "schema: 1\nname: lab\nscheduler: {kind: slurm, poll_floor: 30s}\nnode: {device: cores, cores: 32}\nlimits: [{nodes: 6, walltime: 2h}]\n";

/// Writes the commands and a profile, and runs `haul doctor`.
fn doctor(desk: &Path, commands: &[(&str, &str)], arguments: &[&str]) -> Output {
    let bin = desk.join("bin");
    let _ = std::fs::remove_dir_all(&bin);
    std::fs::create_dir(&bin).unwrap();
    let calls = desk.join("calls");
    for (name, body) in commands {
        let path = bin.join(name);
        let text = format!(
            "#!/bin/sh\necho \"{name} $*\" >> '{}'\n{body}\n",
            calls.display()
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::os::unix::fs::symlink("/bin/bash", bin.join("bash")).unwrap();
    std::fs::create_dir_all(desk.join("config/haul")).unwrap();
    std::fs::write(desk.join("config/haul/config.yaml"), "account: proj\n").unwrap();
    std::fs::write(desk.join("lab.yaml"), PROFILE).unwrap();
    Command::new(env!("CARGO_BIN_EXE_haul"))
        .args(["doctor"])
        .args(arguments)
        .current_dir(desk)
        .env("PATH", &bin)
        .env("XDG_CONFIG_HOME", desk.join("config"))
        .env("HAUL_MACHINE", desk.join("lab.yaml"))
        .env_remove("HAUL_ROOT")
        .output()
        .unwrap()
}

#[test]
fn a_login_node_is_asked_each_question_once() {
    let desk = tempfile::tempdir().unwrap();
    let out = doctor(desk.path(), &COMMANDS, &["--json"]);
    let document: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{document:#}");
    assert_eq!(document["machine"], "lab");
    let grade = |name: &str| {
        let checks = document["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name);
        check.unwrap_or_else(|| panic!("no {name} in {document:#}"))["grade"].clone()
    };
    for name in [
        "slurm commands",
        "slurm version",
        "controller",
        "accounting",
        "account",
        "account limits",
        "qos",
        "partition",
        "node shape",
        "exclusive files",
    ] {
        assert_eq!(grade(name), "ok", "{name}: {document:#}");
    }
    let calls = std::fs::read_to_string(desk.path().join("calls")).unwrap();
    let mut asked: Vec<&str> = calls.lines().collect();
    assert_eq!(asked.len(), 7, "{calls}");
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), 7, "{calls}");
    // Of the run root nothing is left but the directory.
    assert_eq!(
        std::fs::read_dir(desk.path().join("logs")).unwrap().count(),
        0
    );
}

#[test]
fn a_machine_without_slurm_says_so_and_fails() {
    let desk = tempfile::tempdir().unwrap();
    let out = doctor(desk.path(), &[], &[]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(
        text.contains("no sbatch, squeue, sacct, scancel, srun"),
        "{text}"
    );
    assert!(
        text.contains("this is no login node of a Slurm cluster"),
        "{text}"
    );
    // The local profile asks nothing of it.
    let out = doctor(desk.path(), &[], &["--machine", "local"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.contains("slurm"), "{text}");
}

#[test]
fn a_dead_controller_is_not_waited_for_again() {
    let desk = tempfile::tempdir().unwrap();
    let mut commands = COMMANDS;
    commands[5].1 = "echo 'Slurmctld(primary) at head is DOWN'; exit 1";
    let out = doctor(desk.path(), &commands, &[]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("is DOWN"), "{text}");
    let calls = std::fs::read_to_string(desk.path().join("calls")).unwrap();
    assert!(
        !calls.contains("sinfo") && calls.matches("scontrol").count() == 1,
        "{calls}"
    );
}
