//! Machine profiles, schema 1: what is true of a site and of its nodes.

use crate::recipe::diagnostic::Diagnostic;
use crate::recipe::environment::{is_name, is_of_the_shell};
use crate::recipe::section::{Kind, Notes, Section};
use crate::recipe::yaml::Node;
use serde::{Deserialize, Serialize};

/// A profile. Later versions add fields and rename none.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub name: String,
    /// Somebody has run `haul doctor` there and kept the result.
    pub confirmed: bool,
    pub scheduler: Scheduler,
    pub binding: Binding,
    pub node: NodeFacts,
    /// By ascending nodes; a job falls under the first that has room for it.
    pub limits: Vec<Limit>,
    /// Unit that jobs are charged in.
    pub charge: Option<String>,
    /// Of these, for an hour of one node.
    pub charge_rate: Option<f64>,
    pub launch: Launch,
    /// Loaded by the job before anything else.
    pub modules: Vec<String>,
    pub environment: Vec<Variable>,
    pub peaks: Vec<Peak>,
    /// Run root, absolute.
    pub root: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerKind {
    Local,
    Slurm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// Ranks may use all allowed cores of their node.
    None,
    /// The shim splits the allowed cores evenly.
    Even,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scheduler {
    pub kind: SchedulerKind,
    /// Seconds between two queries at least.
    pub poll_floor: u64,
    pub chain: Chain,
    pub sbatch_from_compute: bool,
    pub requeue: bool,
}

/// When the successor of a job may be submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    Ahead,
    AtEnd,
    None,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
    /// Accelerators; `None` where devices are cores.
    pub devices: Option<u64>,
    /// `cores`, or the kind of accelerator.
    pub device: String,
    /// `None`: those of the machine at hand.
    pub cores: Option<u64>,
    /// Bytes; `None`: that of the machine at hand.
    pub memory: Option<u64>,
    /// Of `cores`, kept for the system.
    pub reserved_cores: u64,
    /// Network interface that ranks listen on.
    pub interface: Option<String>,
    pub local_disk: Option<String>,
}

/// The longest job of up to so many nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub nodes: u64,
    pub walltime_seconds: u64,
}

/// Options of the site, without those that the plan decides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Launch {
    pub sbatch: Vec<String>,
    pub srun: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    pub name: String,
    pub value: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Peak {
    pub quantity: String,
    /// Per second.
    pub value: f64,
    pub source: String,
}

impl Machine {
    /// Reads a profile and notes all faults; `None` where the kind of scheduler or the name is missing.
    pub fn read(tree: Option<&Node>, notes: &mut Notes) -> (Option<Machine>, Kind) {
        let mut root = Section::root(tree, notes);
        let s = &mut root;
        s.count("schema", "Version of this format: 1.", 1..=1);
        s.missing("schema", "add `schema: 1`");
        let name = s.text("name", "Name of the machine.", Some("^[a-z0-9-]{1,40}$"));
        s.missing("name", "add a line such as `name: mycluster`");
        let confirmed = s
            .flag_or("confirmed", "Has a run confirmed these figures?", false)
            .value;
        let scheduler = s.section("scheduler", "Who starts jobs.", scheduler);
        let binding = s
            .choice(
                "binding",
                "Who binds ranks to cores: none, or an even share of the allowed cores each.",
                &[("none", Binding::None), ("even", Binding::Even)],
                &["solved"],
                ("none", Binding::None),
            )
            .value;
        let node = s.section("node", "One node.", node);
        let mut limits: Vec<Limit> = s
            .maps("limits", "The longest job of up to so many nodes.", |s| {
                let nodes = s.count("nodes", "Up to so many nodes.", 1..=1_000_000);
                let walltime = s.duration("walltime", "The longest time limit.");
                s.missing("nodes", "say up to how many nodes this holds");
                s.missing("walltime", "say how long a job may be");
                Some(Limit {
                    nodes: nodes?.value,
                    walltime_seconds: walltime?.value,
                })
            })
            .into_iter()
            .flatten()
            .collect();
        limits.sort_by_key(|l| l.nodes);
        let charge = s.text("charge", "Unit that jobs are charged in.", None);
        let charge_rate = s.number(
            "charge_rate",
            "Units that an hour of one node is charged with.",
            0.0..=1e6,
        );
        let launch = s.section("launch", "Options of the site for sbatch and srun.", |s| {
            Launch {
                sbatch: options(s, "sbatch", "Options of sbatch, each one text."),
                srun: options(s, "srun", "Options of srun, each one text."),
            }
        });
        let modules = options(s, "modules", "Modules that jobs load first.");
        let environment = s
            .maps("environment", "Variables that ranks need there.", |s| {
                let name = s.text("name", "Name.", None);
                let value = s.text("value", "Value.", None);
                let why = s.text("why", "What goes wrong without it.", None);
                s.missing("name", "name the variable");
                s.missing("value", "give its value");
                s.missing("why", "say what goes wrong without it");
                let name = name?;
                if !is_name(&name.value) || is_of_the_shell(&name.value) {
                    s.fault(
                        Diagnostic::error("variable-name", "this cannot name a variable")
                            .at(name.at, "")
                            .help("use letters, digits and `_`, not a digit first"),
                    );
                }
                Some(Variable {
                    name: name.value,
                    value: value?.value,
                    why: why?.value,
                })
            })
            .into_iter()
            .flatten()
            .collect();
        let peaks = s
            .maps("peaks", "Rates of the hardware.", |s| {
                let quantity = s.text("quantity", "What is counted.", None);
                let value = s.number("value", "Per second.", 0.0..=1e30);
                let source = s.text("source", "Who says so.", None);
                for key in ["quantity", "value", "source"] {
                    s.missing(key, "a peak needs quantity, value and source");
                }
                Some(Peak {
                    quantity: quantity?.value,
                    value: value?.value,
                    source: source?.value,
                })
            })
            .into_iter()
            .flatten()
            .collect();
        let root_path = s.text(
            "root",
            "Run root unless the user names one; absolute.",
            Some("^/"),
        );
        if let Some(given) = root_path.as_ref().filter(|r| !r.value.starts_with('/')) {
            s.fault(
                Diagnostic::error("root", "a profile's root must be absolute")
                    .at(given.at, "relative to what?")
                    .help("start it with `/`"),
            );
        }
        let machine = name.zip(scheduler).map(|(name, scheduler)| Machine {
            name: name.value,
            confirmed,
            scheduler,
            binding,
            node,
            limits,
            charge: charge.map(|c| c.value),
            charge_rate: charge_rate.map(|rate| rate.value),
            launch,
            modules,
            environment,
            peaks,
            root: root_path.map(|r| r.value),
        });
        (machine, root.finish())
    }

