//! `haul render`: both scripts of a recipe, with sample paths.

use crate::actions::check::Checked;
use crate::plan::SchedulerKind;
use crate::render::{JobContext, LaunchContext, RenderError, Templates};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// job.sh and launch.sh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scripts {
    pub job: String,
    pub launch: String,
}

/// Renders both as the first job and attempt would have them; `templates` overrides the embedded ones.
pub fn scripts(checked: &Checked, templates: Option<&Path>) -> Result<Scripts, RenderError> {
    let templates = match templates {
        Some(directory) => Templates::from_directory(directory)?,
        None => Templates::embedded()?,
    };
    let plan = &checked.plan;
    // What only a submission decides stands in as samples.
    let id = format!("{}-yymmdd-xxxx", plan.name);
    let run_dir = checked.root.join(&id);
    let haul = checked.root.join("bin").join("HASH");
    let job = templates.job_script(
        plan,
        &JobContext {
            haul: haul.clone(),
            run_dir: run_dir.clone(),
            slot: 1,
            token: format!("haul-{id}-1"),
        },
    )?;
    let host = match plan.machine.scheduler {
        SchedulerKind::Local => Ipv4Addr::LOCALHOST,
        // Documentation range: the supervisor's own address is known in the job only.
        SchedulerKind::Slurm => Ipv4Addr::new(192, 0, 2, 1),
    };
    let launch = templates.launch_script(
        plan,
        &LaunchContext {
            haul,
            root: checked.root.clone(),
            run_dir: run_dir.clone(),
            slot: 1,
            attempt: 1,
            supervisor: SocketAddr::from((host, 40000)),
            minutes_left: plan.job.walltime_seconds.map(|s| s / 60),
            save_dir: run_dir.join("checkpoints").join("1"),
            load_from: None,
            plan_file: run_dir.join("jobs").join("1").join("plan.json"),
        },
    )?;
    Ok(Scripts { job, launch })
}
