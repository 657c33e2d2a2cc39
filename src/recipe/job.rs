//! `job`: the allocation.

use super::diagnostic::{Diagnostic, Span};
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
    pub slurm: Slurm,
}

/// What is only said to Slurm.
#[derive(Debug, Clone, PartialEq)]
pub struct Slurm {
    pub partition: Option<Given<String>>,
    pub qos: Option<Given<String>>,
    pub constraint: Option<Given<String>>,
    pub reservation: Option<Given<String>>,
    /// Node lists.
    pub exclude: Vec<Given<String>>,
    pub extra_sbatch: Vec<String>,
    pub extra_srun: Vec<String>,
}

pub(super) fn read(s: &mut Section) -> Job {
    s.later(&["spares"]);
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
        slurm: slurm(s),
    }
}

fn slurm(s: &mut Section) -> Slurm {
    Slurm {
        partition: s.text("partition", "Of Slurm; the profile's unless given.", None),
        qos: s.text("qos", "Quality of service of Slurm.", None),
        constraint: s.text("constraint", "Features of nodes, in Slurm's words.", None),
        reservation: s.text("reservation", "A reservation of Slurm.", None),
        exclude: s
            .texts(
                "exclude",
                "Nodes that are not used, such as `frontier[00256,04086-04087]`.",
            )
            .map(|given| given.value)
            .unwrap_or_default(),
        extra_sbatch: extra(
            s,
            "extra_sbatch",
            "Further options of sbatch, each one text.",
            OWN_SBATCH,
        ),
        extra_srun: extra(
            s,
            "extra_srun",
            "Further options of srun, each one text.",
            OWN_SRUN,
        ),
    }
}

/// Options that follow from the recipe, or that a run depends on; short forms too.
const OWN_SBATCH: &[&str] = &[
    "job-name",
    "J",
    "nodes",
    "N",
    "ntasks",
    "n",
    "ntasks-per-node",
    "cpus-per-task",
    "c",
    "time",
    "t",
    "signal",
    "output",
    "o",
    "error",
    "e",
    "open-mode",
    "requeue",
    "no-requeue",
    "parsable",
    "chdir",
    "D",
    "array",
    "a",
    "wrap",
    // sbatch would wait, submit nothing, or submit elsewhere than is looked.
    "wait",
    "W",
    "test-only",
    "clusters",
    "M",
    "account",
    "A",
    "partition",
    "p",
    "qos",
    "q",
    "constraint",
    "C",
    "reservation",
    "exclude",
    "x",
];
const OWN_SRUN: &[&str] = &[
    "nodes",
    "N",
    "ntasks",
    "n",
    "ntasks-per-node",
    "cpus-per-task",
    "c",
    "distribution",
    "m",
    "output",
    "o",
    "error",
    "e",
    "input",
    "i",
    "multi-prog",
    "pty",
    "export",
    "jobid",
    "relative",
    "r",
];

fn extra(s: &mut Section, name: &'static str, words: &'static str, own: &[&str]) -> Vec<String> {
    let mut options = Vec::new();
    for option in s.texts(name, words).map(|g| g.value).unwrap_or_default() {
        let text = option.value.trim_start_matches('-');
        let dashes = option.value.len() - text.len();
        let key = match dashes {
            1 => text.get(..text.chars().next().map_or(0, char::len_utf8)),
            _ => text.split(['=', ' ']).next(),
        };
        let fault = match key {
            Some(key) if matches!(dashes, 1 | 2) && !key.is_empty() => {
                let words = format!(
                    "`{key}` is decided by haul, from the recipe, the profile and the user config"
                );
                own.contains(&key).then_some((words, "use their keys"))
            }
            _ => Some((
                "this is no option".into(),
                "write each as one text, such as `--mail-type=END`",
            )),
        };
        match fault {
            Some((words, help)) => {
                s.fault(Diagnostic::error(name, words).at(option.at, "").help(help));
            }
            None => options.push(option.value),
        }
    }
    options
}
