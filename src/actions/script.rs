//! Use case: the text of job.sh.

use crate::plan::Plan;
use crate::render::{self, JobContext};

/// job.sh of a slot, by the templates inside the binary.
pub fn job(plan: &Plan, context: &JobContext) -> anyhow::Result<String> {
    Ok(render::job_script(plan, context)?)
}
