//! AdamW in one pass over parameter, gradient and moments; the gradient is zeroed on the way.
#![allow(unsafe_code)]

use super::engine::{Scratch, Tiles};
use super::ptr::Ptr;
use super::simd::{Simd, load_up_to, store_up_to};
use crate::blueprint::program::AdamScalars;

/// Elements of a tile.
const TILE: usize = 32 * 1024;

/// The update of [`AdamScalars`] (Loshchilov and Hutter, arXiv 1711.05101, in PyTorch's form), in f32.
pub(super) struct AdamW {
    pub p: Ptr<f32>,
    pub g: Ptr<f32>,
    pub m: Ptr<f32>,
    pub v: Ptr<f32>,
    pub len: usize,
    factors: Factors,
}

/// What is the same for all elements, worked out in f64 and rounded once.
struct Factors {
    gscale: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    keep: f32,
    rate: f32,
    root: f32,
    eps: f32,
}

impl AdamW {
    pub(super) fn new(
        [p, g, m, v]: [Ptr<f32>; 4],
        len: usize,
        a: AdamScalars,
        decay: bool,
        lr_mult: f32,
    ) -> AdamW {
        let lr = a.lr * f64::from(lr_mult);
        let decay = if decay { a.weight_decay } else { 0.0 };
        let factors = Factors {
            gscale: a.gscale as f32,
            beta1: a.beta1 as f32,
            rest1: (1.0 - a.beta1) as f32,
            beta2: a.beta2 as f32,
            rest2: (1.0 - a.beta2) as f32,
            keep: (1.0 - lr * decay) as f32,
            rate: (lr / a.bc1) as f32,
            root: (1.0 / a.bc2.sqrt()) as f32,
            eps: a.eps as f32,
        };
        AdamW {
            p,
            g,
            m,
            v,
            len,
            factors,
        }
    }
}

impl Tiles for AdamW {
    fn tiles(&self) -> usize {
        self.len.div_ceil(TILE)
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, _: Scratch) {
        let f = &self.factors;
        let end = (tile * TILE + TILE).min(self.len);
        let mut i = tile * TILE;
        while i < end {
            let n = end - i;
            let (p, g) = (self.p.add(i).get(), self.g.add(i).get());
            let (m, v) = (self.m.add(i).get(), self.v.add(i).get());
            // SAFETY: i..i + min(n, LANES) is below `len`.
            unsafe {
                let grad = s.mul(load_up_to(s, g, n), s.splat(f.gscale));
                let first = s.mul(load_up_to(s, m, n), s.splat(f.beta1));
                let first = s.fma(grad, s.splat(f.rest1), first);
                let second = s.mul(load_up_to(s, v, n), s.splat(f.beta2));
                let second = s.fma(s.mul(grad, grad), s.splat(f.rest2), second);
                let below = s.fma(s.sqrt(second), s.splat(f.root), s.splat(f.eps));
                let kept = s.mul(load_up_to(s, p, n), s.splat(f.keep));
                let step = s.mul(s.splat(f.rate), s.div(first, below));
                store_up_to(s, p, n, s.sub(kept, step));
                store_up_to(s, m, n, first);
                store_up_to(s, v, n, second);
                store_up_to(s, g, n, s.splat(0.0));
            }
            i += S::LANES;
        }
    }
}

/// x = 0.
pub(super) struct Zero {
    pub x: Ptr<f32>,
    pub len: usize,
}

impl Tiles for Zero {
    fn tiles(&self) -> usize {
        self.len.div_ceil(TILE)
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, _: S, tile: usize, _: Scratch) {
        let n = TILE.min(self.len - tile * TILE);
        // SAFETY: the tile lies below `len`; all bits zero is 0.0.
        unsafe { self.x.get().add(tile * TILE).write_bytes(0, n) };
    }
}
