//! Reads a recipe, resolves it and tells all its faults, or gives the plan.

use crate::machine::{self, user::User};
use crate::plan::resolve::{DataFile, Outcome, Site, resolve};
use crate::plan::{Plan, SchedulerKind};
use crate::recipe::diagnostic::{Diagnostic, Faults, Severity, Sources, Span};
use crate::recipe::section::{Given, Notes, Resolved, Shown};
use crate::recipe::yaml::Origin;
use crate::recipe::{Recipe, merge, source};
use haul_runtime::contract::TrainConfig;
use std::path::{Component, Path, PathBuf};

/// Faults that are told; a file with more is no recipe.
const MAX_FAULTS: usize = 50;

/// What decides a plan besides the binary.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub recipe: &'a Path,
    /// `key=value` overrides, in order.
    pub set: &'a [String],
    /// Name or file of a machine profile; else the user config's, else `local`.
    pub machine: Option<&'a str>,
    /// Run root from the command line or environment; else the user config's, the profile's, `./logs`.
    pub root: Option<&'a Path>,
    /// `~/.config/haul/config.yaml`, where there is one; see [`user_config`].
    pub user_config: Option<PathBuf>,
    /// Cores this process may run on, the node size of the profile `local`; see [`allowed_cores`].
    pub cores: usize,
    /// Bytes of memory of this machine, if known; see [`memory`].
    pub memory: Option<u64>,
}

impl<'a> Request<'a> {
    /// A request on this machine, for this user.
    pub fn new(
        recipe: &'a Path,
        set: &'a [String],
        machine: Option<&'a str>,
        root: Option<&'a Path>,
    ) -> Request<'a> {
        Request {
            recipe,
            set,
            // Set but empty counts as not set.
            machine: machine.filter(|name| !name.is_empty()),
            root,
            user_config: user_config(),
            cores: allowed_cores(),
            memory: memory(),
        }
    }
}

/// A recipe without faults.
#[derive(Debug, Clone)]
pub struct Checked {
    pub plan: Plan,
    /// The run root, absolute.
    pub root: PathBuf,
    /// The recipe file as written, for recipe.yaml of the run.
    pub recipe_text: Vec<u8>,
    /// After `extends`, `--set` and defaults; paths absolute or from `{root}`. For resolved.yaml of the run.
    pub resolved_yaml: String,
    pub warnings: Vec<Diagnostic>,
    /// What the spans of `warnings` and `resolved` point into.
    pub sources: Sources,
    /// Every value in force and where it came from.
    pub resolved: Vec<Resolved>,
}

/// Reads and checks a recipe. The faults are all faults of all its files at once.
pub fn load(request: &Request) -> Result<Checked, Faults> {
    let mut sources = Sources::default();
    let mut list = Vec::new();
    match read(request, &mut sources, &mut list) {
        Some(mut checked) if list.iter().all(|f| f.severity == Severity::Warning) => {
            checked.warnings = list;
            checked.sources = sources;
            Ok(checked)
        }
        _ => {
            if list.iter().all(|f| f.severity == Severity::Warning) {
                list.push(
                    Diagnostic::error("internal", "no plan could be made, and no fault was found")
                        .help("this is a bug in haul; please report it with the recipe"),
                );
            }
            // In the order in which a reader meets them; warnings last.
            list.sort_by_key(|f| {
                let place = f.labels.first().map(|(span, _)| (span.source, span.start));
                (f.severity == Severity::Warning, place)
            });
            let more = list.len().saturating_sub(MAX_FAULTS);
            if more > 0 {
                list.truncate(MAX_FAULTS);
                list.push(
                    Diagnostic::error("many", format!("and {more} more faults"))
                        .help("is this the right file?"),
                );
            }
            Err(Faults { sources, list })
        }
    }
}

