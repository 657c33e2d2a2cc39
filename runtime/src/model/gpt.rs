//! A GPT-2 style model composed of its modules: training, evaluation and decoding.

use super::attention::{self, Attention};
use super::embed::{self, Inputs};
use super::mlp::{self, Mlp};
use super::norm::{self, Norm};
use super::{Emit, head};
use crate::blueprint::params::Params;
use crate::blueprint::program::Val;
use crate::contract::Model;

/// The modules of a model.
pub struct Gpt {
    layers: Vec<(Attention, Mlp)>,
    ln_f: Norm,
}

/// What the backward pass of the whole model needs.
pub struct Saved {
    layers: Vec<(attention::Saved, mlp::Saved)>,
    ln_f: norm::Saved,
    /// Gradient of the normalised output, made by the head.
    dnormed: Val,
}

impl Gpt {
    /// The modules of `model` over its parameters.
    pub fn new(model: &Model, params: &Params) -> Self {
        let layers = params.layers.iter().enumerate().map(|(i, layer)| {
            let mlp = Mlp::new(i, layer, model.hidden, model.ffn);
            (Attention::new(i, layer, model.hidden), mlp)
        });
        Gpt {
            layers: layers.collect(),
            ln_f: Norm {
                gain: params.ln_f.0,
                bias: params.ln_f.1,
            },
        }
    }

    /// Adds the loss of a micro-batch to `loss`; with `scale`, the head's gradients too (see [`head::loss`]).
    pub fn forward(
        &self,
        e: &mut Emit<'_, '_>,
        inputs: Inputs,
        targets: Val,
        loss: Val,
        scale: Option<f64>,
    ) -> Saved {
        let mut x = embed::forward(e, inputs);
        let mut layers = Vec::with_capacity(self.layers.len());
        for (attention, mlp) in &self.layers {
            let (middle, attention) = attention.forward(e, x);
            let (out, mlp) = mlp.forward(e, middle);
            layers.push((attention, mlp));
            x = out;
        }
        e.b.scope("ln_f.");
        let (normed, ln_f) = self.ln_f.forward(e, x);
        head::loss(e, normed, targets, loss, scale);
        Saved {
            layers,
            ln_f,
            dnormed: normed,
        }
    }

    /// Gradients of all parameters of a micro-batch; those of the head are made already.
    pub fn backward(
        &self,
        e: &mut Emit<'_, '_>,
        saved: &Saved,
        at: Val,
        slots: Val,
        rows_grad: Val,
    ) {
        e.b.scope("ln_f.");
        let dx = e.b.work_val("dx", e.batch * e.seq * e.model.hidden);
        self.ln_f.backward(e, saved.ln_f, saved.dnormed, dx, false);
        for ((attention, mlp), saved) in self.layers.iter().zip(&saved.layers).rev() {
            mlp.backward(e, &saved.1, dx);
            attention.backward(e, &saved.0, dx);
        }
        embed::backward(e, at, slots, rows_grad, dx);
    }

    /// Logits \[B, V\] of one new position a sequence; keys and values are cached.
    pub fn decode(&self, e: &mut Emit<'_, '_>, inputs: Inputs, logits: Val) {
        let mut x = embed::forward(e, inputs);
        for (i, (attention, mlp)) in self.layers.iter().enumerate() {
            e.b.scope(&format!("h.{i}.attn."));
            let len = e.batch * e.model.seq_len * e.model.hidden;
            let cache = attention::Cache {
                keys: e.b.pinned("keys", len),
                values: e.b.pinned("values", len),
            };
            x = attention.decode(e, x, inputs.at, cache);
            x = mlp.forward(e, x).0;
        }
        e.b.scope("ln_f.");
        let (normed, _) = self.ln_f.forward(e, x);
        head::logits(e, normed, logits);
    }
}
