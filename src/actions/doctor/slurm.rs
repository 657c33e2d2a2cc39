//! The site as Slurm's commands tell it, against what the profile and the user's config say. Each question is asked once.

use super::account::account;
use super::partition::partitions;
use super::site;
use super::{Check, Grade, ok};
use crate::machine::Machine;
use crate::scheduler::slurm::command::run;
use crate::scheduler::slurm::refusal::one_line;
use crate::ui::units;
use std::time::{Duration, Instant};

/// For one question. Slurm's own time-out is 10 s, a dead controller is told after 9 s.
const LIMIT: Duration = Duration::from_secs(15);
/// An answer that takes longer is told as slow.
const SLOW: Duration = Duration::from_secs(2);
/// What `haul` cannot work without, and what only these checks need.
const NEEDED: [&str; 5] = ["sbatch", "squeue", "sacct", "scancel", "srun"];
const USEFUL: [&str; 3] = ["scontrol", "sinfo", "sacctmgr"];
/// The oldest version that this was run on.
const OLDEST: (u32, u32) = (22, 5);

type Answer = Result<String, String>;

/// What the site is compared with.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub machine: &'a Machine,
    /// Of the user's config.
    pub account: Option<&'a str>,
    pub user: String,
    /// Of this machine, which counts where the profile gives no cores.
    pub cores: usize,
}

/// All answers of the site.
#[derive(Debug)]
struct Answers {
    missing: Vec<&'static str>,
    version: Answer,
    ping: Answer,
    took: Duration,
    config: Answer,
    sacct: Answer,
    associations: Answer,
    qos: Answer,
    nodes: Answer,
}

pub(super) fn look(wanted: &Wanted) -> Vec<Check> {
    judge(&questions(&wanted.user), wanted)
}

fn questions(user: &str) -> Answers {
    let is_missing = |command: &&str| !crate::actions::submit::has(command);
    let missing = NEEDED
        .into_iter()
        .chain(USEFUL)
        .filter(is_missing)
        .collect();
    let begin = Instant::now();
    let ping = ask("scontrol", &["ping"], LIMIT);
    let took = begin.elapsed();
    // A controller that is dead is not waited for again; one that only cannot be pinged may answer.
    let down = ping.as_ref().is_err_and(|words| words.contains("is DOWN"));
    let of_controller = |program: &str, arguments: &[&str]| match down {
        true => Err("not asked, since the controller is down".to_owned()),
        false => ask(program, arguments, LIMIT),
    };
    let config = of_controller("scontrol", &["show", "config"]);
    let nodes = of_controller("sinfo", &["-h", "-e", "-o", site::NODES]);
    let sacct = ask(
        "sacct",
        &[
            "-P",
            "-n",
            "-X",
            "-D",
            "-u",
            user,
            "-S",
            "now-1hours",
            "-o",
            "JobIDRaw",
        ],
        LIMIT,
    );
    let of_accounting = |what: &str, arguments: &[&str]| match &sacct {
        Ok(_) => ask(
            "sacctmgr",
            &[&["-n", "-P", "show", what], arguments].concat(),
            LIMIT,
        ),
        Err(_) => Err("not asked, since accounting does not answer".to_owned()),
    };
    Answers {
        missing,
        version: ask("sbatch", &["--version"], LIMIT),
        ping,
        took,
        config,
        associations: of_accounting("assoc", &[&format!("user={user}"), site::ASSOCIATIONS]),
        qos: of_accounting("qos", &[site::QOS]),
        sacct,
        nodes,
    }
}

/// What `program` printed; an error in words where it failed.
fn ask(program: &str, arguments: &[&str], limit: Duration) -> Answer {
    let said = run(program, arguments, limit).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no `{program}` here"),
        _ => format!("cannot run {program}: {error}"),
    })?;
    // Some commands exit with 0 all the same.
    let complains = said.out.trim().is_empty() && said.err.contains("error:");
    match said.status {
        None => Err(format!(
            "{program} gave no answer in {}",
            units::duration(limit.as_secs_f64())
        )),
        Some(status) if status.success() && !complains => Ok(said.out),
        Some(_) => Err(
            match one_line(
                &[said.err, said.out]
                    .join("\n")
                    .replace(&format!("{program}: "), ""),
            ) {
                words if words.is_empty() => format!("{program} failed and said nothing"),
                words => words,
            },
        ),
    }
}

fn judge(answers: &Answers, wanted: &Wanted) -> Vec<Check> {
    let setting = |key: &str| {
        answers
            .config
            .as_ref()
            .ok()
            .and_then(|text| site::setting(text, key))
    };
    let enforced =
        setting("AccountingStorageEnforce").is_none_or(|words| words.contains("associations"));
    let mut checks = vec![
        commands(&answers.missing),
        version(&answers.version, wanted.machine),
        controller(&answers.ping, answers.took),
        accounting(&answers.sacct, setting("MinJobAge")),
    ];
    match &answers.associations {
        Err(why) => checks.push(unseen("account", why)),
        Ok(text) => {
            let mut rows = site::associations(text);
            // One database may serve several clusters.
            if let Some(cluster) = setting("ClusterName")
                && rows.iter().any(|row| row.cluster == cluster)
            {
                rows.retain(|row| row.cluster == cluster);
            }
            let qos = answers.qos.as_ref().map(|text| site::qos(text));
            checks.extend(account(
                &rows,
                qos.as_deref().unwrap_or_default(),
                enforced,
                wanted,
            ));
        }
    }
    match &answers.nodes {
        Err(why) => checks.push(unseen("partition", why)),
        Ok(text) => checks.extend(partitions(&site::nodes(text), wanted)),
    }
    checks
}

