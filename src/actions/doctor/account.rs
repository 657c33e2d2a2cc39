//! The account that jobs are charged to and what it allows, against the profile.

use super::site::{self, Association, Most};
use super::slurm::Wanted;
use super::{Check, Grade, ok};
use crate::machine::Machine;
use crate::machine::profile::Chain;
use crate::recipe::scalar::show_duration;
use crate::recipe::section::suggestion;

/// The account and what it allows.
pub(super) fn account(
    rows: &[Association],
    qos: &[(String, Most)],
    enforced: bool,
    wanted: &Wanted,
) -> Vec<Check> {
    const NAME: &str = "account";
    const SET: &str = "set `account:` in the user config (~/.config/haul/config.yaml)";
    let options = &wanted.machine.launch.sbatch;
    let chosen = wanted
        .account
        .or_else(|| site::option(options, "--account", "-A"));
    let mut names: Vec<&str> = rows.iter().map(|row| row.account.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let listed = names.join(", ");
    let refuse = if enforced {
        Grade::Error
    } else {
        Grade::Warning
    };
    let check = match (chosen, &names[..]) {
        (_, []) => {
            let seen = format!("accounting knows no account of {}", wanted.user);
            return vec![ok(NAME, seen).unless(
                !enforced,
                Grade::Error,
                "every job will be refused: ask the site to add you to a project's account",
            )];
        }
        // Slurm takes them in any case.
        (Some(chosen), names) if names.iter().any(|name| name.eq_ignore_ascii_case(chosen)) => {
            ok(NAME, format!("{chosen} is one of yours ({listed})"))
        }
        (Some(chosen), names) => {
            let meant = suggestion(chosen, names.iter().copied())
                .map_or(String::new(), |name| format!(", perhaps to {name}"));
            return vec![
                ok(NAME, format!("{chosen} is none of yours ({listed})")).unless(
                    false,
                    refuse,
                    format!("{SET}{meant}"),
                ),
            ];
        }
        (None, [one]) => ok(NAME, format!("none is set; {one} is the only one of yours")),
        (None, _) => ok(
            NAME,
            format!("none is set, so Slurm charges your default of {listed}"),
        )
        .unless(false, Grade::Warning, format!("{SET} to say which")),
    };
    let of_account =
        |row: &&Association| chosen.is_none_or(|chosen| row.account.eq_ignore_ascii_case(chosen));
    let mine: Vec<&Association> = rows.iter().filter(of_account).collect();
    vec![
        check,
        limits(&mine, wanted.machine),
        quality(&mine, qos, wanted.machine),
    ]
}

/// Limits of the account's associations; of several, on several partitions, the loosest.
fn limits(mine: &[&Association], machine: &Machine) -> Check {
    let loosest = |of: fn(&Most) -> Option<u64>| {
        mine.iter()
            .map(|row| of(&row.most))
            .reduce(|a, b| Some(a?.max(b?)))
            .flatten()
    };
    let most = Most {
        running: loosest(|most| most.running),
        submitted: loosest(|most| most.submitted),
        walltime: loosest(|most| most.walltime),
    };
    within(ok("account limits", words(&most)), &most, machine)
}

/// The QOS that jobs get, and its limits.
fn quality(mine: &[&Association], qos: &[(String, Most)], machine: &Machine) -> Check {
    const NAME: &str = "qos";
    let mut names: Vec<&str> = mine
        .iter()
        .flat_map(|row| &row.qos)
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    let default = mine
        .iter()
        .map(|row| row.default_qos.as_str())
        .find(|name| !name.is_empty());
    let chosen = site::option(&machine.launch.sbatch, "--qos", "-q");
    if let Some(chosen) = chosen.filter(|chosen| !names.contains(chosen)) {
        return ok(
            NAME,
            format!(
                "{chosen} of the profile is none of yours ({})",
                names.join(", ")
            ),
        )
        .unless(
            false,
            Grade::Error,
            "jobs will be refused: change `--qos` in `launch.sbatch` of a profile of your own",
        );
    }
    let Some(name) = chosen.or(default) else {
        return ok(
            NAME,
            format!("the site chooses one of {}", names.join(", ")),
        );
    };
    let most = qos
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, most)| *most)
        .unwrap_or_default();
    within(
        ok(
            NAME,
            format!("{name} (of {}): {}", names.join(", "), words(&most)),
        ),
        &most,
        machine,
    )
}

fn words(most: &Most) -> String {
    let mut words = Vec::new();
    words.extend(
        most.submitted
            .map(|n| format!("{n} queued or running at most")),
    );
    words.extend(most.running.map(|n| format!("{n} running at most")));
    words.extend(
        most.walltime
            .map(|seconds| format!("{} walltime at most", show_duration(seconds))),
    );
    match words.is_empty() {
        true => "no limits are set".into(),
        false => words.join(", "),
    }
}

/// The profile against limits that it may be too generous for.
fn within(check: Check, most: &Most, machine: &Machine) -> Check {
    let longest = machine
        .limits
        .iter()
        .map(|limit| limit.walltime_seconds)
        .max();
    let chains = machine.scheduler.chain == Chain::Ahead;
    let too_long = most
        .walltime
        .zip(longest)
        .filter(|(most, longest)| most < longest);
    check
        .unless(
            !(chains && most.submitted.is_some_and(|most| most < 2)),
            Grade::Warning,
            "a successor cannot be queued ahead: `scheduler.chain: at-end` in a profile of your own",
        )
        .unless(
            too_long.is_none(),
            Grade::Warning,
            format!(
                "the profile allows jobs of {}: those over {} will wait or be refused",
                show_duration(longest.unwrap_or_default()),
                show_duration(most.walltime.unwrap_or_default())
            ),
        )
}