fn read(request: &Request, sources: &mut Sources, faults: &mut Vec<Diagnostic>) -> Option<Checked> {
    let merged = merge::load(request.recipe, request.set, sources, faults);
    let user = machine::user::load(request.user_config.as_deref(), sources, faults);
    let machine = profile(request, &user, sources, faults);
    // Without a tree or a profile nothing more can be said.
    let merged = merged?;
    let mut notes = Notes::default();
    let (recipe, _) = Recipe::read(Some(&merged.tree), &mut notes);
    let Some(machine) = machine else {
        faults.append(&mut notes.faults);
        return None;
    };
    let root = run_root(request.root, &user, machine.root.as_deref(), sources);
    let chosen = site_values(request, &user, &machine, &root);
    let site = Site {
        machine: &machine,
        cores: request.cores,
        memory: request.memory,
        root: &root,
        account: user.account.as_ref().map(|a| a.value.as_str()),
        notify: user.notify.as_ref(),
    };
    let (outcome, file) = resolve(&recipe, &site, sources, &mut notes);
    faults.append(&mut notes.faults);
    let config = outcome.as_ref().and_then(|o| o.plan.train_config.as_ref());
    if let Some(file) = file
        && recipe.program.is_none()
    {
        let here = machine.scheduler.kind == SchedulerKind::Local;
        faults.extend(data(&file, config, here));
    }
    let outcome = outcome?;
    let Outcome {
        plan,
        resolved_yaml,
        ..
    } = outcome;
    faults.extend(program(&plan));
    faults.extend(warmup(&plan, recipe.train.warmup_steps.at));
    faults.extend(ramp(&plan, recipe.train.schedule.warmup.at));
    Some(Checked {
        plan,
        root,
        recipe_text: merged.bytes,
        resolved_yaml,
        warnings: Vec::new(),
        sources: Sources::default(),
        resolved: chosen.into_iter().chain(notes.resolved).collect(),
    })
}

fn profile(
    request: &Request,
    user: &User,
    sources: &mut Sources,
    faults: &mut Vec<Diagnostic>,
) -> Option<machine::Machine> {
    let directory;
    let choice = match (request.machine, &user.machine) {
        (Some(name), _) => machine::Choice {
            name,
            at: None,
            directory: Path::new(""),
        },
        (None, Some(given)) => {
            directory = directory_of(sources, given.at);
            machine::Choice {
                name: &given.value,
                at: given.at,
                directory: &directory,
            }
        }
        (None, None) => machine::Choice {
            name: "local",
            at: None,
            directory: Path::new(""),
        },
    };
    machine::load(&choice, sources, faults)
}

/// Machine and root as values with their origins, for `--show`.
fn site_values(
    request: &Request,
    user: &User,
    machine: &machine::Machine,
    root: &Path,
) -> [Resolved; 2] {
    let origin = |flag: bool, given: Option<&Given<String>>, profile: bool| match (flag, given) {
        (true, _) => (Origin::Set, None),
        (false, Some(given)) => (Origin::User, given.at),
        (false, None) if profile => (Origin::Profile, None),
        (false, None) => (Origin::Default, None),
    };
    let value = |key: &str, value: Shown, (origin, at)| Resolved {
        key: key.into(),
        value,
        origin,
        at,
    };
    [
        value(
            "machine",
            Shown::Plain(machine.name.clone()),
            origin(request.machine.is_some(), user.machine.as_ref(), false),
        ),
        value(
            "root",
            Shown::Text(root.display().to_string()),
            origin(
                request.root.is_some(),
                user.root.as_ref(),
                machine.root.is_some(),
            ),
        ),
    ]
}

fn directory_of(sources: &Sources, at: Option<Span>) -> PathBuf {
    at.and_then(|span| sources.get(span.source))
        .map(|source| source.directory.clone())
        .unwrap_or_default()
}

fn run_root(
    given: Option<&Path>,
    user: &User,
    profile: Option<&str>,
    sources: &Sources,
) -> PathBuf {
    let path = given
        .map(Path::to_path_buf)
        .or_else(|| {
            let root = user.root.as_ref()?;
            Some(directory_of(sources, root.at).join(&root.value))
        })
        .or_else(|| profile.map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from("logs"));
    plain(&std::path::absolute(&path).unwrap_or(path))
}

