//! LayerNorm over the width.

use super::Emit;
use crate::blueprint::params::ParamId;
use crate::blueprint::program::{Op, Val};

/// A LayerNorm with gain and bias.
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    pub gain: ParamId,
    pub bias: ParamId,
}

/// What the backward pass needs.
#[derive(Debug, Clone, Copy)]
pub struct Saved {
    x: Val,
    stats: Val,
}

impl Norm {
    /// The normalised x \[N, C\].
    pub fn forward(&self, e: &mut Emit<'_, '_>, x: Val) -> (Val, Saved) {
        let (rows, width) = (e.rows(), e.model.hidden);
        let out = e.saved("out", rows * width);
        let stats = e.saved("stats", 2 * rows);
        let op = Op::Norm {
            x,
            gain: e.b.weight(self.gain),
            bias: e.b.weight(self.bias),
            out,
            stats,
            rows,
            width,
            eps: e.model.norm_eps,
        };
        e.b.emit("forward", op);
        (out, Saved { x, stats })
    }

    /// dx = or += the gradient with respect to x, given dy; gradients of gain and bias.
    pub fn backward(&self, e: &mut Emit<'_, '_>, saved: Saved, dy: Val, dx: Val, add: bool) {
        let mut dgain = e.b.grad(self.gain);
        let width = e.model.hidden;
        let first = e.params.layers.first().map(|layer| layer.ln_1.0);
        if e.drop_norm_gradient && first == Some(self.gain) {
            dgain = e.b.work_val("dropped", width);
            e.b.emit(
                "drop",
                Op::Zero {
                    x: dgain,
                    len: width,
                },
            );
        }
        let op = Op::NormGrad {
            x: saved.x,
            gain: e.b.weight(self.gain),
            stats: saved.stats,
            dy,
            dx,
            dgain,
            dbias: e.b.grad(self.bias),
            rows: e.rows(),
            width,
            add,
        };
        e.b.emit("backward", op);
    }
}
