//! Memory, FLOPs and refusals of the bundled trainer: the one place that asks it.

use super::{Flops, StageMemory};
use haul_runtime::blueprint::memory::Bytes;
use haul_runtime::blueprint::params::Params;
use haul_runtime::blueprint::{Blueprint, flops};
use haul_runtime::contract::{Coord, Mesh, Model, TrainConfig};
use std::collections::BTreeMap;

pub use haul_runtime::blueprint::Problem;

/// What a model takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// Of one rank of each pipeline stage.
    pub memory: Vec<StageMemory>,
    pub flops: Flops,
}

/// Measures `config` on `mesh`, or tells all that rules it out. Reserves nothing.
pub fn measure(config: &TrainConfig, mesh: &Mesh) -> Result<Measure, Vec<Problem>> {
    let memory = (0..mesh.pipeline)
        .map(|stage| {
            // Ranks of a stage are alike.
            let rank = mesh.rank(Coord {
                tensor: 0,
                data: 0,
                pipeline: stage,
            });
            let bytes = Blueprint::new(config, mesh, rank)?.bytes;
            Ok(StageMemory {
                stage,
                classes: classes(&bytes),
                total: bytes.total(),
            })
        })
        .collect::<Result<_, Vec<Problem>>>()?;
    Ok(Measure {
        memory,
        ..describe(config)
    })
}

/// What is known of a model without the trainer: its size and FLOPs.
pub fn describe(config: &TrainConfig) -> Measure {
    let per_token = flops::Flops::of(&config.model);
    Measure {
        memory: Vec::new(),
        flops: Flops {
            per_token: per_token.full,
            per_token_causal: per_token.causal,
            parameters: parameters(&config.model),
            tokens_per_step: config.tokens_per_step(),
        },
    }
}

/// Parameters of the model, unpadded; the output is tied to the input embedding.
pub fn parameters(model: &Model) -> u64 {
    let specs = Params::gpt(model).specs;
    specs.iter().map(|spec| spec.len() as u64).sum()
}

fn classes(bytes: &Bytes) -> BTreeMap<String, u64> {
    let Bytes {
        weights,
        gradients,
        optimizer,
        kept,
        work,
        tokens,
        scalars,
    } = *bytes;
    [
        ("weights", weights),
        ("gradients", gradients),
        ("optimizer", optimizer),
        ("kept", kept),
        ("work", work),
        ("tokens", tokens),
        ("scalars", scalars),
    ]
    .map(|(class, bytes)| (class.to_string(), bytes))
    .into()
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
