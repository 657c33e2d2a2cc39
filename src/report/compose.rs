//! From figures to a document: what is shown, in which order and in which words.

use super::attempts::{class_word, outcome_word};
use super::document::{Block, Document, Figure, LossChart, Part, Section, Shares, StepChart, Tone};
use super::setup::ranges;
use super::speed::Speed;
use super::summary::Summary;
use crate::plan::Binding;
use crate::store::journal::{Class, Outcome};
use crate::ui::table::Table;
use crate::ui::units;

/// More ranks than this are not listed one by one.
const RANKS_LISTED: usize = 32;
const UNKNOWN: &str = "n/a";

/// The report of `summary`.
pub fn compose(summary: &Summary) -> Document {
    let mut document = Document {
        title: summary.name.clone().unwrap_or_else(|| summary.run.clone()),
        run: summary.run.clone(),
        tone: match summary.state.outcome {
            Some(Outcome::Finished) => Tone::Good,
            Some(Outcome::Failed) => Tone::Bad,
            _ => Tone::Open,
        },
        state: outcome_word(summary.state.outcome).into(),
        words: summary.state.words.clone(),
        tags: tags(summary),
        tiles: tiles(summary),
        warnings: summary.warnings.clone(),
        sections: vec![
            loss(summary),
            speed(summary),
            time(summary),
            attempts(summary),
            layout(summary),
            memory(summary),
            origin(summary),
        ],
        definitions: Vec::new(),
        footer: footer(summary),
    };
    document
        .sections
        .retain(|section| !section.blocks.is_empty());
    document.definitions = definitions(&document);
    document
}

fn footer(summary: &Summary) -> String {
    let until = match &summary.state.last_record {
        Some(time) => format!("records up to {time}"),
        None => "records without times".into(),
    };
    format!("haul {} · {until}", env!("CARGO_PKG_VERSION"))
}

fn tags(summary: &Summary) -> Vec<String> {
    let mut tags = Vec::new();
    let setup = &summary.setup;
    if let Some(parameters) = setup.model.as_ref().and_then(|m| m.parameters) {
        tags.push(format!("{} parameters", units::count(parameters as f64)));
    } else if let Some(program) = &setup.program {
        tags.push(program.clone());
    }
    if let Some(layout) = &setup.layout {
        tags.push(format!(
            "{} on {}",
            plural(layout.world, "rank"),
            plural(layout.nodes, "node")
        ));
        tags.push(format!("machine {}", layout.machine));
    }
    if let Some(until) = &setup.until {
        tags.push(format!("until {until}"));
    }
    tags
}

fn plural(count: usize, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        n => format!("{n} {word}s"),
    }
}

fn or_unknown(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or(UNKNOWN.into(), show)
}

fn tiles(summary: &Summary) -> Vec<Figure> {
    let loss = &summary.loss;
    let (label, value) = match loss.last_validation {
        Some(value) => ("validation loss", Some(value)),
        None => ("training loss", loss.last_train),
    };
    let note = match (loss.bits_per_byte, loss.perplexity) {
        (Some(bits), _) => format!("{bits:.3} bits per byte"),
        (None, Some(perplexity)) => format!("perplexity {}", units::number(perplexity)),
        _ => String::new(),
    };
    let steps = match (summary.steps.last, summary.steps.planned) {
        (Some(last), Some(planned)) => format!("{last} / {planned}"),
        (Some(last), None) => last.to_string(),
        (None, Some(planned)) => format!("0 / {planned}"),
        (None, None) => "0".into(),
    };
    let tokens = summary
        .steps
        .tokens
        .map(|tokens| format!("{} tokens", units::count(tokens as f64)))
        .unwrap_or_default();
    let speed = summary.speed.as_ref();
    let step_time = speed.map(|s| format!("{} a step", units::duration(s.step_seconds.median)));
    let rate = match speed {
        Some(speed) => or_unknown(speed.tokens_per_second, units::count),
        None => UNKNOWN.into(),
    };
    let peak = speed.and_then(|s| s.gemm_share_causal);
    let flops = speed.and_then(|s| s.flops_causal);
    let time = &summary.time;
    let mut tiles = vec![
        Figure::new(label, or_unknown(value, units::loss)).note(note),
        Figure::new("steps", steps).note(tokens),
        Figure::new("tokens/s", rate)
            .note(step_time.unwrap_or_else(|| summary.no_speed.clone().unwrap_or_default())),
    ];
    if peak.is_some() || flops.is_some() {
        let note = flops.map(|f| units::rate(f, "FLOP/s")).unwrap_or_default();
        tiles.push(Figure::new("share of GEMM peak", or_unknown(peak, units::percent)).note(note));
    }
    tiles.push(
        Figure::new("goodput", or_unknown(time.goodput, units::percent))
            .note(format!("of {}", units::duration(time.wall_seconds))),
    );
    tiles
}