/// `path` without `..`: the directory above is that of the place a link leads to, as for the kernel.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain = plain.canonicalize().unwrap_or(plain);
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// The file of tokens as the trainer will find it: its presence, and its length where the sizes are known.
fn data((file, at): &DataFile, config: Option<&TrainConfig>, here: bool) -> Option<Diagnostic> {
    let shown = file.display();
    let fault = |message: String, help: &str| {
        // Elsewhere the file may well be there.
        let severity = if here {
            Severity::Error
        } else {
            Severity::Warning
        };
        Some(Diagnostic {
            severity,
            ..Diagnostic::error("data", message).at(*at, "").help(help)
        })
    };
    let size = match source::size(file) {
        Ok(size) => size,
        Err(reason) => {
            return fault(
                format!("the file of tokens {shown} {reason}"),
                "a relative path is relative to the file it stands in",
            );
        }
    };
    let config = config?;
    let seq_len = config.model.seq_len as u64;
    let sequences = size.saturating_sub(1) / seq_len;
    if sequences < 1 {
        return fault(
            format!(
                "the data has {size} bytes, but one sequence takes seq_len + 1 = {}",
                seq_len + 1
            ),
            "use a longer text or a smaller `model.seq_len`",
        );
    }
    let held_out = (sequences as f64 * config.data.validation).floor() as u64;
    if sequences == held_out || (held_out == 0 && config.train.eval_every > 0) {
        return fault(
            format!(
                "the data has {sequences} sequences of {seq_len} tokens, of which validation = {} holds out {held_out}",
                config.data.validation
            ),
            "both training and evaluation need at least one; use a longer text or another `data.validation`",
        );
    }
    None
}

/// A program that is given by its path and is not there now. What prepares a job may still bring it.
fn program(plan: &Plan) -> Option<Diagnostic> {
    let crate::plan::Program::Command { command } = &plan.program else {
        return None;
    };
    let path = Path::new(command.first()?);
    let local = plan.machine.scheduler == crate::plan::SchedulerKind::Local;
    // One with placeholders is known by the attempt only, one without a path is looked for on PATH.
    let told = path.is_absolute() && !command.first()?.contains('{');
    (local && told && !path.exists()).then(|| {
        Diagnostic::warning("program", format!("the program {} is not there", path.display()))
            .help("a relative path is relative to the file it stands in; without it the run fails at once")
    })
}

/// Warm-up steps that leave no step for the figures of speed.
fn warmup(plan: &Plan, at: Option<Span>) -> Option<Diagnostic> {
    let warmup = plan.train_config.as_ref()?.train.warmup_steps;
    let total = super::view::total_steps(plan)?;
    (warmup >= total && !plan.shared_cores).then(|| {
        let words = format!(
            "all {total} steps of the run are warm-up steps (train.warmup_steps = {warmup}), so no speed will be told"
        );
        Diagnostic::warning("warmup", words)
            .at(at, "")
            .help("set `train.warmup_steps` to less than the run has steps")
    })
}

/// A learning rate that the run ends too early to reach.
fn ramp(plan: &Plan, at: Option<Span>) -> Option<Diagnostic> {
    let warmup = plan.train_config.as_ref()?.train.schedule.warmup;
    let total = super::view::total_steps(plan)?;
    (warmup >= total).then(|| {
        let words = format!(
            "the learning rate warms up over {warmup} steps, but the run has {total}, so its peak is never reached"
        );
        Diagnostic::warning("warmup", words)
            .at(at, "")
            .help("set `train.schedule.warmup` to less than the run has steps")
    })
}

/// Path of the user config: `$XDG_CONFIG_HOME/haul/config.yaml`, else `~/.config/haul/config.yaml`; `None` where neither is set.
pub fn user_config() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = var("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| var("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(base.join("haul").join("config.yaml"))
}

