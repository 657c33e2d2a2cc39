//! `job`: the allocation.

use super::diagnostic::Span;
use super::section::{Given, Section};

#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub at: Option<Span>,
    pub nodes: Given<u64>,
    /// The profile's devices a node unless given; 1 where devices are cores.
    pub ranks_per_node: Option<Given<u64>>,
    /// The profile's cores a device unless given; 1 where devices are cores.
    pub cores_per_rank: Option<Given<u64>>,
    /// Seconds.
    pub walltime: Option<Given<u64>>,
}

pub(super) fn read(s: &mut Section) -> Job {
    s.later(&[
        "qos",
        "partition",
        "spares",
        "exclude",
        "extra_sbatch",
        "constraint",
        "reservation",
    ]);
    Job {
        at: s.head(),
        nodes: s.count_or(
            "nodes",
            "Nodes; on one machine, virtual ones that share its cores.",
            1..=100_000,
            1,
        ),
        ranks_per_node: s.count(
            "ranks_per_node",
            "Ranks on each node: the machine's devices unless given, 1 where devices are cores.",
            1..=1024,
        ),
        cores_per_rank: s.count(
            "cores_per_rank",
            "Cores, and compute threads, of each rank.",
            1..=1024,
        ),
        walltime: s.duration(
            "walltime",
            "Time limit of a job; none unless given, where the scheduler allows it.",
        ),
    }
}
