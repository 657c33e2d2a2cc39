//! Recipe and machine → plan, with the rules that hold between values.

mod batch;
mod layout;
mod limits;
mod options;
mod program;
mod trained;

use super::{
    ChainLimits, Checkpoint, Cost, Environment, Job, MachineFacts, Plan, Restart, SCHEMA,
    SchedulerKind, fingerprint, resolved,
};
use crate::machine::Machine;
use crate::recipe::Recipe;
use crate::recipe::chain::Chain;
use crate::recipe::checkpoint::Every;
use crate::recipe::diagnostic::{Diagnostic, Severity, Sources, Span};
use crate::recipe::section::{Notes, Resolved, Shown};
use crate::recipe::yaml::Origin;
use std::path::{Path, PathBuf};

/// Where the plan is to run.
#[derive(Debug, Clone)]
pub struct Site<'a> {
    pub machine: &'a Machine,
    /// Cores of this machine that a process may use, for profiles that do not give their own.
    pub cores: usize,
    /// Bytes of memory of this machine, if known, for profiles that do not give their own.
    pub memory: Option<u64>,
    /// Absolute.
    pub root: &'a Path,
    pub account: Option<&'a str>,
    /// Of the user's config, where the recipe says nothing of it.
    pub notify: Option<&'a crate::recipe::notify::Notify>,
}

/// A resolved recipe: the plan and what it was made from.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub plan: Plan,
    pub resolved_yaml: String,
}

/// The file of tokens on this machine and where the recipe names it.
pub type DataFile = (PathBuf, Option<Span>);

/// Makes the plan, and tells the file of tokens even where no plan can be made. `None`: an error is in `notes`.
/// `notes` holds what reading the recipe gave and gets what is derived.
pub fn resolve(
    recipe: &Recipe,
    site: &Site,
    sources: &Sources,
    notes: &mut Notes,
) -> (Option<Outcome>, Option<DataFile>) {
    let data = data(recipe, site, sources, notes);
    let outcome = plan(recipe, site, sources, data.as_ref(), notes);
    (outcome, data.map(|d| (d.file, d.at)))
}

fn plan(
    recipe: &Recipe,
    site: &Site,
    sources: &Sources,
    data: Option<&DataPath>,
    notes: &mut Notes,
) -> Option<Outcome> {
    let layout = layout::resolve(recipe, site, notes);
    let batch = batch::resolve(recipe, &layout, notes);
    let trained = trained::resolve(recipe, &layout, batch, data, notes);
    limits::check(recipe, site, &layout, trained.as_ref(), notes);
    let launch = options::launch(recipe, site.machine, site.account, notes);
    let values = resolved::values(&notes.resolved);
    program::check(recipe, &values, notes);
    if notes.faults.iter().any(|f| f.severity == Severity::Error) {
        return None;
    }
    let machine = site.machine;
    let walltime_seconds = recipe.job.walltime.as_ref().map(|w| w.value);
    let world = layout.nodes * layout.ranks_per_node;
    let mut plan = Plan {
        schema: SCHEMA.into(),
        name: recipe.name.as_ref()?.value.clone(),
        fingerprint: String::new(),
        machine: MachineFacts {
            profile: machine.name.clone(),
            scheduler: machine.scheduler.kind,
            confirmed: machine.confirmed,
            device: machine.node.device.clone(),
            binding: machine.binding,
            submit_command: match machine.scheduler.kind {
                SchedulerKind::Local => "bash".into(),
                SchedulerKind::Slurm => "sbatch".into(),
            },
            here: false,
            poll_floor: match machine.scheduler.kind {
                SchedulerKind::Local => None,
                SchedulerKind::Slurm => Some(machine.scheduler.poll_floor),
            },
            interface: machine.node.interface.clone(),
        },
        mesh: layout.mesh?,
        threads: layout.cores_per_rank,
        shared_cores: layout.shared_cores,
        job: Job {
            nodes: layout.nodes,
            ranks_per_node: layout.ranks_per_node,
            cores_per_rank: layout.cores_per_rank,
            walltime_seconds,
        },
        program: program::program(recipe, sources),
        train_config: trained.as_ref().map(|t| t.config.clone()),
        checkpoint: recipe.checkpoint.as_ref().map(|c| Checkpoint {
            every_steps: match c.every.value {
                Every::Steps(steps) => Some(steps),
                Every::Seconds(_) => None,
            },
            every_seconds: match c.every.value {
                Every::Steps(_) => None,
                Every::Seconds(seconds) => Some(seconds as f64),
            },
            keep: c.keep.value as usize,
        }),
        restart: Restart {
            failures: u32::try_from(recipe.restart.failures.value).unwrap_or(u32::MAX),
        },
        chain: match recipe.chain.value {
            Chain::None => None,
            Chain::AtEnd => Some(ChainLimits {
                jobs: recipe.limits.jobs.as_ref().map(|jobs| jobs.value as u32),
                node_hours: recipe.limits.node_hours.as_ref().map(|hours| hours.value),
                until: recipe.limits.until.as_ref().map(|day| day.value.clone()),
            }),
        },
        notify: recipe
            .notify
            .as_ref()
            .or(site.notify)
            .map(|notify| program::notify(notify, sources)),
        environment: Environment {
            variables: program::variables(recipe, machine),
            setup: recipe.environment.setup.as_ref().map(|s| s.value.clone()),
        },
        values,
        memory: trained
            .as_ref()
            .map(|t| t.measure.memory.clone())
            .unwrap_or_default(),
        flops: trained.map(|t| t.measure.flops),
        cost: Cost {
            ranks: world,
            node_hours: walltime_seconds.map(|s| layout.nodes as f64 * s as f64 / 3600.0),
            charge: machine.charge.clone(),
            charge_rate: machine.charge_rate,
        },
        launch,
    };
    plan.fingerprint = fingerprint::of(&plan);
    program_path(&plan, notes);
    let implied: &[&str] = match &recipe.batch.size {
        Some(crate::recipe::batch::Size::Global(_)) => &["batch.per_replica", "batch.accumulation"],
        Some(crate::recipe::batch::Size::PerReplica(_)) => &["batch.global", "batch.accumulation"],
        _ => &["batch.global", "batch.per_replica"],
    };
    Some(Outcome {
        plan,
        resolved_yaml: resolved::yaml(&notes.resolved, implied),
    })
}

