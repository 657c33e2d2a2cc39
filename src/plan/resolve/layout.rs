//! Nodes, ranks, cores and the mesh.

use super::{Site, derive, span_of};
use crate::plan::SchedulerKind;
use crate::recipe::Recipe;
use crate::recipe::diagnostic::Diagnostic;
use crate::recipe::section::Notes;
use haul_runtime::contract::Mesh;
use haul_runtime::contract::mesh::MAX_RANKS;

#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) nodes: usize,
    pub(super) ranks_per_node: usize,
    pub(super) cores_per_rank: usize,
    pub(super) shared_cores: bool,
    /// `None`: told.
    pub(super) mesh: Option<Mesh>,
}

pub(super) fn resolve(recipe: &Recipe, site: &Site, notes: &mut Notes) -> Layout {
    let machine = site.machine;
    let usable = machine.usable_cores(site.cores);
    let nodes = recipe.job.nodes.value as usize;
    let ranks_per_node = recipe
        .job
        .ranks_per_node
        .as_ref()
        .map_or(machine.node.devices.unwrap_or(1), |g| g.value) as usize;
    let cores_per_rank = match (&recipe.job.cores_per_rank, machine.node.devices) {
        (Some(given), _) => given.value as usize,
        (None, None) => 1,
        (None, Some(devices)) => (usable / devices as usize).max(1),
    };
    derive(notes, "job.ranks_per_node", ranks_per_node);
    derive(notes, "job.cores_per_rank", cores_per_rank);
    let shared_cores = cores(
        recipe,
        site,
        usable,
        [nodes, ranks_per_node, cores_per_rank],
        notes,
    );
    Layout {
        nodes,
        ranks_per_node,
        cores_per_rank,
        shared_cores,
        mesh: mesh(recipe, nodes * ranks_per_node, notes),
    }
}

/// Ranks beyond the cores: allowed on this machine and told, refused where a scheduler would keep the job waiting forever.
fn cores(
    recipe: &Recipe,
    site: &Site,
    usable: usize,
    [nodes, ranks_per_node, cores_per_rank]: [usize; 3],
    notes: &mut Notes,
) -> bool {
    let job = &recipe.job;
    let labelled = |mut fault: Diagnostic| {
        if let Some(ranks) = &job.ranks_per_node {
            fault = fault.at(ranks.at, "ranks on each node");
        }
        if let Some(cores) = &job.cores_per_rank {
            fault = fault.at(cores.at, "cores of each rank");
        }
        if fault.labels.is_empty() {
            fault = fault.at(job.at, "");
        }
        fault
    };
    match site.machine.scheduler.kind {
        SchedulerKind::Local => {
            let needed = nodes * ranks_per_node * cores_per_rank;
            if needed <= usable {
                return false;
            }
            notes.faults.push(labelled(Diagnostic::warning(
                "shared-cores",
                format!(
                    "shared cores: {} x {} on {}; no pinning, and speeds mean nothing",
                    some(nodes * ranks_per_node, "rank"),
                    some(cores_per_rank, "core"),
                    some(usable, "core"),
                ),
            )));
            true
        }
        SchedulerKind::Slurm => {
            let needed = ranks_per_node * cores_per_rank;
            if needed > usable {
                notes.faults.push(
                    labelled(Diagnostic::error(
                        "cores",
                        format!(
                            "{} x {} = {}, but a node of {} has {usable} for jobs",
                            some(ranks_per_node, "rank"),
                            some(cores_per_rank, "core"),
                            some(needed, "core"),
                            site.machine.name
                        ),
                    ))
                    .help(format!(
                        "such a job would never start: at most {} a rank",
                        some((usable / ranks_per_node).max(1), "core")
                    )),
                );
            }
            false
        }
    }
}

/// `1 core`, `2 cores`.
fn some(count: usize, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {word}{plural}")
}

/// world = nodes x ranks_per_node; data = world / (tensor x pipeline).
fn mesh(recipe: &Recipe, world: usize, notes: &mut Notes) -> Option<Mesh> {
    let parallel = &recipe.parallel;
    let (tensor, pipeline) = (
        parallel.tensor.value as usize,
        parallel.pipeline.value as usize,
    );
    let product = tensor * pipeline;
    let ranks = |fault: Diagnostic, notes: &Notes| {
        let nodes = span_of(notes, "job.nodes").filter(|_| recipe.job.nodes.at.is_some());
        let per_node = recipe.job.ranks_per_node.as_ref().and_then(|r| r.at);
        let words = format!("{world} ranks in all");
        match (nodes, per_node) {
            (Some(nodes), Some(per_node)) => fault
                .at(nodes, "nodes")
                .at(per_node, format!("a node: {words}")),
            (one, other) => fault.at(one.or(other), words),
        }
    };
    if recipe.program.is_none() && world > MAX_RANKS {
        let fault = Diagnostic::error(
            "ranks",
            format!("the bundled trainer takes at most {MAX_RANKS} ranks"),
        );
        notes.faults.push(
            ranks(fault, notes).help("set `job.nodes` and `job.ranks_per_node` to fewer ranks"),
        );
        return None;
    }
    if !world.is_multiple_of(product) {
        let (message, mut fault) = match (tensor, pipeline) {
            (_, 1) => (format!("tensor = {tensor}"), None),
            (1, _) => (format!("pipeline = {pipeline}"), None),
            _ => (format!("tensor x pipeline = {product}"), Some(())),
        };
        let mut diagnostic =
            Diagnostic::error("mesh", format!("{message} does not divide {world} ranks"));
        if fault.take().is_some() || pipeline == 1 {
            diagnostic = diagnostic.at(parallel.tensor.at, tensor.to_string());
        }
        if pipeline > 1 {
            let words = if tensor > 1 {
                format!("x {pipeline}")
            } else {
                pipeline.to_string()
            };
            diagnostic = diagnostic.at(parallel.pipeline.at, words);
        }
        let up = world.div_ceil(product) * product;
        notes.faults.push(ranks(diagnostic, notes).help(format!(
            "ranks = nodes x ranks_per_node must be a multiple of {product}, such as {up}"
        )));
        return None;
    }
    let data = world / product;
    if let Some(asserted) = &parallel.data
        && asserted.value as usize != data
    {
        let fault = Diagnostic::error(
            "mesh",
            format!(
                "data = {}, but {world} ranks / (tensor x pipeline = {product}) gives {data}",
                asserted.value
            ),
        )
        .at(asserted.at, format!("asserted: {}", asserted.value));
        notes.faults.push(ranks(fault, notes).help(format!(
            "set data: {data}, or remove it; or ask for {} ranks",
            asserted.value.saturating_mul(product as u64)
        )));
        return None;
    }
    derive(notes, "parallel.data", data);
    Some(Mesh {
        tensor,
        data,
        pipeline,
    })
}
