//! Affine maps: y = x Wᵀ + b with what follows fused, and their three gradients.

use super::Emit;
use crate::blueprint::params::ParamId;
use crate::blueprint::program::{Epilogue, Op, Val};

/// An affine map from `input` to `output` columns.
#[derive(Debug, Clone, Copy)]
pub struct Linear {
    pub weight: ParamId,
    pub bias: ParamId,
    pub input: usize,
    pub output: usize,
}

/// What is done with x Wᵀ + b.
#[derive(Debug, Clone, Copy)]
pub enum Then {
    Nothing,
    /// GELU, tanh form, the argument stored in `pre`.
    Gelu {
        pre: Val,
    },
    /// Added to `residual`.
    Add {
        residual: Val,
    },
}

impl Linear {
    /// y \[N, output\] of x \[N, input\].
    pub fn forward(&self, e: &mut Emit<'_, '_>, x: Val, y: Val, then: Then) {
        let bias = e.b.weight(self.bias);
        let op = Op::Gemm {
            a: x,
            b: e.b.weight(self.weight),
            c: y,
            m: e.rows(),
            n: self.output,
            k: self.input,
            ta: false,
            tb: true,
            accumulate: false,
            epilogue: match then {
                Then::Nothing => Epilogue::Bias { bias },
                Then::Gelu { pre } => Epilogue::BiasGelu { bias, pre },
                Then::Add { residual } => Epilogue::BiasResidual { bias, residual },
            },
        };
        e.b.emit("forward", op);
    }

    /// dx \[N, input\] = dy W.
    pub fn input_gradient(&self, e: &mut Emit<'_, '_>, dy: Val, dx: Val) {
        let op = Op::Gemm {
            a: dy,
            b: e.b.weight(self.weight),
            c: dx,
            m: e.rows(),
            n: self.input,
            k: self.output,
            ta: false,
            tb: false,
            accumulate: false,
            epilogue: Epilogue::None,
        };
        e.b.emit("dx", op);
    }

    /// dW += dyᵀ x, db += column sums of dy.
    pub fn parameter_gradients(&self, e: &mut Emit<'_, '_>, x: Val, dy: Val) {
        let rows = e.rows();
        let op = Op::Gemm {
            a: dy,
            b: x,
            c: e.b.grad(self.weight),
            m: self.output,
            n: self.input,
            k: rows,
            ta: true,
            tb: false,
            accumulate: true,
            epilogue: Epilogue::None,
        };
        e.b.emit("dw", op);
        let out = e.b.grad(self.bias);
        let op = Op::ColumnSum {
            x: dy,
            out,
            rows,
            width: self.output,
        };
        e.b.emit("db", op);
    }
}