/// Paths of programs stand in the resolved recipe as in the plan: absolute, where they were relative to a file.
fn program_path(plan: &Plan, notes: &mut Notes) {
    let program = match &plan.program {
        super::Program::Command { command } => Some(command),
        super::Program::Bundled => None,
    };
    let notify = plan.notify.as_ref().map(|notify| &notify.command);
    for (key, command) in [("program.command", program), ("notify.command", notify)] {
        let shown = notes.resolved.iter_mut().find(|r| r.key == key);
        if let Some(Shown::List(words)) = shown.map(|r| &mut r.value)
            && let Some(first) = words.first_mut()
            && let Some(word) = command.and_then(|command| command.first())
        {
            *first = Shown::Text(word.clone());
        }
    }
}

/// The place of `key`, else of the section it belongs to.
fn span_of(notes: &Notes, key: &str) -> Option<Span> {
    let mut key = key;
    loop {
        let found = notes
            .resolved
            .iter()
            .filter(|r| {
                r.key == key
                    || r.key
                        .strip_prefix(key)
                        .is_some_and(|rest| rest.starts_with('.'))
            })
            .find_map(|r| r.at);
        if found.is_some() {
            return found;
        }
        key = &key[..key.rfind('.')?];
    }
}

/// Notes a value that follows from others.
fn derive(notes: &mut Notes, key: &str, value: impl std::fmt::Display) {
    if notes.resolved.iter().any(|r| r.key == key) {
        return;
    }
    notes.resolved.push(Resolved {
        key: key.into(),
        value: Shown::Plain(value.to_string()),
        origin: Origin::Default,
        at: None,
    });
}

/// The data's path in the plan and on this machine.
struct DataPath {
    /// Absolute, or from `{root}`.
    planned: String,
    file: PathBuf,
    at: Option<Span>,
}

fn data(recipe: &Recipe, site: &Site, sources: &Sources, notes: &mut Notes) -> Option<DataPath> {
    const ROOT: &str = "{root}";
    let given = recipe.data.path.as_ref()?;
    let fault = |message: &str, help: &str| {
        Diagnostic::error("path", message)
            .at(given.at, "")
            .help(help)
    };
    if given.value.is_empty() {
        notes.faults.push(fault(
            "`data.path` is empty",
            "name the file of training tokens",
        ));
        return None;
    }
    if given.value.contains(char::is_control) {
        notes.faults.push(fault(
            "`data.path` has a control character",
            "rename the file",
        ));
        return None;
    }
    let file = if let Some(rest) = given.value.strip_prefix(ROOT) {
        if !(rest.is_empty() || rest.starts_with('/')) || rest.contains(['{', '}']) {
            notes.faults.push(fault(
                "`{root}` stands for the run root, before a `/`",
                "for example `{root}/data/text.txt`",
            ));
            return None;
        }
        site.root.join(rest.trim_start_matches('/'))
    } else {
        let directory = given
            .at
            .and_then(|span| sources.get(span.source))
            .map(|source| source.directory.clone())
            .unwrap_or_default();
        let joined = directory.join(&given.value);
        normal(&std::path::absolute(&joined).unwrap_or(joined))
    };
    let file = normal(&file);
    let Some(text) = file.to_str() else {
        notes.faults.push(fault(
            "`data.path` is not UTF-8 once it is absolute",
            "move the recipe to a path in UTF-8",
        ));
        return None;
    };
    let planned = match file
        .strip_prefix(normal(site.root))
        .ok()
        .and_then(Path::to_str)
    {
        Some("") => ROOT.to_string(),
        Some(rest) => format!("{ROOT}/{rest}"),
        None => text.to_string(),
    };
    if let Some(resolved) = notes.resolved.iter_mut().find(|r| r.key == "data.path") {
        resolved.value = Shown::Text(planned.clone());
    }
    Some(DataPath {
        planned,
        file,
        at: given.at,
    })
}

/// Without `.` and `..`, by the words of the path alone.
fn normal(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}