    /// Cores of a node that ranks may use; `here` are those of the machine at hand.
    pub fn usable_cores(&self, here: usize) -> usize {
        self.node.cores.map_or(here, |cores| {
            cores.saturating_sub(self.node.reserved_cores).max(1) as usize
        })
    }
}

fn options(s: &mut Section, name: &'static str, words: &'static str) -> Vec<String> {
    let given = s.texts(name, words).map(|g| g.value).unwrap_or_default();
    given.into_iter().map(|text| text.value).collect()
}

/// Seconds between two queries where the profile does not say.
const POLL_FLOOR: u64 = 30;

fn scheduler(s: &mut Section) -> Option<Scheduler> {
    let kind = s.choice(
        "kind",
        "Who starts jobs.",
        &[
            ("local", SchedulerKind::Local),
            ("slurm", SchedulerKind::Slurm),
        ],
        &["pbs", "lsf", "flux"],
        ("local", SchedulerKind::Local),
    );
    s.missing("kind", "local or slurm");
    let poll_floor = s.duration("poll_floor", "Time between two queries at least.");
    let chain = s.choice(
        "chain",
        "When a job's successor may be submitted.",
        &[
            ("ahead", Chain::Ahead),
            ("at-end", Chain::AtEnd),
            ("none", Chain::None),
        ],
        &[],
        ("none", Chain::None),
    );
    let sbatch_from_compute = s.flag_or("sbatch_from_compute", "May jobs submit jobs?", false);
    let requeue = s.flag_or("requeue", "Does the site requeue jobs by itself?", false);
    Some(Scheduler {
        kind: kind.value,
        poll_floor: poll_floor.map_or(POLL_FLOOR, |p| p.value),
        chain: chain.value,
        sbatch_from_compute: sbatch_from_compute.value,
        requeue: requeue.value,
    })
}

fn node(s: &mut Section) -> NodeFacts {
    let devices = s.count(
        "devices",
        "Accelerators of a node; none where devices are cores.",
        1..=1024,
    );
    let device = s.text("device", "`cores`, or the kind of accelerator.", None);
    let cores = s.count(
        "cores",
        "Cores of a node; those of the machine at hand unless given.",
        1..=4096,
    );
    let memory = s.memory(
        "memory",
        "Memory of a node; that of the machine at hand unless given.",
    );
    let reserved = s.count_or(
        "reserved_cores",
        "Of these cores, kept for the system.",
        0..=4096,
        0,
    );
    NodeFacts {
        devices: devices.map(|d| d.value),
        device: device.map_or_else(|| "cores".into(), |d| d.value),
        cores: cores.map(|c| c.value),
        memory: memory.map(|m| m.value),
        reserved_cores: reserved.value,
        interface: s
            .text("interface", "Network interface that ranks listen on.", None)
            .map(|t| t.value),
        local_disk: s
            .text("local_disk", "Directory of fast disk in each node.", None)
            .map(|t| t.value),
    }
}
