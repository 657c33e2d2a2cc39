//! The sections on layout, binding, memory and what ran.

use super::{UNKNOWN, plural};
use crate::plan::Binding;
use crate::report::document::{Block, Figure, Section};
use crate::report::setup::ranges;
use crate::report::summary::Summary;
use crate::ui::table::Table;
use crate::ui::units;

/// More ranks than this are not listed one by one.
const RANKS_LISTED: usize = 32;

pub(super) fn layout(summary: &Summary) -> Section {
    let mut figures = Vec::new();
    if let Some(layout) = &summary.setup.layout {
        let mesh = layout.mesh;
        figures.push(
            Figure::new("mesh", format!("tensor {} x data {} x pipeline {}", mesh.tensor, mesh.data, mesh.pipeline))
                .note(plural(layout.world, "rank"))
                .means("parallel degrees; neighbours in rank number are tensor peers first, then data, then pipeline"),
        );
        figures.push(
            Figure::new(
                "ranks",
                format!(
                    "{} x {} a node",
                    plural(layout.nodes, "node"),
                    plural(layout.ranks_per_node, "rank")
                ),
            )
            .note(format!(
                "{} a rank, {}",
                plural(layout.cores_per_rank, "core"),
                plural(layout.threads, "thread")
            )),
        );
        figures.push(Figure::new("machine", layout.machine.clone()).note(format!(
            "devices: {}; profile {}confirmed here",
            layout.device,
            if layout.confirmed { "" } else { "not " }
        )));
    }
    if let Some(model) = &summary.setup.model {
        figures.push(
            Figure::new(
                "model",
                format!(
                    "{} layers x width {}, {} heads",
                    model.layers, model.hidden, model.heads
                ),
            )
            .note(format!(
                "sequence {}, vocabulary {}{}",
                model.seq_len,
                model.vocab,
                model.parameters.map_or(String::new(), |p| format!(
                    ", {} parameters",
                    units::grouped(p)
                ))
            )),
        );
        figures.push(
            Figure::new("batch", format!("{} sequences", model.global))
                .note(format!(
                    "micro {} x accumulation {} x data parallel; {} tokens a step",
                    model.micro,
                    model.accumulation,
                    units::grouped(model.tokens_per_step)
                ))
                .means("sequences of one optimizer step over all replicas"),
        );
        figures.push(
            Figure::new("precision", format!("{:?}", model.precision).to_lowercase())
                .note(format!("ZeRO stage {}", model.zero)),
        );
    } else if let Some(program) = &summary.setup.program {
        figures.push(Figure::new("program", program.clone()));
    }
    let mut blocks = Vec::new();
    if !figures.is_empty() {
        figures.push(binding(summary));
        if let Some(isa) = summary.setup.told.get("isa").and_then(|v| v.as_str()) {
            figures.push(
                Figure::new("instructions", isa)
                    .means("the instruction set the arithmetic ran on, as the trainer tells"),
            );
        }
        blocks.push(Block::Figures(figures));
    }
    let ranks = &summary.setup.ranks;
    if !ranks.is_empty() {
        let mut table = Table::new(&[
            ">rank",
            "node",
            "place in the mesh",
            "cores asked for",
            "cores proven",
            "proof",
        ]);
        let mesh = summary.setup.layout.as_ref().map(|l| l.mesh);
        for rank in ranks.iter().take(RANKS_LISTED) {
            let at = mesh
                .filter(|m| rank.rank < m.world())
                .map(|m| m.coord(rank.rank));
            let cores = |cores: &Option<Vec<usize>>, absent: &str| {
                cores.as_deref().map_or(absent.into(), ranges)
            };
            table.row([
                rank.rank.to_string(),
                rank.node.clone(),
                at.map_or("?".into(), |c| {
                    format!("t{} d{} p{}", c.tensor, c.data, c.pipeline)
                }),
                cores(&rank.asked, "any"),
                cores(&rank.proven, "?"),
                match rank.agrees() {
                    Some(true) => "as asked".into(),
                    Some(false) => "DIFFERS".into(),
                    None => String::new(),
                },
            ]);
        }
        blocks.push(Block::Table(table));
        if ranks.len() > RANKS_LISTED {
            blocks.push(Block::Words(format!(
                "and {} more; --json lists all.",
                plural(ranks.len() - RANKS_LISTED, "rank")
            )));
        }
    }
    Section {
        id: "layout",
        title: "Layout and binding",
        blocks,
    }
}

