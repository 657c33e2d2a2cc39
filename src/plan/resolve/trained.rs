//! The configuration of the trainer, and what the trainer itself says about it.

use super::layout::Layout;
use super::{DataPath, derive, span_of};
use crate::plan::measure::{Measure, Problem, describe, measure};
use crate::recipe::Recipe;
use crate::recipe::diagnostic::Diagnostic;
use crate::recipe::section::Notes;
use crate::recipe::train;
use haul_runtime::contract::config::{DataFormat, ScheduleKind};
use haul_runtime::contract::{Batch, Data, Model, Optimizer, Schedule, Train, TrainConfig, Until};

pub(super) struct Trained {
    pub(super) config: TrainConfig,
    pub(super) measure: Measure,
}

/// `None`: the recipe declares no model, or something in it is wrong and told.
pub(super) fn resolve(
    recipe: &Recipe,
    layout: &Layout,
    batch: Option<Batch>,
    data: Option<&DataPath>,
    notes: &mut Notes,
) -> Option<Trained> {
    let model = model(recipe, notes)?;
    let until = until(recipe)?;
    let (batch, data) = (batch?, data?);
    let tokens = batch.global as u64 * model.seq_len as u64;
    let schedule = schedule(recipe, until, tokens, notes)?;
    let given = &recipe.train;
    let config = TrainConfig {
        model,
        batch,
        train: Train {
            until,
            seed: given.seed.value,
            precision: given.precision.value,
            optimizer: Optimizer {
                lr: given.optimizer.lr.value,
                betas: given.optimizer.betas.value,
                eps: given.optimizer.eps.value,
                weight_decay: given.optimizer.weight_decay.value,
                clip: given.optimizer.clip.value,
            },
            schedule,
            warmup_steps: given.warmup_steps.value,
            eval_every: given.eval.every.value,
            eval_sequences: given.eval.sequences.value as usize,
        },
        data: Data {
            path: data.planned.clone(),
            format: recipe.data.format.value,
            validation: recipe.data.validation.value,
        },
        zero: recipe.parallel.zero.value as u8,
    };
    if recipe.program.is_some() {
        // A foreign program may do what the bundled trainer cannot; its model is only described.
        let measure = describe(&config);
        return Some(Trained { config, measure });
    }
    match measure(&config, &layout.mesh?) {
        Ok(measure) => Some(Trained { config, measure }),
        Err(problems) => {
            for problem in problems {
                let fault = told(&problem, notes);
                notes.faults.push(fault);
            }
            None
        }
    }
}

/// A problem of the trainer at its place in the recipe.
fn told(problem: &Problem, notes: &Notes) -> Diagnostic {
    let key = match problem.field.as_str() {
        "train.eval_every" => "train.eval.every",
        "train.eval_sequences" => "train.eval.sequences",
        other => other,
    };
    Diagnostic::error("trainer", format!("`{key}`: {}", problem.message))
        .at(span_of(notes, key), "")
        .help(problem.help.clone())
}

fn model(recipe: &Recipe, notes: &mut Notes) -> Option<Model> {
    let model = recipe.model.as_ref()?;
    if recipe.data.format.value == DataFormat::Bytes && model.vocab.value < 256 {
        notes.faults.push(
            Diagnostic::error(
                "vocab",
                format!("vocab = {} is too small for bytes", model.vocab.value),
            )
            .at(model.vocab.at, "")
            .at(recipe.data.format.at, "each byte is a token")
            .help("set vocab: 256"),
        );
        return None;
    }
    Some(Model {
        layers: model.layers.value as usize,
        hidden: model.hidden.value as usize,
        heads: model.heads.value as usize,
        ffn: model.ffn.value as usize,
        seq_len: model.seq_len.value as usize,
        vocab: model.vocab.value as usize,
        norm_eps: 1e-5,
        init_std: 0.02,
    })
}

fn until(recipe: &Recipe) -> Option<Until> {
    Some(match recipe.train.until.as_ref()? {
        train::Until::Steps(given) => Until::Steps(given.value),
        train::Until::Tokens(given) => Until::Tokens(given.value),
        train::Until::Time(given) => Until::Seconds(given.value as f64),
    })
}

fn schedule(
    recipe: &Recipe,
    until: Until,
    tokens_per_step: u64,
    notes: &mut Notes,
) -> Option<Schedule> {
    let given = &recipe.train.schedule;
    let last = match until {
        Until::Steps(steps) => Some(steps),
        Until::Tokens(tokens) => Some(tokens.div_ceil(tokens_per_step.max(1))),
        Until::Seconds(_) => None,
    };
    let kind = given.kind.value;
    let decay_steps = given.decay_steps.as_ref().map(|d| d.value).or(last);
    if decay_steps.is_none() && kind != ScheduleKind::Constant {
        notes.faults.push(
            Diagnostic::error(
                "schedule",
                "the learning rate decays to the last step, which `train.until.time` leaves open",
            )
            .at(span_of(notes, "train.until.time"), "ends after a time")
            .at(given.kind.at, "")
            .help("set `train.schedule.decay_steps`, or `train.schedule.kind: constant`"),
        );
        return None;
    }
    if let Some(steps) = decay_steps {
        derive(notes, "train.schedule.decay_steps", steps);
    }
    Some(Schedule {
        kind,
        warmup: given.warmup.value,
        decay_steps: decay_steps.unwrap_or(0),
        min_lr: given.min_lr.value,
    })
}
