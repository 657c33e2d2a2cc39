//! Reads a recipe, resolves it and tells all its faults, or gives the plan.

use crate::plan::Plan;
use crate::recipe::diagnostic::{Diagnostic, Faults, Sources};
use std::path::{Path, PathBuf};

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
}

/// A recipe without faults.
#[derive(Debug, Clone)]
pub struct Checked {
    pub plan: Plan,
    /// The run root, absolute.
    pub root: PathBuf,
    /// The recipe file as written, for recipe.yaml of the run.
    pub recipe_text: Vec<u8>,
    /// After `extends`, user config, `--set` and defaults; paths absolute. For resolved.yaml of the run.
    pub resolved_yaml: String,
    pub warnings: Vec<Diagnostic>,
    /// What the spans of `warnings` point into.
    pub sources: Sources,
}

/// Reads and checks a recipe. The faults are all faults of all its files at once.
pub fn load(request: &Request) -> Result<Checked, Faults> {
    let _ = request;
    Err(Faults {
        sources: Sources::default(),
        list: vec![Diagnostic::error(
            "later",
            "recipes come with a later version",
        )],
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

/// The run root for commands without a recipe: `given` (--root, HAUL_ROOT), else the user config's, else `./logs`. Absolute.
pub fn root(given: Option<&Path>) -> Result<PathBuf, Faults> {
    let path = given.map_or_else(|| PathBuf::from("logs"), Path::to_path_buf);
    Ok(std::path::absolute(&path).unwrap_or(path))
}
