//! Causal self-attention with its two projections, added to the residual stream.

use super::linear::{Linear, Then};
use super::{Emit, norm};
use crate::blueprint::params::LayerParams;
use crate::blueprint::program::{Op, Val};

/// x + proj(attention(qkv(norm(x)))).
#[derive(Debug, Clone, Copy)]
pub struct Attention {
    norm: norm::Norm,
    qkv: Linear,
    proj: Linear,
    layer: usize,
}

/// What the backward pass needs.
#[derive(Debug, Clone, Copy)]
pub struct Saved {
    norm: norm::Saved,
    normed: Val,
    qkv: Val,
    out: Val,
    lse: Val,
}

/// Keys and values of one layer, \[B, T, H, D\] each.
#[derive(Debug, Clone, Copy)]
pub struct Cache {
    pub keys: Val,
    pub values: Val,
}

impl Attention {
    /// Of layer `layer` of width `c`.
    pub fn new(layer: usize, params: &LayerParams, c: usize) -> Self {
        let linear = |(weight, bias), output| Linear {
            weight,
            bias,
            input: c,
            output,
        };
        Attention {
            norm: norm::Norm {
                gain: params.ln_1.0,
                bias: params.ln_1.1,
            },
            qkv: linear(params.c_attn, 3 * c),
            proj: linear(params.attn_proj, c),
            layer,
        }
    }

    fn scope(&self, e: &mut Emit<'_, '_>, name: &str) {
        e.b.scope(&format!("h.{}.{name}.", self.layer));
    }

    /// The residual stream after this module.
    pub fn forward(&self, e: &mut Emit<'_, '_>, x: Val) -> (Val, Saved) {
        let rows = e.rows();
        let n = rows * e.model.hidden;
        self.scope(e, "ln_1");
        let (normed, norm) = self.norm.forward(e, x);
        self.scope(e, "attn.c_attn");
        let qkv = e.saved("qkv", 3 * n);
        self.qkv.forward(e, normed, qkv, Then::Nothing);
        self.scope(e, "attn");
        let out = e.saved("out", n);
        let lse = e.saved("lse", rows * e.model.heads);
        let op = Op::Attention {
            qkv,
            out,
            lse,
            segments: None,
            batch: e.batch,
            seq: e.seq,
            heads: e.model.heads,
            head_dim: e.head_dim(),
        };
        e.b.emit("forward", op);
        self.scope(e, "attn.c_proj");
        let y = e.saved("residual", n);
        self.proj.forward(e, out, y, Then::Add { residual: x });
        let saved = Saved {
            norm,
            normed,
            qkv,
            out,
            lse,
        };
        (y, saved)
    }

    /// Turns the gradient dx of the output into that of the input, in place.
    pub fn backward(&self, e: &mut Emit<'_, '_>, saved: &Saved, dx: Val) {
        let n = e.rows() * e.model.hidden;
        self.scope(e, "attn.c_proj");
        let dout = e.b.work_val("dout", n);
        self.proj.input_gradient(e, dx, dout);
        self.proj.parameter_gradients(e, saved.out, dx);
        self.scope(e, "attn");
        let dqkv = e.b.work_val("dqkv", 3 * n);
        let delta = e.b.work_val("delta", e.batch * e.seq * e.model.heads);
        let op = Op::AttentionGrad {
            qkv: saved.qkv,
            out: saved.out,
            lse: saved.lse,
            dout,
            delta,
            dqkv,
            segments: None,
            batch: e.batch,
            seq: e.seq,
            heads: e.model.heads,
            head_dim: e.head_dim(),
        };
        e.b.emit("backward", op);
        self.scope(e, "attn.c_attn");
        let dnormed = e.b.work_val("dnormed", n);
        self.qkv.input_gradient(e, dqkv, dnormed);
        self.qkv.parameter_gradients(e, saved.normed, dqkv);
        self.scope(e, "ln_1");
        self.norm.backward(e, saved.norm, dnormed, dx, true);
    }

    /// One new position a sequence, at `at`, with the keys and values of those before it in `cache`.
    pub fn decode(&self, e: &mut Emit<'_, '_>, x: Val, at: Val, cache: Cache) -> Val {
        let n = e.batch * e.model.hidden;
        self.scope(e, "ln_1");
        let (normed, _) = self.norm.forward(e, x);
        self.scope(e, "attn.c_attn");
        let qkv = e.b.work_val("qkv", 3 * n);
        self.qkv.forward(e, normed, qkv, Then::Nothing);
        self.scope(e, "attn");
        let out = e.b.work_val("out", n);
        let op = Op::Decode {
            qkv,
            keys: cache.keys,
            values: cache.values,
            at,
            out,
            batch: e.batch,
            seq: e.model.seq_len,
            heads: e.model.heads,
            head_dim: e.head_dim(),
        };
        e.b.emit("decode", op);
        self.scope(e, "attn.c_proj");
        let y = e.b.work_val("residual", n);
        self.proj.forward(e, out, y, Then::Add { residual: x });
        y
    }
}
