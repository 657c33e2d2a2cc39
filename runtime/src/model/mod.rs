//! The model as modules that emit forward and backward operations, side by side. Pure: nothing here computes.
//!
//! Letters as in [`crate::blueprint::program`]; matrices of parameters are stored (out, in).

pub mod attention;
pub mod embed;
pub mod gpt;
pub mod head;
pub mod linear;
pub mod mlp;
pub mod norm;

use crate::blueprint::builder::Builder;
use crate::blueprint::params::Params;
use crate::blueprint::program::Val;
use crate::contract::Model;

/// What modules emit with: the builder and the sizes of the micro-batch at hand.
pub struct Emit<'e, 'p> {
    pub b: &'e mut Builder<'p>,
    pub params: &'p Params,
    pub model: &'p Model,
    /// Sequences B.
    pub batch: usize,
    /// Positions of one sequence in the program, T.
    pub seq: usize,
    /// Whether values are kept for a backward pass.
    pub keep: bool,
    /// A mistake made on purpose: this rank's gradient of the first LayerNorm gain is dropped.
    pub drop_norm_gradient: bool,
    /// A mistake made on purpose: the input embedding's gradient is added twice.
    pub embed_twice: bool,
}

impl Emit<'_, '_> {
    /// Rows N of the residual stream.
    pub fn rows(&self) -> usize {
        self.batch * self.seq
    }

    /// Width D of a head.
    pub fn head_dim(&self) -> usize {
        self.model.hidden / self.model.heads
    }

    /// A value that the backward pass needs.
    pub fn saved(&mut self, name: &str, len: usize) -> Val {
        if self.keep {
            self.b.kept(name, len)
        } else {
            self.b.work_val(name, len)
        }
    }
}
