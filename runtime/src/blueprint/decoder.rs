//! What sampling does: one position a time, with cached keys and values.

use super::builder::{Builder, Filled};
use super::memory::{Sizes, validate};
use super::params::{Params, align};
use super::program::{Program, ValInfo};
use super::{Problem, check, internal};
use crate::contract::TrainConfig;
use crate::model::Emit;
use crate::model::embed::Inputs;
use crate::model::gpt::Gpt;

/// A model that continues sequences.
#[derive(Debug, Clone)]
pub struct Decoder {
    pub params: Params,
    pub program: Program,
    pub sizes: Sizes,
    /// Sequences B.
    pub batch: usize,
    /// u32 \[B\]: the newest token of each sequence, and its position.
    pub tokens: ValInfo,
    pub at: ValInfo,
    /// Real \[B, V\].
    pub logits: ValInfo,
}

impl Decoder {
    /// A decoder of `batch` sequences for the model of `cfg`.
    pub fn new(cfg: &TrainConfig, batch: usize) -> Result<Self, Vec<Problem>> {
        let problems = check::check_model(cfg);
        if !problems.is_empty() {
            return Err(problems);
        }
        let params = Params::gpt(&cfg.model);
        let mut b = Builder::new(&params, Filled::default());
        let tokens = b.tokens("tokens", batch);
        let at = b.tokens("at", batch);
        let logits = b.pinned("logits", batch * cfg.model.vocab);
        let (places, logits_place) = ([tokens, at].map(|val| b.info(val)), b.info(logits));
        let mut e = Emit {
            b: &mut b,
            params: &params,
            model: &cfg.model,
            batch,
            seq: 1,
            keep: false,
            drop_norm_gradient: false,
            embed_twice: false,
        };
        Gpt::new(&cfg.model, &params).decode(&mut e, Inputs { tokens, at }, logits);
        let program = b.finish();
        let sizes = Sizes {
            weights: params.extent,
            work: b.work(),
            tokens: b.filled().tokens,
            slots: 1,
            ..Sizes::default()
        };
        validate(&program, &b.roots(), &sizes, align(b.filled().pinned))
            .map_err(|fault| internal(fault.to_string()))?;
        let [tokens, at] = places;
        Ok(Decoder {
            program,
            sizes,
            batch,
            tokens,
            at,
            logits: logits_place,
            params,
        })
    }
}
