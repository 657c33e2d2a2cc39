//! What does not fit the machine: memory, time limits.

use super::layout::Layout;
use super::trained::Trained;
use super::{Site, span_of};
use crate::plan::{SchedulerKind, StageMemory};
use crate::recipe::Recipe;
use crate::recipe::chain::Chain;
use crate::recipe::diagnostic::Diagnostic;
use crate::recipe::scalar::{show_duration, show_memory as bytes};
use crate::recipe::section::Notes;

pub(super) fn check(
    recipe: &Recipe,
    site: &Site,
    layout: &Layout,
    trained: Option<&Trained>,
    notes: &mut Notes,
) {
    walltime(recipe, site, layout, notes);
    chain(recipe, site, notes);
    if recipe.program.is_none()
        && let Some(trained) = trained
    {
        memory(recipe, site, layout, &trained.measure.memory, notes);
    }
}

/// A chain needs a time limit to end at, and jobs that may submit jobs.
fn chain(recipe: &Recipe, site: &Site, notes: &mut Notes) {
    let limits = &recipe.limits;
    if recipe.chain.value == Chain::None {
        let given = [
            limits.node_hours.as_ref().map(|g| g.at),
            limits.jobs.as_ref().map(|g| g.at),
            limits.until.as_ref().map(|g| g.at),
        ];
        if let Some(at) = given.into_iter().flatten().next() {
            notes.faults.push(
                Diagnostic::warning("limits", "these limits hold for chains, and there is none")
                    .at(at, "")
                    .help("add `chain: at-end`"),
            );
        }
        return;
    }
    let mut fault = |words: String, help: &str| {
        notes.faults.push(
            Diagnostic::error("chain", words)
                .at(recipe.chain.at, "")
                .help(help),
        );
    };
    let machine = site.machine;
    if recipe.job.walltime.is_none() {
        fault(
            "a chain goes on where a job ends at its time limit, and there is none".into(),
            "add for example `walltime: 2h` to `job`",
        );
    }
    if machine.scheduler.kind == SchedulerKind::Slurm && !machine.scheduler.sbatch_from_compute {
        fault(
            format!(
                "jobs of {} may not submit jobs (`scheduler.sbatch_from_compute`)",
                machine.name
            ),
            "use `chain: none`, and `haul resume` after each job; or correct the profile",
        );
    }
}

fn walltime(recipe: &Recipe, site: &Site, layout: &Layout, notes: &mut Notes) {
    let machine = site.machine;
    let Some(walltime) = &recipe.job.walltime else {
        if machine.scheduler.kind == SchedulerKind::Slurm {
            notes.faults.push(
                Diagnostic::error(
                    "walltime",
                    format!(
                        "`job.walltime` is missing, and jobs of {} need one",
                        machine.name
                    ),
                )
                .at(recipe.job.at, "")
                .help("add for example `walltime: 2h`"),
            );
        }
        return;
    };
    if machine.limits.is_empty() {
        return;
    }
    let nodes = layout.nodes as u64;
    match machine.limits.iter().find(|l| nodes <= l.nodes) {
        None => {
            let most = machine.limits.last().map_or(0, |l| l.nodes);
            notes.faults.push(
                Diagnostic::error(
                    "nodes",
                    format!(
                        "{nodes} nodes, but {} gives a job at most {most}",
                        machine.name
                    ),
                )
                .at(recipe.job.nodes.at, "")
                .help(format!("set nodes to {most} or fewer")),
            );
        }
        Some(limit) if walltime.value > limit.walltime_seconds => {
            let longer = machine
                .limits
                .iter()
                .zip(machine.limits.iter().skip(1))
                .find(|(_, l)| l.walltime_seconds >= walltime.value)
                .map(|(below, l)| format!(", or ask for {} to {} nodes", below.nodes + 1, l.nodes))
                .unwrap_or_default();
            let most = show_duration(limit.walltime_seconds);
            notes.faults.push(
                Diagnostic::error(
                    "walltime",
                    format!(
                        "walltime = {}, but {} gives a job of {nodes} nodes at most {most}",
                        show_duration(walltime.value),
                        machine.name
                    ),
                )
                .at(walltime.at, format!("more than {most}"))
                .at(recipe.job.nodes.at, "with so many nodes")
                .help(format!("set walltime: {most}{longer}")),
            );
        }
        Some(_) => {}
    }
}

/// Ranks of a node together against its memory. Virtual nodes share one machine.
fn memory(
    recipe: &Recipe,
    site: &Site,
    layout: &Layout,
    stages: &[StageMemory],
    notes: &mut Notes,
) {
    let Some(available) = site.machine.node.memory.or(site.memory) else {
        return;
    };
    let Some(largest) = stages.iter().max_by_key(|s| s.total) else {
        return;
    };
    let (ranks, where_) = match site.machine.scheduler.kind {
        SchedulerKind::Local => (
            layout.nodes * layout.ranks_per_node,
            "this machine".to_string(),
        ),
        SchedulerKind::Slurm => (
            layout.ranks_per_node,
            format!("a node of {}", site.machine.name),
        ),
    };
    let needed = largest.total.saturating_mul(ranks as u64);
    if needed <= available {
        return;
    }
    let mut sizes: Vec<(&str, u64)> = largest
        .classes
        .iter()
        .map(|(name, size)| (name.as_str(), *size))
        .collect();
    sizes.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let classes: Vec<String> = sizes
        .iter()
        .filter(|(_, size)| size.saturating_mul(50) > largest.total)
        .map(|(name, size)| format!("{name} {}", bytes(*size)))
        .collect();
    let help = match sizes.first() {
        Some(("kept", _)) => "lower `batch.micro` or `model.seq_len`, or choose a smaller model",
        _ => "choose a smaller model or fewer ranks a node",
    };
    let at = recipe
        .model
        .as_ref()
        .and_then(|m| m.at)
        .or(span_of(notes, "model"));
    let rank = if ranks == 1 {
        "the rank needs".to_string()
    } else {
        format!("each of {ranks} ranks needs")
    };
    notes.faults.push(
        Diagnostic::error(
            "memory",
            format!(
                "this needs {} of memory, but {where_} has {}",
                bytes(needed),
                bytes(available)
            ),
        )
        .at(
            at,
            format!("{rank} {}: {}", bytes(largest.total), classes.join(", ")),
        )
        .help(help),
    );
}
