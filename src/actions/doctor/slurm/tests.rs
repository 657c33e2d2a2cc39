//! Answers of good and bad sites, and what is told of them.

use super::*;
use crate::recipe::diagnostic::Sources;
use std::path::Path;

const NODES: &str = "batch*|up|1-00:00:00|1-infinite|4|64|512000|idle|gpu:mi250x:8\n\
                     debug|up|10:00|1-2|4|64|512000|idle|gpu:mi250x:8\n\
                     old|up|infinite|1-infinite|2|16|64000|idle|(null)\n";

/// What a healthy site answers.
fn answers() -> Answers {
    Answers {
        missing: Vec::new(),
        version: Ok("slurm-wlm 22.05.8\n".into()),
        ping: Ok("Slurmctld(primary) at head is UP\n".into()),
        took: Duration::from_millis(6),
        config: Ok("AccountingStorageEnforce = associations,limits,qos\nClusterName = haul\nMinJobAge = 300 sec\n".into()),
        sacct: Ok(String::new()),
        associations: Ok("haul|proj|normal|debug,normal|4|100|1-00:00:00\nhaul|root|normal|normal|||\nother|elsewhere|normal|normal|||\n".into()),
        qos: Ok("normal|||\ndebug||1|02:00:00\n".into()),
        nodes: Ok(NODES.into()),
    }
}

fn machine(change: impl FnOnce(&mut Machine)) -> Machine {
    let choice = crate::machine::Choice {
        name: "frontier",
        at: None,
        directory: Path::new(""),
    };
    let mut machine =
        crate::machine::load(&choice, &mut Sources::default(), &mut Vec::new()).unwrap();
    machine.limits.retain(|limit| limit.nodes <= 91);
    machine.limits[0].nodes = 4;
    machine.launch.srun.clear();
    change(&mut machine);
    machine
}

fn told(answers: &Answers, machine: &Machine, account: Option<&str>) -> Vec<Check> {
    judge(
        answers,
        &Wanted {
            machine,
            account,
            user: "ada".into(),
            cores: 128,
        },
    )
}

/// The check `name`, its grade, and its words with what to do.
fn line(checks: &[Check], name: &str) -> (Grade, String) {
    let check = checks.iter().find(|check| check.name == name).unwrap();
    (
        check.grade,
        format!(
            "{} -> {}",
            check.seen,
            check.advice.as_deref().unwrap_or("")
        ),
    )
}

#[track_caller]
fn is(checks: &[Check], name: &str, grade: Grade, words: &str) {
    let (seen, text) = line(checks, name);
    assert_eq!(seen, grade, "{name}: {text}");
    assert!(text.contains(words), "{name}: `{words}` in `{text}`");
}

#[test]
fn a_healthy_site_has_nothing_to_do() {
    let checks = told(&answers(), &machine(|_| ()), Some("proj"));
    let faults: Vec<&Check> = checks
        .iter()
        .filter(|check| check.grade != Grade::Ok)
        .collect();
    assert!(faults.is_empty(), "{faults:?}");
    is(
        &checks,
        "slurm version",
        Grade::Ok,
        "22.05.8: srun does not take over --cpus-per-task",
    );
    is(&checks, "controller", Grade::Ok, "1 of 1 up");
    is(&checks, "accounting", Grade::Ok, "300 sec");
    is(
        &checks,
        "account",
        Grade::Ok,
        "proj is one of yours (proj, root)",
    );
    is(
        &checks,
        "account limits",
        Grade::Ok,
        "100 queued or running at most, 4 running at most, 1d walltime at most",
    );
    is(
        &checks,
        "qos",
        Grade::Ok,
        "normal (of debug, normal): no limits are set",
    );
    is(
        &checks,
        "partition",
        Grade::Ok,
        "batch: up, up to 1d, 4 of 4 nodes usable, 4 a job",
    );
    is(
        &checks,
        "node shape",
        Grade::Ok,
        "4 of 4 nodes of batch have the profile's 64 cores and 8 devices",
    );
}

#[test]
fn accounts_that_are_wrong_or_missing() {
    let site = machine(|_| ());
    let checks = told(&answers(), &site, Some("porj"));
    is(
        &checks,
        "account",
        Grade::Error,
        "porj is none of yours (proj, root) -> set `account:`",
    );
    is(&checks, "account", Grade::Error, "perhaps to proj");
    is(
        &told(&answers(), &site, None),
        "account",
        Grade::Warning,
        "your default of proj, root",
    );
    let by_option = machine(|m| m.launch.sbatch.push("-A proj".into()));
    is(
        &told(&answers(), &by_option, None),
        "account",
        Grade::Ok,
        "proj is one of yours",
    );
    let nobody = Answers {
        associations: Ok("\n".into()),
        ..answers()
    };
    is(
        &told(&nobody, &site, Some("proj")),
        "account",
        Grade::Error,
        "accounting knows no account of ada",
    );
    // A site that does not enforce them takes any.
    let config = "AccountingStorageEnforce = none\n";
    let lax = Answers {
        config: Ok(config.into()),
        ..answers()
    };
    is(
        &told(&lax, &site, Some("porj")),
        "account",
        Grade::Warning,
        "none of yours",
    );
}