fn points(points: &[(u64, f64)]) -> Vec<(f64, f64)> {
    points.iter().map(|(x, y)| (*x as f64, *y)).collect()
}

fn loss(summary: &Summary) -> Section {
    let loss = &summary.loss;
    let mut section = Section {
        id: "loss",
        title: "Loss",
        blocks: Vec::new(),
    };
    if loss.train.is_empty() && loss.validation.is_empty() {
        section
            .blocks
            .push(Block::Words("No step has reported a loss.".into()));
        return section;
    }
    section.blocks.push(Block::Loss(LossChart {
        train: points(&loss.train),
        validation: points(&loss.validation),
        abandoned: loss.abandoned.iter().map(|part| points(part)).collect(),
        marks: loss
            .resumes
            .iter()
            .map(|(attempt, step)| {
                (
                    *step as f64,
                    format!("attempt {attempt} goes on from step {step}"),
                )
            })
            .collect(),
    }));
    let mut figures = vec![
        Figure::new(
            "training loss, last step",
            or_unknown(loss.last_train, units::loss),
        )
        .note(or_empty(loss.first_train, |l| {
            format!("first step {}", units::loss(l))
        }))
        .means("mean over the tokens of the step's global batch, in nats"),
    ];
    if loss.last_validation.is_some() {
        figures.push(
            Figure::new(
                "validation loss, last",
                or_unknown(loss.last_validation, units::loss),
            )
            .note(loss.best_validation.map_or(String::new(), |(step, l)| {
                format!("best {} at step {step}", units::loss(l))
            }))
            .means("mean over the tokens of the held-out split, in nats"),
        );
    }
    if let Some(bits) = loss.bits_per_byte {
        figures.push(Figure::new("bits per byte", format!("{bits:.4}")).means(
            "last validation loss (last training loss without one) / ln 2; a token is a byte",
        ));
    }
    if let Some(perplexity) = loss.perplexity {
        let word = if loss.bytes { "per byte" } else { "per token" };
        figures.push(
            Figure::new("perplexity", units::number(perplexity))
                .note(word)
                .means("exp of the last validation loss (last training loss without one)"),
        );
    }
    if summary.steps.skipped > 0 {
        figures.push(
            Figure::new("skipped steps", summary.steps.skipped.to_string())
                .means("steps that consumed data and left the state untouched"),
        );
    }
    if loss.not_finite > 0 {
        figures.push(Figure::new(
            "steps without a finite loss",
            loss.not_finite.to_string(),
        ));
    }
    section.blocks.push(Block::Figures(figures));
    section
}

fn or_empty(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or(String::new(), show)
}

fn speed(summary: &Summary) -> Section {
    let blocks = match (&summary.speed, &summary.no_speed) {
        (Some(speed), _) => speed_blocks(speed),
        (None, Some(why)) => vec![Block::Words(format!("No speed is reported: {why}."))],
        (None, None) => Vec::new(),
    };
    Section {
        id: "speed",
        title: "Speed",
        blocks,
    }
}

