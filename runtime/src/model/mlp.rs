//! The feed-forward layer, added to the residual stream.

use super::linear::{Linear, Then};
use super::{Emit, norm};
use crate::blueprint::params::LayerParams;
use crate::blueprint::program::{Op, Val};

/// x + proj(gelu(fc(norm(x)))).
#[derive(Debug, Clone, Copy)]
pub struct Mlp {
    norm: norm::Norm,
    fc: Linear,
    proj: Linear,
    layer: usize,
}

/// What the backward pass needs.
#[derive(Debug, Clone, Copy)]
pub struct Saved {
    norm: norm::Saved,
    normed: Val,
    pre: Val,
    act: Val,
}

impl Mlp {
    /// Of layer `layer` of width `c` and feed-forward width `f`.
    pub fn new(layer: usize, params: &LayerParams, c: usize, f: usize) -> Self {
        let linear = |(weight, bias), input, output| Linear {
            weight,
            bias,
            input,
            output,
        };
        Mlp {
            norm: norm::Norm {
                gain: params.ln_2.0,
                bias: params.ln_2.1,
            },
            fc: linear(params.c_fc, c, f),
            proj: linear(params.mlp_proj, f, c),
            layer,
        }
    }

    fn scope(&self, e: &mut Emit<'_, '_>, name: &str) {
        e.b.scope(&format!("h.{}.{name}.", self.layer));
    }

    /// The residual stream after this module.
    pub fn forward(&self, e: &mut Emit<'_, '_>, x: Val) -> (Val, Saved) {
        let rows = e.rows();
        self.scope(e, "ln_2");
        let (normed, norm) = self.norm.forward(e, x);
        self.scope(e, "mlp.c_fc");
        let pre = e.saved("pre", rows * e.model.ffn);
        let act = e.saved("act", rows * e.model.ffn);
        self.fc.forward(e, normed, act, Then::Gelu { pre });
        self.scope(e, "mlp.c_proj");
        let y = e.saved("residual", rows * e.model.hidden);
        self.proj.forward(e, act, y, Then::Add { residual: x });
        let saved = Saved {
            norm,
            normed,
            pre,
            act,
        };
        (y, saved)
    }

    /// Turns the gradient dx of the output into that of the input, in place.
    pub fn backward(&self, e: &mut Emit<'_, '_>, saved: &Saved, dx: Val) {
        let len = e.rows() * e.model.ffn;
        self.scope(e, "mlp.c_proj");
        let d = e.b.work_val("dact", len);
        self.proj.input_gradient(e, dx, d);
        self.proj.parameter_gradients(e, saved.act, dx);
        self.scope(e, "mlp.c_fc");
        e.b.emit(
            "gelu",
            Op::GeluGrad {
                pre: saved.pre,
                d,
                len,
            },
        );
        let dnormed = e.b.work_val("dnormed", e.rows() * e.model.hidden);
        self.fc.input_gradient(e, d, dnormed);
        self.fc.parameter_gradients(e, saved.normed, d);
        self.scope(e, "ln_2");
        self.norm.backward(e, saved.norm, dnormed, dx, true);
    }
}
