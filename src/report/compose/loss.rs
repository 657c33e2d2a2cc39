//! The sections on loss and on what the model writes.

use super::{or_unknown, points};
use crate::report::document::{Block, Figure, LossChart, Section};
use crate::report::gaps;
use crate::report::summary::Summary;
use crate::ui::units;

pub(super) fn loss(summary: &Summary) -> Section {
    let loss = &summary.loss;
    let mut section = Section {
        id: "loss",
        title: "Loss",
        blocks: Vec::new(),
    };
    if loss.train.is_empty() && loss.validation.is_empty() {
        section
            .blocks
            .push(Block::Words("No loss is on record.".into()));
        return section;
    }
    section.blocks.push(Block::Loss(LossChart {
        train: gaps::parts(&loss.train, &summary.steps.missing),
        validation: points(&loss.validation),
        abandoned: loss.abandoned.iter().map(|part| points(part)).collect(),
        unit: if loss.nats { "nats a token" } else { "" },
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
        .note(match loss.first_train {
            Some((1, first)) => format!("first step {}", units::loss(first)),
            Some((step, first)) => format!("first known, of step {step}: {}", units::loss(first)),
            None => String::new(),
        })
        .means(match loss.nats {
            true => "mean over the tokens of the step's global batch, in nats",
            false => "as the program reports it",
        }),
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
            .means(match loss.nats {
                true => "mean over the tokens of the held-out split, in nats",
                false => "as the program reports it",
            }),
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

pub(super) fn sample(summary: &Summary) -> Section {
    let blocks = summary.sample.as_ref().map(|sample| {
        let words = format!(
            "Written by the model with its checkpoint of step {}.",
            units::grouped(sample.step)
        );
        let lines = sample.text.lines().map(str::to_owned).collect();
        vec![Block::Words(words), Block::Log(lines)]
    });
    Section {
        id: "sample",
        title: "Sample",
        blocks: blocks.unwrap_or_default(),
    }
}
