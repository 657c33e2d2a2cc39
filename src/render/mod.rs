//! Plan → job.sh and launch.sh, through templates; [`quote`] is the only quoting.

pub mod quote;
mod templates;

pub use templates::Templates;

use crate::plan::placeholder::{self, FaultKind};
use crate::plan::{Plan, Program, SchedulerKind};
use crate::recipe::environment::{is_name, is_of_the_shell};
use haul_runtime::contract::env;
use quote::{Controls, control};
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What job.sh needs besides the plan: paths only.
#[derive(Debug, Clone)]
pub struct JobContext {
    /// The binary in the run root that every job of the run executes.
    pub haul: PathBuf,
    pub run_dir: PathBuf,
    pub slot: u32,
    /// The job's name, by which an ambiguous submission is looked up.
    pub token: String,
}

/// What launch.sh of one attempt needs besides the plan.
#[derive(Debug, Clone)]
pub struct LaunchContext {
    pub haul: PathBuf,
    pub root: PathBuf,
    pub run_dir: PathBuf,
    pub slot: u32,
    pub attempt: u32,
    /// Where the supervisor listens.
    pub supervisor: SocketAddr,
    /// Until the walltime limit; absent where there is none.
    pub minutes_left: Option<u64>,
    pub save_dir: PathBuf,
    /// Checkpoint to start from; empty in the environment at a first start.
    pub load_from: Option<PathBuf>,
    /// jobs/<slot>/plan.json.
    pub plan_file: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("cannot render {template}: {}", words(.source))]
    Template {
        template: &'static str,
        #[source]
        source: Box<tera::Error>,
    },
    #[error("{what} has a control character at byte {at}, which cannot stand in {place}")]
    Control {
        what: String,
        at: usize,
        place: &'static str,
    },
    #[error("unknown placeholder {{{key}}} in {what}{}", .suggestion.as_ref().map(|s| format!("; did you mean {{{s}}}?")).unwrap_or_default())]
    Placeholder {
        key: String,
        what: String,
        suggestion: Option<String>,
    },
    #[error("{} is not UTF-8, which job scripts need", .0.display())]
    NotUtf8(PathBuf),
    #[error("{what} has a single `{brace}` at byte {at}; write `{brace}{brace}` for a brace")]
    Brace {
        what: String,
        brace: char,
        at: usize,
    },
    #[error("`{0}` cannot be the name of a variable in a script")]
    Variable(String),
    #[error("{} holds no template: it is not there, or has none of {names}", .directory.display())]
    NoTemplate { directory: PathBuf, names: String },
    #[error("the template {} cannot be read: {source}", .path.display())]
    TemplateFile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// A template's error with its causes, which say the line.
fn words(error: &tera::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// job.sh of a slot, by the templates inside the binary.
pub fn job_script(plan: &Plan, context: &JobContext) -> Result<String, RenderError> {
    Templates::embedded()?.job_script(plan, context)
}

/// launch.sh of an attempt, by the templates inside the binary.
pub fn launch_script(plan: &Plan, context: &LaunchContext) -> Result<String, RenderError> {
    Templates::embedded()?.launch_script(plan, context)
}

impl Templates {
    /// job.sh of a slot: paths, #SBATCH lines and the user's setup lines; the same for the local scheduler and Slurm.
    pub fn job_script(&self, plan: &Plan, context: &JobContext) -> Result<String, RenderError> {
        let run_dir = path(&context.run_dir)?;
        let job_dir = context.run_dir.join("jobs").join(context.slot.to_string());
        if let Some(setup) = &plan.environment.setup {
            refuse_control("environment.setup", setup, Controls::Lines, "job.sh")?;
        }
        for option in plan.launch.sbatch.iter().chain(&plan.launch.account) {
            refuse_control(
                "an option of the machine profile",
                option,
                Controls::Refused,
                "#SBATCH lines",
            )?;
        }
        for module in &plan.launch.modules {
            refuse_control(
                "a module of the machine profile",
                module,
                Controls::Refused,
                "job.sh",
            )?;
        }
        let walltime = plan.job.walltime_seconds.unwrap_or(0);
        let output = format!("{}/job.out", path(&job_dir)?.replace('%', "%%"));
        let header = self.sbatch(&json!({
            "slurm": plan.machine.scheduler == SchedulerKind::Slurm,
            "token": plain("the job's name", &context.token)?,
            "nodes": plan.job.nodes,
            "ranks_per_node": plan.job.ranks_per_node,
            "cores_per_rank": plan.job.cores_per_rank,
            "time": clock(walltime),
            "signal": format!("B:USR1@{}", (walltime / 4).min(300)),
            "output": output,
            "account": plan.launch.account,
            "options": plan.launch.sbatch,
        }))?;
        let body = self.job(&json!({
            "run": run_id(&context.run_dir)?,
            "slot": context.slot,
            "profile": plan.machine.profile,
            "version": env!("CARGO_PKG_VERSION"),
            "submit": plan.machine.submit_command,
            "script": path(&job_dir.join("job.sh"))?,
            "modules": plan.launch.modules,
            "setup": plan.environment.setup.as_deref().unwrap_or_default(),
            "haul": path(&context.haul)?,
            "run_dir": run_dir,
        }))?;
        Ok(format!("{}\n{body}", header.trim_end()))
    }

    /// launch.sh of an attempt: each variable and argument quoted, placeholders filled.
    pub fn launch_script(
        &self,
        plan: &Plan,
        context: &LaunchContext,
    ) -> Result<String, RenderError> {
        let run_dir = path(&context.run_dir)?;
        let values = Values::new(plan, context)?;
        let mut variables = vec![
            ("HAUL_ROOT".to_string(), path(&context.root)?.to_string()),
            (env::RUN_DIR.into(), run_dir.into()),
            (env::ATTEMPT.into(), context.attempt.to_string()),
            (env::SAVE_DIR.into(), path(&context.save_dir)?.into()),
            (env::LOAD_FROM.into(), values.load_from.clone()),
        ];
        let threads = "OMP_NUM_THREADS";
        let foreign = matches!(plan.program, Program::Command { .. });
        if foreign && !plan.environment.variables.iter().any(|v| v.name == threads) {
            variables.push((threads.into(), plan.threads.to_string()));
        }
        for variable in &plan.environment.variables {
            if !is_name(&variable.name) || is_of_the_shell(&variable.name) {
                return Err(RenderError::Variable(variable.name.clone()));
            }
            let what = format!("environment.variables.{}", variable.name);
            variables.push((variable.name.clone(), values.fill(&what, &variable.value)?));
        }
        let command = match &plan.program {
            Program::Bundled => [
                path(&context.haul)?,
                "worker",
                "--mode",
                "train",
                "--plan",
                path(&context.plan_file)?,
            ]
            .map(str::to_string)
            .to_vec(),
            Program::Command { command } => command
                .iter()
                .map(|word| values.fill("program.command", word))
                .collect::<Result<_, _>>()?,
        };
        for option in &plan.launch.srun {
            refuse_control(
                "an option of the machine profile",
                option,
                Controls::Refused,
                "srun options",
            )?;
        }
        let variables: Vec<_> = variables
            .into_iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        self.launch(&json!({
            "slurm": plan.machine.scheduler == SchedulerKind::Slurm,
            "run": run_id(&context.run_dir)?,
            "slot": context.slot,
            "attempt": context.attempt,
            "version": env!("CARGO_PKG_VERSION"),
            "variables": variables,
            "nodes": plan.job.nodes,
            "ranks": plan.world(),
            "ranks_per_node": plan.job.ranks_per_node,
            "cores_per_rank": plan.job.cores_per_rank,
            "options": plan.launch.srun,
            "haul": path(&context.haul)?,
            "run_dir": run_dir,
            "supervisor": context.supervisor.to_string(),
            "command": lines(&command),
        }))
    }
}

/// Values of placeholders of one attempt.
struct Values<'a> {
    plan: &'a Plan,
    context: &'a LaunchContext,
    root: &'a str,
    load_from: String,
}

