//! From figures to a document: what is shown, in which order and in which words.

mod loss;
mod setup;
mod speed;
mod time;

use super::attempts::outcome_word;
use super::document::{Block, Document, Figure, Tone};
use super::gaps;
use super::summary::Summary;
use crate::store::journal::Outcome;
use crate::ui::units;

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
            loss::loss(summary),
            loss::sample(summary),
            speed::speed(summary),
            time::time(summary),
            time::attempts(summary),
            setup::layout(summary),
            setup::memory(summary),
            setup::origin(summary),
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
    let progress = &summary.steps;
    let planned = progress
        .planned
        .map(|n| format!("of {}", units::grouped(n)));
    let tokens = progress
        .tokens
        .map(|n| format!("{} tokens", units::count(n as f64)));
    let missing = match gaps::count(&progress.missing) {
        0 => None,
        n => Some(format!("{} not on record", units::grouped(n))),
    };
    let steps = match (progress.last, &missing) {
        (None, Some(_)) => UNKNOWN.into(),
        (last, _) => units::grouped(last.unwrap_or(0)),
    };
    let of: Vec<String> = [planned, missing, tokens].into_iter().flatten().collect();
    let speed = summary.speed.as_ref();
    let step_time = speed.map(|s| format!("{} a step", units::duration(s.step_seconds.median)));
    let fastness = match (speed, speed.and_then(|s| s.tokens_per_second)) {
        (_, Some(rate)) => {
            Figure::new("tokens/s", units::count(rate)).note(step_time.unwrap_or_default())
        }
        (Some(speed), None) => {
            Figure::new("step time", units::duration(speed.step_seconds.median)).note("median")
        }
        (None, None) => {
            Figure::new("tokens/s", UNKNOWN).note(summary.no_speed.clone().unwrap_or_default())
        }
    };
    let peak = speed.and_then(|s| s.gemm_share_causal);
    let flops = speed.and_then(|s| s.flops_causal);
    let time = &summary.time;
    let mut tiles = vec![
        Figure::new(label, or_unknown(value, units::loss)).note(note),
        Figure::new("steps", steps).note(of.join(", ")),
        fastness,
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

fn footer(summary: &Summary) -> String {
    let until = match &summary.state.last_record {
        Some(time) => format!("records up to {time}"),
        None => "records without times".into(),
    };
    format!("haul {} · {until}", env!("CARGO_PKG_VERSION"))
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

fn plural(count: usize, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        n => format!("{n} {word}s"),
    }
}

fn or_unknown(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or(UNKNOWN.into(), show)
}

fn or_empty(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or(String::new(), show)
}

fn points(points: &[(u64, f64)]) -> Vec<(f64, f64)> {
    points.iter().map(|(x, y)| (*x as f64, *y)).collect()
}