/// Cores this process may run on, by its affinity mask.
pub fn allowed_cores() -> usize {
    use nix::sched::{CpuSet, sched_getaffinity};
    use nix::unistd::Pid;
    sched_getaffinity(Pid::from_raw(0)).map_or(1, |set| {
        (0..CpuSet::count())
            .filter(|&core| set.is_set(core).unwrap_or(false))
            .count()
            .max(1)
    })
}

/// Bytes of memory of this machine, or of the control group this process is confined to.
pub fn memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("MemTotal:"))?;
    let total = line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024;
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    Some(group.map_or(total, |limit| limit.min(total)))
}

/// Where a command without a recipe works.
#[derive(Debug, Clone)]
pub struct Here {
    pub machine: machine::Machine,
    /// Absolute.
    pub root: PathBuf,
    /// Of the user's config.
    pub account: Option<String>,
}

/// The machine (`name`: --machine, HAUL_MACHINE; else the user config's, else `local`), the run root on it, and the account.
pub fn here(name: Option<&str>, root: Option<&Path>) -> Result<Here, Faults> {
    let mut sources = Sources::default();
    let mut list = Vec::new();
    let user = machine::user::load(user_config().as_deref(), &mut sources, &mut list);
    let request = Request {
        recipe: Path::new(""),
        set: &[],
        machine: name.filter(|name| !name.is_empty()),
        root,
        user_config: None,
        cores: 1,
        memory: None,
    };
    let machine = profile(&request, &user, &mut sources, &mut list);
    match machine {
        Some(machine) if list.is_empty() => Ok(Here {
            root: run_root(root, &user, machine.root.as_deref(), &sources),
            account: user.account.map(|account| account.value),
            machine,
        }),
        _ => Err(Faults { sources, list }),
    }
}

/// The run root for commands without a recipe: `given` (--root, HAUL_ROOT), else the user config's, the profile's, `./logs`. Absolute.
pub fn root(given: Option<&Path>) -> Result<PathBuf, Faults> {
    match given {
        Some(_) => Ok(run_root(given, &User::default(), None, &Sources::default())),
        None => here(None, None).map(|here| here.root),
    }
}

/// `--show`: every value and where it came from, aligned.
pub fn show(checked: &Checked) -> String {
    let rows: Vec<[String; 4]> = crate::plan::resolved::sorted(&checked.resolved)
        .into_iter()
        .map(|r| {
            [
                r.key.clone(),
                crate::plan::resolved::shown(&r.value),
                r.origin.to_string(),
                crate::recipe::section::place(&checked.sources, r.at).unwrap_or_default(),
            ]
        })
        .collect();
    let width = |column: usize, most: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
            .min(most)
    };
    let (keys, values) = (width(0, 40), width(1, 44));
    let mut text = String::new();
    for [key, value, origin, place] in &rows {
        let line = format!("{key:keys$}  {value:values$}  {origin:7}  {place}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `--show --json`.
pub fn show_json(checked: &Checked) -> Vec<serde_json::Value> {
    crate::plan::resolved::sorted(&checked.resolved)
        .into_iter()
        .map(|r| {
            let place = r.at.and_then(|span| checked.sources.place(span));
            serde_json::json!({
                "key": r.key,
                "value": json_value(&r.value),
                "origin": r.origin.to_string(),
                "file": place.map(|p| p.file),
                "line": place.map(|p| p.line),
                "column": place.map(|p| p.column),
            })
        })
        .collect()
}

fn json_value(value: &Shown) -> serde_json::Value {
    match value {
        Shown::Plain(text) => serde_json::from_str::<serde_json::Number>(text)
            .map_or_else(|_| text.as_str().into(), serde_json::Value::Number),
        Shown::Text(text) => text.as_str().into(),
        Shown::List(items) => items.iter().map(json_value).collect(),
    }
}