fn speed_blocks(speed: &Speed) -> Vec<Block> {
    let spread = &speed.step_seconds;
    let counted = format!(
        "over {}, {} left out",
        plural(speed.steps_counted, "step"),
        speed.steps_left_out
    );
    let rank = or_empty(speed.tokens_per_second_per_rank, |t| {
        format!("{} a rank", units::rate(t, "tokens/s"))
    });
    let derived = if speed.derived {
        "differences between lines of the program"
    } else {
        ""
    };
    let mut figures = vec![
        Figure::new(
            "tokens/s",
            or_unknown(speed.tokens_per_second, units::count),
        )
        .note(rank)
        .means("tokens of the counted steps / their seconds, saves and evaluations taken out; all ranks together"),
        Figure::new("steps counted", counted)
            .means("valid steps after train.warmup_steps, without each attempt's first after its launch"),
        Figure::new("step time, median", units::duration(spread.median))
            .note(derived)
            .means("wall time from barrier to barrier, saves and evaluations taken out, over the counted steps"),
        Figure::new(
            "step time, p5 to p95",
            format!("{} to {}", units::duration(spread.p5), units::duration(spread.p95)),
        )
        .note(format!(
            "min {}, max {}",
            units::duration(spread.min),
            units::duration(spread.max)
        )),
        Figure::new(
            "model FLOP/s, full",
            or_unknown(speed.flops_full, |f| units::rate(f, "FLOP/s")),
        )
        .means("matrix products of forward and backward a token, with the whole attention square, x tokens/s; recomputation not counted"),
        Figure::new(
            "model FLOP/s, causal",
            or_unknown(speed.flops_causal, |f| units::rate(f, "FLOP/s")),
        )
        .means("the same with the half of the attention square that a causal model needs"),
        Figure::new(
            "share of measured GEMM peak",
            or_unknown(speed.gemm_share_causal, units::percent),
        )
        .note(match speed.gemm_peak {
            Some(peak) => format!(
                "causal; {} full; peak {}",
                or_unknown(speed.gemm_share_full, units::percent),
                units::rate(peak, "FLOP/s")
            ),
            None => "no peak was measured".into(),
        })
        .means("model FLOP/s (causal) / the matrix product speed that the ranks measure before their first step; unknown without it"),
    ];
    if let Some(slowest) = speed.slowest.filter(|s| s.share < 1.0) {
        figures.push(
            Figure::new("slowest rank", format!("rank {}", slowest.rank))
                .note(format!("in {} of the steps", units::percent(slowest.share)))
                .means("the rank with the largest compute time most often"),
        );
    }
    let mut blocks = vec![
        Block::StepTimes(StepChart {
            points: points(&speed.curve),
            median: spread.median,
            p5: spread.p5,
            p95: spread.p95,
        }),
        Block::Figures(figures),
    ];
    if !speed.phases.is_empty() {
        let parts = speed.phases.iter().map(|phase| {
            let (means, colour) = phase_words(&phase.name);
            Part {
                label: phase.name.replace('_', " "),
                seconds: phase.seconds,
                share: Some(phase.share),
                note: String::new(),
                means,
                colour,
            }
        });
        blocks.push(Block::Shares(Shares {
            title: "phase",
            whole: "the mean step, saves and evaluations included".into(),
            parts: parts.collect(),
        }));
    }
    blocks
}

fn phase_words(name: &str) -> (&'static str, usize) {
    match name {
        "compute" => ("forward and backward", 0),
        "data" => ("waiting for samples", 4),
        "tensor_wait" => ("waiting for tensor peers", 3),
        "tensor_transfer" => ("moving data between tensor peers", 5),
        "pipe_wait" => ("waiting for the neighbour stage", 6),
        "data_wait" => ("waiting for the other replicas", 1),
        "data_transfer" => ("summing gradients over replicas", 2),
        "update" => ("optimizer", 7),
        "save" => ("checkpoints", 8),
        "eval" => ("held-out split", 6),
        _ => ("the remainder", 9),
    }
}

fn time(summary: &Summary) -> Section {
    let time = &summary.time;
    let mut blocks = Vec::new();
    if !time.rows.is_empty() {
        let parts = time.rows.iter().map(|row| Part {
            label: row.cause.words().into(),
            seconds: row.seconds,
            share: row.share,
            note: match row.cause {
                super::ledger::Cause::LostSteps => plural(time.lost_steps, "step"),
                _ => String::new(),
            },
            means: row.cause.means(),
            colour: row.cause as usize,
        });
        blocks.push(Block::Shares(Shares {
            title: "time",
            whole: format!(
                "the wall time without queue, {}",
                units::duration(time.wall_seconds)
            ),
            parts: parts.collect(),
        }));
        let mut figures = vec![
            Figure::new("goodput", or_unknown(time.goodput, units::percent))
                .means("productive time / wall time without queue; productive are the steps that count, saves and evaluations taken out"),
            Figure::new("wall time without queue", units::duration(time.wall_seconds))
                .means("sum over jobs, from the supervisor's claim to its last record"),
        ];
        if let Some(seconds) = time.to_first_step_seconds {
            figures.push(
                Figure::new("to the first step", units::duration(seconds))
                    .means("from the first submission to the begin of the first step"),
            );
        }
        let saves = &summary.checkpoints;
        if saves.saved > 0 {
            let mut note = Vec::new();
            if let Some(step) = saves.last_step {
                note.push(format!("newest of step {step}"));
            }
            if let Some(bytes) = saves.bytes {
                note.push(units::bytes(bytes));
            }
            if let Some(seconds) = saves.mean_seconds {
                note.push(format!("{} each", units::duration(seconds)));
            }
            figures.push(Figure::new("checkpoints", saves.saved.to_string()).note(note.join(", ")));
        }
        blocks.push(Block::Figures(figures));
    }
    Section {
        id: "time",
        title: "Where the time went",
        blocks,
    }
}

