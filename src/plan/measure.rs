//! Memory, FLOPs and refusals of the bundled trainer: the one place that asks it.

use super::{Flops, StageMemory};
use haul_runtime::contract::{Mesh, Model, Precision, TrainConfig};
use std::collections::BTreeMap;

/// What a model takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// Of one rank of each pipeline stage.
    pub memory: Vec<StageMemory>,
    pub flops: Flops,
}

/// Something the trainer refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Dotted key of the trainer's configuration.
    pub field: String,
    pub message: String,
    pub help: String,
}

/// Measures `config` on `mesh`, or tells all that rules it out. Reserves nothing.
pub fn measure(config: &TrainConfig, mesh: &Mesh) -> Result<Measure, Vec<Problem>> {
    let problems = refusals(config, mesh);
    if !problems.is_empty() {
        return Err(problems);
    }
    let parameters = parameters(&config.model);
    let bytes = match config.train.precision {
        Precision::F32 => 4,
        Precision::F64 => 8,
    };
    let classes = BTreeMap::from([
        ("weights".to_string(), parameters * bytes),
        ("gradients".to_string(), parameters * bytes),
        ("optimizer".to_string(), 2 * parameters * bytes),
    ]);
    let total = classes.values().sum();
    Ok(Measure {
        memory: vec![StageMemory {
            stage: 0,
            classes,
            total,
        }],
        ..describe(config)
    })
}

/// What is known of a model without the trainer: its size and FLOPs.
pub fn describe(config: &TrainConfig) -> Measure {
    let (per_token, per_token_causal) = flops(&config.model);
    Measure {
        memory: Vec::new(),
        flops: Flops {
            per_token,
            per_token_causal,
            parameters: parameters(&config.model),
            tokens_per_step: config.tokens_per_step(),
        },
    }
}

fn refusals(config: &TrainConfig, mesh: &Mesh) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |field: &str, message: String, help: &str| {
        problems.push(Problem {
            field: field.into(),
            message,
            help: help.into(),
        });
    };
    let model = &config.model;
    if !model.hidden.is_multiple_of(model.heads) {
        let message = format!(
            "heads = {} does not divide hidden = {}",
            model.heads, model.hidden
        );
        refuse(
            "model.heads",
            message,
            "choose a number of heads that divides `model.hidden`",
        );
    }
    for (field, degree) in [
        ("parallel.tensor", mesh.tensor),
        ("parallel.pipeline", mesh.pipeline),
    ] {
        if degree > 1 {
            let message = format!("a degree of {degree} comes with a later version");
            refuse(field, message, "set it to 1; data parallel works now");
        }
    }
    if config.zero > 0 {
        let message = format!("ZeRO stage {} comes with a later version", config.zero);
        refuse("parallel.zero", message, "set it to 0");
    }
    problems
}

/// Parameters of the model, unpadded; the output is tied to the input embedding.
pub fn parameters(model: &Model) -> u64 {
    let [l, c, f, t, v] = [
        model.layers,
        model.hidden,
        model.ffn,
        model.seq_len,
        model.vocab,
    ]
    .map(|x| x as u64);
    let norm = 2 * c;
    let attention = 4 * c * c + 4 * c;
    let feed_forward = 2 * c * f + f + c;
    v * c + t * c + l * (2 * norm + attention + feed_forward) + norm
}

/// FLOPs of one token, forward and backward, with the full and with the causal attention square: matrix products only
/// (Narayanan et al., arXiv 2104.04473, appendix, with the feed-forward width free).
fn flops(model: &Model) -> (f64, f64) {
    let [l, h, f, s, v] = [
        model.layers,
        model.hidden,
        model.ffn,
        model.seq_len,
        model.vocab,
    ]
    .map(|x| x as f64);
    let core = 4.0 * l * h * s;
    let full = 3.0 * (2.0 * l * (4.0 * h * h + 2.0 * h * f) + core + 2.0 * h * v);
    (full, full - 1.5 * core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpt2_has_its_published_parameters() {
        let model = Model {
            layers: 12,
            hidden: 768,
            heads: 12,
            ffn: 3072,
            seq_len: 1024,
            vocab: 50257,
            norm_eps: 1e-5,
            init_std: 0.02,
        };
        assert_eq!(parameters(&model), 124_439_808);
    }
}
