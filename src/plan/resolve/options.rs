//! Options of sbatch and modules: the profile's, then those of the recipe, which win.

use crate::machine::{Machine, hostlist};
use crate::plan::{Launch, SchedulerKind};
use crate::recipe::Recipe;
use crate::recipe::diagnostic::Diagnostic;
use crate::recipe::section::Notes;

/// What the scheduler is told beside the job's size.
pub(super) fn launch(
    recipe: &Recipe,
    machine: &Machine,
    account: Option<&str>,
    notes: &mut Notes,
) -> Launch {
    let slurm = &recipe.job.slurm;
    let excluded = excluded(recipe, notes);
    let mut own: Vec<(&str, String)> = [
        ("partition", &slurm.partition),
        ("qos", &slurm.qos),
        ("constraint", &slurm.constraint),
        ("reservation", &slurm.reservation),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value.as_ref()?.value.clone())))
    .collect();
    if !excluded.is_empty() {
        own.push(("exclude", hostlist::fold(&excluded)));
    }
    let is_own = |option: &String| {
        let name = option.trim_start_matches('-').split('=').next();
        own.iter().any(|(own, _)| Some(*own) == name)
    };
    let site = machine
        .launch
        .sbatch
        .iter()
        .filter(|option| !is_own(option));
    let mut sbatch: Vec<String> = site.cloned().collect();
    sbatch.extend(own.iter().map(|(name, value)| format!("--{name}={value}")));
    let extra = |site: &[String], own: &[String]| [site, own].concat();
    let modules: Vec<String> = recipe
        .environment
        .modules
        .iter()
        .map(|module| module.value.clone())
        .collect();
    Launch {
        account: account
            .map(str::to_string)
            .filter(|_| machine.scheduler.kind == SchedulerKind::Slurm),
        sbatch: extra(&sbatch, &slurm.extra_sbatch),
        srun: extra(&machine.launch.srun, &slurm.extra_srun),
        modules: extra(&machine.modules, &modules),
    }
}

fn excluded(recipe: &Recipe, notes: &mut Notes) -> Vec<String> {
    let mut names = Vec::new();
    for list in &recipe.job.slurm.exclude {
        match hostlist::expand(&list.value) {
            Ok(nodes) => names.extend(nodes),
            Err(error) => notes.faults.push(
                Diagnostic::error("exclude", error.to_string())
                    .at(list.at, "")
                    .help("write node names as Slurm does: `node[1-3,7]`"),
            ),
        }
    }
    names
}