fn attempts(summary: &Summary) -> Section {
    let mut table = Table::new(&[
        ">attempt",
        "job",
        ">from step",
        ">steps",
        ">lost",
        ">time",
        "ended",
        "in words",
    ]);
    let mut logs = Vec::new();
    for one in &summary.attempts {
        let steps = match (one.first_step, one.last_step) {
            (Some(first), Some(last)) => format!("{first}–{last}"),
            _ => "none".into(),
        };
        table.row([
            one.attempt.to_string(),
            one.job.clone().unwrap_or_else(|| "?".into()),
            one.parent.map_or("0".into(), |p| p.step.to_string()),
            steps,
            one.steps_lost.to_string(),
            or_unknown(one.seconds, units::duration),
            class_word(one.class).into(),
            one.words.clone(),
        ]);
        if one.class.is_some_and(|class| class != Class::Done) && !one.log.is_empty() {
            logs.push(Block::Words(format!(
                "Attempt {}, last lines of the rank that ended first:",
                one.attempt
            )));
            logs.push(Block::Log(one.log.clone()));
        }
    }
    let mut blocks = Vec::new();
    if !summary.attempts.is_empty() {
        blocks.push(Block::Table(table));
        blocks.append(&mut logs);
    }
    Section {
        id: "attempts",
        title: "Attempts",
        blocks,
    }
}

fn layout(summary: &Summary) -> Section {
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
            "",
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

fn memory(summary: &Summary) -> Section {
    let mut table = Table::new(&[">stage", "class", ">bytes a rank", ">share"]);
    for stage in &summary.setup.memory {
        let mut classes: Vec<_> = stage.classes.iter().collect();
        classes.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        for (class, bytes) in classes {
            let share = *bytes as f64 / stage.total.max(1) as f64;
            table.row([
                stage.stage.to_string(),
                class.replace('_', " "),
                units::bytes(*bytes),
                units::percent(share),
            ]);
        }
        table.row([
            stage.stage.to_string(),
            "all".into(),
            units::bytes(stage.total),
            String::new(),
        ]);
    }
    Section {
        id: "memory",
        title: "Planned memory",
        blocks: match summary.setup.memory.is_empty() {
            true => Vec::new(),
            false => vec![
                Block::Words(
                    "What one rank allocates before its first step; nothing is allocated after it."
                        .into(),
                ),
                Block::Table(table),
            ],
        },
    }
}

fn origin(summary: &Summary) -> Section {
    let origin = &summary.origin;
    let mut figures: Vec<Figure> = origin
        .facts
        .iter()
        .map(|(name, value)| Figure::new(name, value.clone()))
        .collect();
    figures.extend(
        summary
            .setup
            .program
            .iter()
            .map(|program| Figure::new("program", program.clone())),
    );
    let mut blocks = Vec::new();
    if !figures.is_empty() {
        blocks.push(Block::Figures(figures));
    }
    if !origin.environment.is_empty() {
        let mut table = Table::new(&["variable", "value"]);
        for setting in &origin.environment {
            let value = setting.value.clone();
            table.row([
                setting.name.clone(),
                value.unwrap_or_else(|| "(set, not on the list of values shown)".into()),
            ]);
        }
        blocks.push(Block::Table(table));
    }
    Section {
        id: "origin",
        title: "What ran",
        blocks,
    }
}

fn definitions(document: &Document) -> Vec<(String, String)> {
    let figures = document
        .sections
        .iter()
        .flat_map(|section| &section.blocks)
        .filter_map(|block| match block {
            Block::Figures(figures) => Some(figures),
            _ => None,
        })
        .flatten();
    let mut known: Vec<(String, String)> = Vec::new();
    for figure in figures.filter(|f| !f.means.is_empty()) {
        if !known.iter().any(|(label, _)| *label == figure.label) {
            known.push((figure.label.clone(), figure.means.into()));
        }
    }
    known
}