fn unseen(name: &'static str, why: &str) -> Check {
    ok(name, why).unless(
        false,
        Grade::Warning,
        "`haul doctor` tells more once this is answered",
    )
}

fn commands(missing: &[&str]) -> Check {
    const NAME: &str = "slurm commands";
    let needed: Vec<&str> = NEEDED
        .into_iter()
        .filter(|name| missing.contains(name))
        .collect();
    match (missing, &needed[..]) {
        ([], _) => ok(NAME, format!("{} are here", [&NEEDED[..], &USEFUL].concat().join(", "))),
        (_, []) => ok(NAME, format!("no {}", missing.join(", "))).unless(
            false,
            Grade::Warning,
            "some of the lines below cannot be told; runs do not need these commands",
        ),
        (_, needed) => ok(NAME, format!("no {}", needed.join(", "))).unless(
            false,
            Grade::Error,
            "this is no login node of a Slurm cluster, or its commands are not on PATH (often: `module load slurm`)",
        ),
    }
}

/// What the version can, and what that means for the profile's options.
fn version(answer: &Answer, machine: &Machine) -> Check {
    const NAME: &str = "slurm version";
    let text = match answer {
        Ok(text) => text.trim(),
        Err(why) => return unseen(NAME, why),
    };
    let Some(version) = site::version(text) else {
        return ok(NAME, format!("`{text}` is no version")).unless(
            false,
            Grade::Warning,
            "what this Slurm can is not known",
        );
    };
    let cores = match version {
        (22, 5..) | (23, ..11) => {
            "srun does not take over --cpus-per-task, so the launch script repeats it"
        }
        _ => "srun takes over --cpus-per-task, the launch script repeats it all the same",
    };
    let options = machine.launch.sbatch.iter().chain(&machine.launch.srun);
    let needs = [
        ("disable_rdzv_get", (23, 11)),
        ("job_vni", (23, 2)),
        ("single_node_vni", (23, 2)),
    ];
    let too_new = options.flat_map(|option| {
        needs
            .iter()
            .filter(|(word, since)| option.contains(word) && version < *since)
            .map(move |need| (option, need))
    });
    let too_new = too_new
        .map(|(option, (_, (year, month)))| {
            format!("`{option}` of the profile needs {year}.{month:02}")
        })
        .next();
    let seen = format!("{text}: {cores}");
    match too_new {
        Some(words) => ok(NAME, format!("{text}: {words}")).unless(
            false,
            Grade::Error,
            "take the option out of `launch` of a profile of your own",
        ),
        None => ok(NAME, seen).unless(
            version >= OLDEST,
            Grade::Warning,
            "older than any version that haul was run on: try a short run first",
        ),
    }
}

fn controller(ping: &Answer, took: Duration) -> Check {
    const NAME: &str = "controller";
    const DOWN: &str =
        "jobs run on without it, nothing can be submitted or cancelled: wait, or tell the site";
    let up = |text: &str| text.lines().filter(|line| line.contains(" is UP")).count();
    match ping {
        Ok(text) if up(text) > 0 => {
            let lines = text.lines().filter(|line| line.contains(" is ")).count();
            let seen = format!(
                "{} of {lines} up, answered in {}",
                up(text),
                units::duration(took.as_secs_f64())
            );
            ok(NAME, seen).unless(
                took < SLOW,
                Grade::Warning,
                "it is slow: haul asks it no more often than the profile's `scheduler.poll_floor`",
            )
        }
        // With the first down and a backup up the exit code is not 0.
        Err(words) if words.contains(" is UP") => {
            ok(NAME, words.clone()).unless(false, Grade::Warning, "the backup answers")
        }
        Ok(words) | Err(words) => {
            let told = words.split("; ").filter(|line| !line.contains("**"));
            let told = told.collect::<Vec<_>>().join("; ");
            ok(NAME, one_line(&told)).unless(false, Grade::Error, DOWN)
        }
    }
}

fn accounting(sacct: &Answer, kept: Option<&str>) -> Check {
    const NAME: &str = "accounting";
    let kept = kept.map_or("some minutes".to_owned(), str::to_owned);
    match sacct {
        Ok(_) => ok(NAME, format!("sacct answers; the controller itself forgets a job {kept} after its end")),
        Err(why) => ok(NAME, why.clone()).unless(
            false,
            Grade::Warning,
            format!("how a job ended is then known for {kept}, and from the run's own record; submission goes on"),
        ),
    }
}

#[cfg(test)]
mod tests;