fn binding(summary: &Summary) -> Figure {
    let ranks = &summary.setup.ranks;
    let proven = ranks.iter().filter(|r| r.proven.is_some()).count();
    let differ = ranks.iter().filter(|r| r.agrees() == Some(false)).count();
    let asked = match summary.setup.layout.as_ref().map(|l| l.binding) {
        Some(Binding::None) => "none asked for",
        Some(Binding::Even) => "an even share of the cores for each rank",
        None => UNKNOWN,
    };
    let note = match (proven, differ) {
        (0, _) => "no proof recorded".into(),
        (n, 0) => format!("{} told their cores", plural(n, "rank")),
        (n, d) => format!("{} told their cores, {d} differ", plural(n, "rank")),
    };
    Figure::new("binding", asked).note(note).means(
        "cores the kernel lets each rank run on, read back before step 1, against those asked for",
    )
}

pub(super) fn memory(summary: &Summary) -> Section {
    let stages = &summary.setup.memory;
    let several = stages.len() > 1;
    let mut table = match several {
        true => Table::new(&["class", ">a rank", ">share", ">stage"]),
        false => Table::new(&["class", ">a rank", ">share"]),
    };
    for stage in stages {
        let mut classes: Vec<_> = stage.classes.iter().collect();
        classes.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        let all = "all".to_owned();
        for (class, bytes) in classes.into_iter().chain([(&all, &stage.total)]) {
            let share = *bytes as f64 / stage.total.max(1) as f64;
            let mut row = vec![
                class.replace('_', " "),
                units::bytes(*bytes),
                units::percent(share),
            ];
            if several {
                row.push(stage.stage.to_string());
            }
            table.row(row);
        }
    }
    let told = |name| summary.setup.told.get(name).and_then(|v| v.as_u64());
    let mut words =
        "What one rank allocates for tensors before its first step; steps allocate no more."
            .to_owned();
    if let Some(arena) = told("arena_bytes") {
        words.push_str(&match stages.iter().any(|stage| stage.total == arena) {
            true => " The trainer allocated just that.".to_owned(),
            false => format!(" The trainer allocated {}.", units::bytes(arena)),
        });
    }
    if let Some(growth) = told("heap_growth_bytes") {
        words.push_str(&format!(
            " Beside it, the bookkeeping of steps, saves and reports took {} after step 1.",
            units::bytes(growth)
        ));
    }
    Section {
        id: "memory",
        title: "Planned memory",
        blocks: match summary.setup.memory.is_empty() {
            true => Vec::new(),
            false => vec![Block::Words(words), Block::Table(table)],
        },
    }
}

pub(super) fn origin(summary: &Summary) -> Section {
    let origin = &summary.origin;
    let mut facts = Table::new(&["what", "value"]);
    for (name, value) in &origin.facts {
        facts.row([name, value]);
    }
    if let Some(program) = &summary.setup.program {
        facts.row(["program", program]);
    }
    let mut variables = Table::new(&["variable", "value"]);
    for setting in &origin.environment {
        let value = setting.value.as_deref();
        variables.row([
            setting.name.as_str(),
            value.unwrap_or("(set, not on the list of values shown)"),
        ]);
    }
    let tables = [facts, variables].into_iter();
    Section {
        id: "origin",
        title: "What ran",
        blocks: tables
            .filter(|table| !table.rows.is_empty())
            .map(Block::Table)
            .collect(),
    }
}
