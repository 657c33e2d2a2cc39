//! What will run, as plain data: no optional field that has a default. The same recipe, profile and version give the same bytes.
//!
//! `jobs/<slot>/plan.json` is the only input of render, supervise and worker: after submission nobody reads a recipe.
//! No host, job id, clock or root is in it; paths under the run root start with `{root}`.

pub mod fingerprint;
pub mod measure;
pub mod placeholder;
pub mod placement;
pub mod resolve;
pub mod resolved;

pub use crate::machine::profile::{Binding, SchedulerKind};

use haul_runtime::contract::{Mesh, TrainConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const SCHEMA: &str = "haul.plan/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: String,
    /// `[a-z0-9-]{1,40}`.
    pub name: String,
    /// blake3, hex, of all that decides results: this document without the field itself and without paths of the root.
    pub fingerprint: String,
    pub machine: MachineFacts,
    pub mesh: Mesh,
    /// Compute threads of one rank.
    pub threads: usize,
    /// More ranks than cores: no pinning, no spinning, no speed reported.
    pub shared_cores: bool,
    pub job: Job,
    pub program: Program,
    /// Absent for foreign programs that declare no model.
    pub train_config: Option<TrainConfig>,
    /// Absent: no checkpoints.
    pub checkpoint: Option<Checkpoint>,
    pub restart: Restart,
    /// A job that saved before its time limit submits its successor, within these limits; absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainLimits>,
    /// Who is told how the run ends; absent: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
    pub environment: Environment,
    /// Values for `{dotted.keys}` in arguments and variables, as they stand in the resolved recipe.
    pub values: BTreeMap<String, String>,
    /// Memory of one rank of each pipeline stage; empty for foreign programs.
    pub memory: Vec<StageMemory>,
    /// Absent for foreign programs that declare no model.
    pub flops: Option<Flops>,
    pub cost: Cost,
    /// What the machine's scheduler is told beside the job's size.
    pub launch: Launch,
}

/// A command that the supervisor runs once an end of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    pub on: Vec<On>,
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    Failed,
    Finished,
}

/// What a job is charged for at most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub ranks: usize,
    /// Nodes x walltime of one job; absent without a walltime: unknown, not 0.
    pub node_hours: Option<f64>,
    /// Unit of the site, such as `node-hours`.
    pub charge: Option<String>,
    /// Units for an hour of one node; absent where they are not known, and where they are node-hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge_rate: Option<f64>,
}

/// The unit that needs no rate.
pub const NODE_HOURS: &str = "node-hours";

impl Cost {
    /// Node-hours in the unit of the site; absent where it is not known what an hour of a node is charged with.
    pub fn charged(&self, node_hours: f64) -> Option<f64> {
        let rate = match self.charge.as_deref() {
            None | Some(NODE_HOURS) => self.charge_rate.or(Some(1.0)),
            Some(_) => self.charge_rate,
        };
        Some(node_hours * rate?)
    }
}

/// Options of the site, each one argument.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Launch {
    pub account: Option<String>,
    pub sbatch: Vec<String>,
    pub srun: Vec<String>,
    /// Modules that job.sh loads first.
    pub modules: Vec<String>,
}

/// What the plan took from the machine profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    pub profile: String,
    pub scheduler: SchedulerKind,
    /// Somebody has run `haul doctor` here and kept the result.
    pub confirmed: bool,
    /// `cores`, or the kind of GCD or GPU.
    pub device: String,
    pub binding: Binding,
    /// Where the start of job scripts tells how to submit by hand.
    pub submit_command: String,
    /// The ranks run in an allocation that the user holds already: nothing is submitted to the scheduler.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub here: bool,
    /// Seconds between two queries at least; of Slurm only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_floor: Option<u64>,
    /// Network interface that supervisor and ranks listen on; absent: one that leads off the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub nodes: usize,
    pub ranks_per_node: usize,
    pub cores_per_rank: usize,
    pub walltime_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Program {
    /// The trainer inside the binary.
    Bundled,
    /// Any other program; placeholders `{dotted.key}` are replaced when an attempt is launched.
    Command { command: Vec<String> },
}

/// When a checkpoint is due: after so many steps or so many seconds, whichever is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_steps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<f64>,
    /// Newest checkpoints of an attempt that are kept.
    pub keep: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// Failures within one job after which the run fails.
    pub failures: u32,
}

/// What stops a chain of jobs; absent limits do not.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChainLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Of all jobs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_hours: Option<f64>,
    /// `YYYY-MM-DD`, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Environment {
    /// In the order they are exported.
    pub variables: Vec<Variable>,
    /// Shell lines of the user, run by job.sh before the supervisor.
    pub setup: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

/// Bytes of one rank by class; the sum is the arena, to the byte.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageMemory {
    pub stage: usize,
    /// Class name → bytes.
    pub classes: BTreeMap<String, u64>,
    pub total: u64,
}

/// Floating-point operations of one optimizer step over all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    /// Model FLOPs a token with the full attention square (the convention of the paper).
    pub per_token: f64,
    /// Model FLOPs a token with the causal half.
    pub per_token_causal: f64,
    /// Parameters of the model, unpadded.
    pub parameters: u64,
    pub tokens_per_step: u64,
}

impl MachineFacts {
    /// Jobs are queued by Slurm.
    pub fn is_slurm(&self) -> bool {
        self.scheduler == SchedulerKind::Slurm && !self.here
    }
}

impl Plan {
    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.job.nodes * self.job.ranks_per_node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_the_site_needs_its_rate() {
        let cost = |charge: Option<&str>, charge_rate| Cost {
            ranks: 1,
            node_hours: None,
            charge: charge.map(str::to_owned),
            charge_rate,
        };
        assert_eq!(cost(None, None).charged(2.0), Some(2.0));
        assert_eq!(cost(Some(NODE_HOURS), None).charged(2.0), Some(2.0));
        assert_eq!(cost(Some("gpu-hours"), Some(4.0)).charged(2.0), Some(8.0));
        assert_eq!(cost(Some("gpu-hours"), None).charged(2.0), None);
    }
}
