//! Attention of one new position a sequence over its cached keys and values.
#![allow(unsafe_code)]

use super::engine::{Scratch, Tiles};
use super::math::exp_below;
use super::ptr::Ptr;
use super::simd::{Simd, load_up_to, store_up_to};

/// Positions whose scores are held at a time.
const CHUNK: usize = 128;
/// Under every score, and finite.
const LOWEST: f32 = -1e30;

/// Stores the new key and value, then attends over positions 0..=at. A tile is one head of one sequence.
pub(super) struct Decode {
    /// \[B, 3, H, D\].
    pub qkv: Ptr<f32>,
    /// \[B, T, H, D\].
    pub keys: Ptr<f32>,
    pub values: Ptr<f32>,
    pub at: Ptr<u32>,
    /// \[B, H, D\].
    pub out: Ptr<f32>,
    pub batch: usize,
    pub seq: usize,
    pub heads: usize,
    pub head_dim: usize,
}

impl Tiles for Decode {
    fn tiles(&self) -> usize {
        self.batch * self.heads
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, scratch: Scratch) {
        let (b, h) = (tile / self.heads, tile % self.heads);
        let (d, row) = (self.head_dim, self.heads * self.head_dim);
        let scale = (1.0 / (d as f64).sqrt()) as f32;
        let mut scores = [0.0f32; CHUNK];
        // SAFETY: at\[b\] was checked against `seq`; the scratch holds the largest head.
        unsafe {
            let last = self.at.get().add(b).read() as usize;
            let qkv = self.qkv.get().add(3 * b * row + h * d);
            let cache = b * self.seq * row + h * d;
            for (part, to) in [(1, self.keys), (2, self.values)] {
                let to = to.get().add(cache + last * row);
                std::ptr::copy_nonoverlapping(qkv.add(part * row), to, d);
            }
            let sum = scratch.at.get();
            let (mut max, mut total) = (LOWEST, 0.0f32);
            let mut start = 0;
            while start <= last {
                let count = (last + 1 - start).min(CHUNK);
                let mut top = max;
                for (c, score) in scores[..count].iter_mut().enumerate() {
                    let key = self.keys.get().add(cache + (start + c) * row);
                    let x = scale * dot(s, qkv, key, d);
                    *score = x;
                    top = if x > top { x } else { top };
                }
                let mut ends = [0.0f32; 1];
                s.store_part(ends.as_mut_ptr(), 1, exp_below(s, s.splat(max - top)));
                let fade = ends[0];
                let mut j = 0;
                let minus = s.splat(top);
                while j < count {
                    let n = count - j;
                    let p = exp_below(s, s.sub(load_up_to(s, scores.as_ptr().add(j), n), minus));
                    store_up_to(s, scores.as_mut_ptr().add(j), n, p);
                    j += S::LANES;
                }
                total = scores[..count].iter().fold(total * fade, |t, p| t + p);
                let mut j = 0;
                while j < d {
                    let n = d - j;
                    let mut acc = s.splat(0.0);
                    if start > 0 {
                        acc = s.mul(load_up_to(s, sum.add(j), n), s.splat(fade));
                    }
                    for (c, p) in scores[..count].iter().enumerate() {
                        let value = self.values.get().add(cache + (start + c) * row + j);
                        acc = s.fma(s.splat(*p), load_up_to(s, value, n), acc);
                    }
                    store_up_to(s, sum.add(j), n, acc);
                    j += S::LANES;
                }
                max = top;
                start += CHUNK;
            }
            let out = self.out.get().add(b * row + h * d);
            let mut j = 0;
            while j < d {
                let v = s.mul(load_up_to(s, sum.add(j), d - j), s.splat(1.0 / total));
                store_up_to(s, out.add(j), d - j, v);
                j += S::LANES;
            }
        }
    }
}

/// Dot product of `n` elements.
#[inline(always)]
unsafe fn dot<S: Simd>(s: S, x: *const f32, y: *const f32, n: usize) -> f32 {
    let mut sum = s.splat(0.0);
    let mut j = 0;
    while j < n {
        // SAFETY: cut to `n`.
        unsafe {
            sum = s.fma(
                load_up_to(s, x.add(j), n - j),
                load_up_to(s, y.add(j), n - j),
                sum,
            );
        }
        j += S::LANES;
    }
    s.sum(sum)
}
