//! Use case: the text of job.sh.

use crate::plan::Plan;
use crate::render::JobContext;

/// job.sh of a slot, by the templates inside the binary.
pub fn job(_plan: &Plan, _context: &JobContext) -> anyhow::Result<String> {
    anyhow::bail!("job scripts come with a later version")
}
