//! The partitions that jobs go to and their nodes, against the profile.

use super::site::{self, Nodes};
use super::slurm::Wanted;
use super::{Check, Grade, ok};
use crate::machine::Machine;
use crate::recipe::scalar::show_duration;

/// The partitions that the profile's options name, or the default one.
pub(super) fn partitions(rows: &[Nodes], wanted: &Wanted) -> Vec<Check> {
    let machine = wanted.machine;
    let named = site::option(&machine.launch.sbatch, "--partition", "-p");
    let default = rows
        .iter()
        .find(|row| row.is_default)
        .map(|row| row.partition.as_str());
    let Some(chosen) = named.or(default) else {
        return vec![ok("partition", "the profile names none, and the site has no default").unless(
            false,
            Grade::Error,
            format!("name one in `launch.sbatch` of a profile of your own, such as `--partition=X`; here are: {}", names(rows)),
        )];
    };
    let mut checks = Vec::new();
    for name in chosen.split(',') {
        let mine: Vec<&Nodes> = rows.iter().filter(|row| row.partition == name).collect();
        if mine.is_empty() {
            checks.push(
                ok("partition", format!("{name} is not there, or not for you")).unless(
                    false,
                    Grade::Error,
                    format!(
                        "name another in `launch.sbatch` of a profile of your own; here are: {}",
                        names(rows)
                    ),
                ),
            );
            continue;
        }
        checks.push(partition(name, &mine, machine));
        checks.push(shape(name, &mine, wanted));
    }
    checks
}

fn names(rows: &[Nodes]) -> String {
    let mut names: Vec<&str> = rows.iter().map(|row| row.partition.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn partition(name: &str, rows: &[&Nodes], machine: &Machine) -> Check {
    let first = rows[0];
    let count: u64 = rows.iter().map(|row| row.count).sum();
    let usable: u64 = rows
        .iter()
        .filter(|row| row.usable)
        .map(|row| row.count)
        .sum();
    let most = first.most.unwrap_or(count).min(count);
    let time = first
        .walltime
        .map_or("no time limit".to_owned(), |seconds| {
            format!("up to {}", show_duration(seconds))
        });
    let seen = format!(
        "{name}: {}, {time}, {usable} of {count} nodes usable, {most} a job",
        first.available
    );
    let longest = machine
        .limits
        .iter()
        .map(|limit| limit.walltime_seconds)
        .max();
    let widest = machine.limits.iter().map(|limit| limit.nodes).max();
    let too_long = first
        .walltime
        .zip(longest)
        .filter(|(most, longest)| most < longest);
    ok("partition", seen)
        .unless(
            first.available == "up",
            Grade::Error,
            "jobs are queued and do not start until the site opens it",
        )
        .unless(usable > 0, Grade::Warning, "no node of it takes jobs now")
        .unless(
            too_long.is_none(),
            Grade::Warning,
            format!(
                "the profile allows {}: correct its `limits`",
                show_duration(longest.unwrap_or_default())
            ),
        )
        .unless(
            widest.is_none_or(|widest| widest <= most),
            Grade::Warning,
            format!(
                "the profile allows {} nodes: correct its `limits`",
                widest.unwrap_or_default()
            ),
        )
}

/// Whether some nodes have what the profile says of a node.
fn shape(partition: &str, rows: &[&Nodes], wanted: &Wanted) -> Check {
    let node = &wanted.machine.node;
    let cores = node.cores.unwrap_or(wanted.cores as u64);
    let devices = node.devices.unwrap_or(0);
    let fits = |row: &&&Nodes| row.cpus >= cores && row.devices >= devices;
    let fitting: u64 = rows.iter().filter(fits).map(|row| row.count).sum();
    let count: u64 = rows.iter().map(|row| row.count).sum();
    let mut shapes: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{} cpus, {} devices, {} MiB",
                row.cpus, row.devices, row.memory_mib
            )
        })
        .collect();
    shapes.sort();
    shapes.dedup();
    let of = match node.cores {
        Some(_) => "",
        None => " (those of this machine: set `node.cores`)",
    };
    let seen = format!(
        "{fitting} of {count} nodes of {partition} have the profile's {cores} cores{of} and {devices} devices; they have {}",
        shapes.join("; ")
    );
    let smallest = rows
        .iter()
        .filter(fits)
        .map(|row| row.memory_mib << 20)
        .min();
    // Slurm offers a little less than what is built in.
    let short = node
        .memory
        .zip(smallest)
        .filter(|(wanted, offered)| *offered < wanted / 10 * 9);
    ok("node shape", seen)
        .unless(
            fitting > 0,
            Grade::Error,
            "jobs will be refused or never start: correct `node` of a profile of your own",
        )
        .unless(
            fitting == count || fitting == 0,
            Grade::Warning,
            "jobs wait for the others: `--constraint` in `launch.sbatch` says which",
        )
        .unless(
            short.is_none(),
            Grade::Warning,
            "nodes have less memory than the profile says: correct `node.memory`",
        )
}
