//! GELU in its tanh form and its gradient.
#![allow(unsafe_code)]

use super::engine::{Scratch, Tiles};
use super::math::exp;
use super::ptr::Ptr;
use super::simd::{Simd, load_up_to, store_up_to};

/// sqrt(2 / pi).
const ROOT: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

/// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and Gimpel, arXiv 1606.08415).
#[inline(always)]
pub(super) fn gelu<S: Simd>(s: S, x: S::V) -> S::V {
    let square = s.mul(x, x);
    s.mul(x, gate(s, x, square).0)
}

/// (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), which does not cancel for negative x, and one minus it.
#[inline(always)]
fn gate<S: Simd>(s: S, x: S::V, square: S::V) -> (S::V, S::V) {
    let minus = s.fma(square, s.splat(-2.0 * ROOT * CUBE), s.splat(-2.0 * ROOT));
    // Bounded, so that the product below is not 0 times infinity.
    let e = s.min(s.splat(1e30), exp(s, s.mul(x, minus)));
    let gate = s.div(s.splat(1.0), s.add(e, s.splat(1.0)));
    (gate, s.mul(e, gate))
}

/// Derivative of [`gelu`]: gate + x gate (1 - gate) 2 u'.
#[inline(always)]
fn slope<S: Simd>(s: S, x: S::V) -> S::V {
    let square = s.mul(x, x);
    let (gate, rest) = gate(s, x, square);
    let steep = s.fma(square, s.splat(6.0 * ROOT * CUBE), s.splat(2.0 * ROOT));
    s.fma(s.mul(s.mul(x, gate), rest), steep, gate)
}

/// Elements of a tile.
const TILE: usize = 16 * 1024;

/// d *= gelu'(pre).
pub(super) struct GeluGrad {
    pub pre: Ptr<f32>,
    pub d: Ptr<f32>,
    pub len: usize,
}

impl Tiles for GeluGrad {
    fn tiles(&self) -> usize {
        self.len.div_ceil(TILE)
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, _: Scratch) {
        let end = (tile * TILE + TILE).min(self.len);
        let mut i = tile * TILE;
        while i < end {
            let n = end - i;
            // SAFETY: i..i + min(n, LANES) is below `len`.
            unsafe {
                let pre = load_up_to(s, self.pre.get().add(i), n);
                let d = load_up_to(s, self.d.get().add(i), n);
                store_up_to(s, self.d.get().add(i), n, s.mul(d, slope(s, pre)));
            }
            i += S::LANES;
        }
    }
}