#[test]
fn limits_that_the_profile_does_not_keep() {
    let debug = machine(|m| m.launch.sbatch.push("--qos=debug".into()));
    let checks = told(&answers(), &debug, Some("proj"));
    is(
        &checks,
        "qos",
        Grade::Warning,
        "debug (of debug, normal): 1 queued or running at most, 2h walltime",
    );
    is(&checks, "qos", Grade::Warning, "chain: at-end");
    let foreign = machine(|m| m.launch.sbatch.push("--qos=gold".into()));
    is(
        &told(&answers(), &foreign, Some("proj")),
        "qos",
        Grade::Error,
        "gold of the profile is none of yours",
    );
    let long = machine(|m| m.limits[0].walltime_seconds = 2 * 86_400);
    let checks = told(&answers(), &long, Some("proj"));
    is(
        &checks,
        "account limits",
        Grade::Warning,
        "jobs of 2d: those over 1d",
    );
    is(
        &checks,
        "partition",
        Grade::Warning,
        "the profile allows 2d",
    );
}

#[test]
fn partitions_and_nodes_that_do_not_fit() {
    let on = |options: &[&str]| {
        machine(|m| m.launch.sbatch = options.iter().map(|o| (*o).to_owned()).collect())
    };
    let told = |machine: &Machine| told(&answers(), machine, Some("proj"));
    is(
        &told(&on(&["--partition=bacth"])),
        "partition",
        Grade::Error,
        "here are: batch, debug, old",
    );
    is(&told(&on(&[])), "partition", Grade::Ok, "batch: up");
    let checks = told(&on(&["-p", "old"]));
    is(
        &checks,
        "node shape",
        Grade::Error,
        "0 of 2 nodes of old have the profile's 64 cores and 8 devices; they have 16 cpus, 0 devices",
    );
    is(
        &checks,
        "partition",
        Grade::Warning,
        "the profile allows 4 nodes",
    );
    is(
        &told(&on(&["--partition=debug"])),
        "partition",
        Grade::Warning,
        "2 a job -> the profile allows 2h",
    );
    let unsaid = machine(|m| m.node.cores = None);
    is(
        &told(&unsaid),
        "node shape",
        Grade::Error,
        "128 cores (those of this machine: set `node.cores`)",
    );
    let large = machine(|m| m.node.memory = Some(600 << 30));
    is(
        &told(&large),
        "node shape",
        Grade::Warning,
        "correct `node.memory`",
    );
}

#[test]
fn what_is_down_is_told_once_and_with_what_to_do() {
    let down = Answers {
        ping: Err("Slurmctld(primary) at vm is DOWN; ***; ** RESTORE **".into()),
        nodes: Err("not asked, since the controller is down".into()),
        config: Err("not asked".into()),
        sacct: Err("Problem talking to the database: Connection refused".into()),
        associations: Err("not asked, since accounting does not answer".into()),
        ..answers()
    };
    let checks = told(&down, &machine(|_| ()), Some("proj"));
    is(&checks, "controller", Grade::Error, "at vm is DOWN -> jobs");
    is(&checks, "partition", Grade::Warning, "not asked");
    is(
        &checks,
        "accounting",
        Grade::Warning,
        "Connection refused -> how a job ended is then known for some minutes",
    );
    is(&checks, "account", Grade::Warning, "not asked");
    let backup = Answers {
        ping: Err("Slurmctld(primary) at a is DOWN; Slurmctld(backup) at b is UP".into()),
        ..answers()
    };
    is(
        &told(&backup, &machine(|_| ()), None),
        "controller",
        Grade::Warning,
        "backup",
    );
    let slow = Answers {
        took: Duration::from_secs(4),
        ..answers()
    };
    is(
        &told(&slow, &machine(|_| ()), None),
        "controller",
        Grade::Warning,
        "slow",
    );
}

#[test]
fn versions_that_lack_what_the_profile_asks_for() {
    let network = machine(|m| m.launch.srun = vec!["--network=disable_rdzv_get".into()]);
    let checks = |version: &str| {
        let answers = Answers {
            version: Ok(version.into()),
            ..answers()
        };
        told(&answers, &network, Some("proj"))
    };
    is(
        &checks("slurm 23.02.5"),
        "slurm version",
        Grade::Error,
        "needs 23.11",
    );
    is(
        &checks("slurm 23.11.1"),
        "slurm version",
        Grade::Ok,
        "takes over",
    );
    let old = Answers {
        version: Ok("slurm 20.11.9".into()),
        ..answers()
    };
    is(
        &told(&old, &machine(|_| ()), Some("proj")),
        "slurm version",
        Grade::Warning,
        "older than",
    );
    let none = Answers {
        missing: vec!["squeue"],
        ..answers()
    };
    is(
        &told(&none, &machine(|_| ()), None),
        "slurm commands",
        Grade::Error,
        "no squeue",
    );
    let fewer = Answers {
        missing: vec!["sacctmgr"],
        ..answers()
    };
    is(
        &told(&fewer, &machine(|_| ()), None),
        "slurm commands",
        Grade::Warning,
        "no sacctmgr",
    );
}

#[test]
fn an_answer_is_waited_for_so_long_and_complaints_are_heard() {
    let shell = |script: &str| ask("sh", &["-c", script], Duration::from_millis(300));
    assert_eq!(shell("echo a"), Ok("a\n".into()));
    assert!(
        shell("exec sleep 60")
            .unwrap_err()
            .contains("gave no answer")
    );
    assert_eq!(
        shell("echo 'sacct: error: refused' >&2").unwrap_err(),
        "sacct: error: refused"
    );
    assert_eq!(shell("echo is DOWN; exit 1").unwrap_err(), "is DOWN");
    assert_eq!(
        ask("no-such-command", &[], LIMIT).unwrap_err(),
        "there is no `no-such-command` here"
    );
}
