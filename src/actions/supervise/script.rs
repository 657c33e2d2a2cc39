//! Stand-in for `render::launch_script`.

use crate::plan::{Plan, Program};
use crate::render::{LaunchContext, RenderError, text};

pub(super) fn launch_script(plan: &Plan, context: &LaunchContext) -> Result<String, RenderError> {
    let quote = |s: &str| format!("'{}'", s.replace('\'', r"'\''"));
    let haul = text(&context.haul)?;
    let mut script = String::from("#!/bin/bash\n");
    for variable in &plan.environment.variables {
        script.push_str(&format!(
            "export {}={}\n",
            variable.name,
            quote(&variable.value)
        ));
    }
    script.push_str(&format!(
        "exec {} launch --run {} --attempt {} --node \"$1\" --supervisor {} --",
        quote(haul),
        quote(text(&context.run_dir)?),
        context.attempt,
        context.supervisor
    ));
    let command = match &plan.program {
        Program::Command { command } => command.clone(),
        Program::Bundled => [
            haul,
            "worker",
            "--mode",
            "train",
            "--plan",
            text(&context.plan_file)?,
        ]
        .map(String::from)
        .to_vec(),
    };
    for argument in &command {
        script.push_str(&format!(" {}", quote(argument)));
    }
    script.push('\n');
    Ok(script)
}