impl<'a> Values<'a> {
    fn new(plan: &'a Plan, context: &'a LaunchContext) -> Result<Values<'a>, RenderError> {
        let load_from = match &context.load_from {
            Some(load_from) => path(load_from)?.to_string(),
            None => String::new(),
        };
        Ok(Values {
            plan,
            context,
            root: path(&context.root)?,
            load_from,
        })
    }

    fn get(&self, key: &str) -> Option<String> {
        let context = self.context;
        Some(match key {
            "root" => self.root.to_string(),
            "run_dir" => context.run_dir.to_str()?.to_string(),
            "attempt" => context.attempt.to_string(),
            "job.minutes_left" => context.minutes_left?.to_string(),
            "checkpoint.save" => context.save_dir.to_str()?.to_string(),
            "checkpoint.load" => self.load_from.clone(),
            // The only value that may start with the root.
            "data.path" => {
                let value = self.plan.values.get(key)?;
                match value.strip_prefix("{root}") {
                    Some(rest) => format!("{}{rest}", self.root),
                    None => value.clone(),
                }
            }
            key => self.plan.values.get(key)?.clone(),
        })
    }

    fn fill(&self, what: &str, text: &str) -> Result<String, RenderError> {
        let filled =
            placeholder::fill(text, |key| self.get(key)).map_err(|fault| match fault.kind {
                FaultKind::Brace(brace) => RenderError::Brace {
                    what: what.into(),
                    brace,
                    at: fault.start,
                },
                FaultKind::Unknown(key) => RenderError::Placeholder {
                    suggestion: crate::recipe::section::suggestion(
                        &key,
                        self.plan
                            .values
                            .keys()
                            .map(String::as_str)
                            .chain(placeholder::DYNAMIC),
                    )
                    .filter(|known| *known != key)
                    .map(str::to_string),
                    key,
                    what: what.into(),
                },
            })?;
        refuse_control(what, &filled, Controls::Lines, "launch.sh")?;
        Ok(filled)
    }
}

/// The words of a command in lines that begin with an option.
fn lines(command: &[String]) -> Vec<&[String]> {
    let mut lines = Vec::new();
    let mut from = 0;
    for (at, word) in command.iter().enumerate().skip(1) {
        if word.starts_with('-') {
            lines.push(&command[from..at]);
            from = at;
        }
    }
    lines.push(&command[from..]);
    lines
}

/// Seconds as `HH:MM:SS`.
fn clock(seconds: u64) -> String {
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

fn refuse_control(
    what: &str,
    text: &str,
    allowed: Controls,
    place: &'static str,
) -> Result<(), RenderError> {
    match control(text, allowed) {
        None => Ok(()),
        Some(at) => Err(RenderError::Control {
            what: what.into(),
            at,
            place,
        }),
    }
}

fn plain<'t>(what: &str, text: &'t str) -> Result<&'t str, RenderError> {
    refuse_control(what, text, Controls::Refused, "job scripts")?;
    Ok(text)
}

/// The path as text, or the error that says it cannot stand in a script.
fn path(path: &Path) -> Result<&str, RenderError> {
    let text = path
        .to_str()
        .ok_or_else(|| RenderError::NotUtf8(path.to_path_buf()))?;
    plain("a path", text)
}

/// The run id: the name of the run directory.
fn run_id(run_dir: &Path) -> Result<&str, RenderError> {
    path(run_dir.file_name().map(Path::new).unwrap_or(run_dir))
}
