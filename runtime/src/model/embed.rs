//! Token and position embeddings.
//!
//! The tokens' gradient goes to a buffer of its own, one row for each distinct token of the rank's step, and is added to the tied
//! parameter once a step: ((h + e0) + e1) and (h + (e0 + e1)) differ in bits, and a pipeline can only do the latter.

use super::Emit;
use crate::blueprint::program::{Op, Val};

/// u32 values that the host fills for each micro-batch; rows N.
#[derive(Debug, Clone, Copy)]
pub struct Inputs {
    /// Token ids \[N\].
    pub tokens: Val,
    /// Positions \[N\].
    pub at: Val,
}

/// The residual stream at its start, \[N, C\].
pub fn forward(e: &mut Emit<'_, '_>, inputs: Inputs) -> Val {
    e.b.scope("embed.");
    let (rows, width) = (e.rows(), e.model.hidden);
    let out = e.saved("residual", rows * width);
    let op = Op::Embed {
        tokens: inputs.tokens,
        at: inputs.at,
        table: e.b.weight(e.params.wte),
        positions: e.b.weight(e.params.wpe),
        out,
        rows,
        width,
    };
    e.b.emit("forward", op);
    out
}

/// Gradients of both tables; `slots` u32 \[N\] says which row of `rows_grad` each token has.
pub fn backward(e: &mut Emit<'_, '_>, at: Val, slots: Val, rows_grad: Val, dx: Val) {
    e.b.scope("embed.");
    let op = Op::EmbedGrad {
        slots,
        at,
        dy: dx,
        rows_grad,
        dpositions: e.b.grad(e.params.wpe),
        rows: e.rows(),
        width: e.model.hidden,
    };
    for _ in 0..if e.embed_twice { 2 } else { 1 } {
        e.b.emit("backward", op);
    }
}
