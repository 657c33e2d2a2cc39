//! Attention forward: a tile is a block of queries of one head; keys are visited in order.
#![allow(unsafe_code)]

use super::super::engine::{Scratch, Tiles};
use super::super::gemm::pack::{Source, pack};
use super::super::math::{exp_below, ln};
use super::super::ptr::Ptr;
use super::super::simd::{Simd, Tile, store_up_to};
use super::{KEYS, Parts, SLACK, Shape, copy_rows, mask_segments, rows_of};

/// Under every score that a real model makes, and finite, so that a block without a visible key leaves no NaN.
const LOWEST: f32 = -1e30;

/// out = softmax(q k^T / sqrt(D)) v, lse = log of the softmax denominators.
pub(in super::super) struct Attention {
    pub qkv: Ptr<f32>,
    pub out: Ptr<f32>,
    pub lse: Ptr<f32>,
    pub segments: Option<Ptr<u32>>,
    pub shape: Shape,
    /// Rows of a tile of the path.
    pub mr: usize,
}

/// Scratch of a block.
struct Block {
    q: *mut f32,
    keys: *mut f32,
    values: *mut f32,
    scores: *mut f32,
    out: *mut f32,
    /// Running maximum and sum of each row.
    max: *mut f32,
    sum: *mut f32,
}

impl Tiles for Attention {
    fn tiles(&self) -> usize {
        let blocks = self.shape.seq.div_ceil(rows_of(self.mr));
        self.shape.batch * self.shape.heads * blocks
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, scratch: Scratch) {
        let shape = &self.shape;
        let rows = rows_of(S::MR);
        let heads = shape.batch * shape.heads;
        // The last blocks see the most keys: they come first, which balances the end.
        let block = shape.seq.div_ceil(rows) - 1 - tile / heads;
        let (b, h) = (tile % heads / shape.heads, tile % shape.heads);
        let (q0, d) = (block * rows, shape.head_dim);
        let here = (shape.seq - q0).min(rows);
        let dp = d.next_multiple_of(S::NR);
        let mut parts = Parts(scratch.at);
        let at = Block {
            q: parts.take(rows * dp),
            keys: parts.take(KEYS * d),
            values: parts.take(KEYS * dp),
            scores: parts.take(rows * KEYS + SLACK),
            out: parts.take(rows * dp),
            max: parts.take(rows),
            sum: parts.take(rows),
        };
        // SAFETY: positions are below the sequence length; the scratch was made for the largest head.
        unsafe {
            let qkv = self.qkv.get();
            let stride = shape.qkv_row();
            copy_rows(
                s,
                qkv.add(shape.qkv(b, h, q0, 0)),
                stride,
                here,
                d,
                at.q,
                dp,
                rows,
            );
            for r in 0..rows {
                at.max.add(r).write(LOWEST);
                at.sum.add(r).write(0.0);
            }
            let mut k0 = 0;
            while k0 < q0 + here {
                let keys = (shape.seq - k0).min(KEYS);
                let source = Source {
                    at: qkv.add(shape.qkv(b, h, k0, 1)),
                    major: stride,
                    inner: 1,
                };
                pack(s, source, keys, d, S::NR, at.keys);
                copy_rows(
                    s,
                    qkv.add(shape.qkv(b, h, k0, 2)),
                    stride,
                    keys,
                    d,
                    at.values,
                    dp,
                    keys,
                );
                let mut i = 0;
                while i < here {
                    self.row_tile(s, &at, (b, q0, k0), i, keys, here);
                    i += S::MR;
                }
                k0 += KEYS;
            }
            for r in 0..here {
                let sum = at.sum.add(r).read();
                let inverse = s.splat(1.0 / sum);
                let out = self.out.get().add(shape.out(b, h, q0 + r));
                let mut j = 0;
                while j < d {
                    let v = s.mul(s.load(at.out.add(r * dp + j)), inverse);
                    store_up_to(s, out.add(j), d - j, v);
                    j += S::LANES;
                }
                let lse = at.max.add(r).read() + ln(sum);
                self.lse.get().add(shape.sums(b, h, q0 + r)).write(lse);
            }
        }
    }
}

impl Attention {
    /// MR queries from row `i` of the block against the block of keys at `k0`.
    #[inline(always)]
    unsafe fn row_tile<S: Simd>(
        &self,
        s: S,
        at: &Block,
        (b, q0, k0): (usize, usize, usize),
        i: usize,
        keys: usize,
        here: usize,
    ) {
        let d = self.shape.head_dim;
        let dp = d.next_multiple_of(S::NR);
        // Keys that the last row of the tile sees.
        let seen = (q0 + i + S::MR).saturating_sub(k0).min(keys);
        if seen == 0 {
            return;
        }
        // SAFETY: as for the tile; rows beyond `here` are scratch.
        unsafe {
            let scores = at.scores.add(i * KEYS);
            let mut j = 0;
            while j < seen {
                s.tile(Tile {
                    k: d,
                    a: at.q.add(i * dp),
                    a_row: dp,
                    a_col: 1,
                    b: at.keys.add(j * d),
                    b_row: S::NR,
                    from: std::ptr::null(),
                    c: scores.add(j),
                    ldc: KEYS,
                });
                j += S::NR;
            }
            for r in i..(i + S::MR).min(here) {
                self.softmax(s, at, (b, q0 + r, k0), r, seen);
            }
            let mut j = 0;
            while j < dp {
                let c = at.out.add(i * dp + j);
                s.tile(Tile {
                    k: seen,
                    a: scores,
                    a_row: KEYS,
                    a_col: 1,
                    b: at.values.add(j),
                    b_row: dp,
                    from: if k0 == 0 { std::ptr::null() } else { c },
                    c,
                    ldc: dp,
                });
                j += S::NR;
            }
        }
    }

    /// Turns a row of scores into exp(score - running maximum), rescales what came before. `t` is the row's position.
    #[inline(always)]
    unsafe fn softmax<S: Simd>(
        &self,
        s: S,
        at: &Block,
        (b, t, k0): (usize, usize, usize),
        r: usize,
        seen: usize,
    ) {
        let dp = self.shape.head_dim.next_multiple_of(S::NR);
        let end = seen.next_multiple_of(S::LANES);
        // SAFETY: `end` <= KEYS; row `r` is inside the block.
        unsafe {
            let row = at.scores.add(r * KEYS);
            let own = (t + 1).saturating_sub(k0).min(seen);
            if let Some(segments) = self.segments {
                let segments = segments.add(b * self.shape.seq);
                mask_segments(segments, t, k0, own, row, f32::NEG_INFINITY);
            }
            for c in own..end {
                row.add(c).write(f32::NEG_INFINITY);
            }
            let mut largest = s.splat(LOWEST);
            let mut j = 0;
            while j < end {
                largest = s.max(largest, s.load(row.add(j)));
                j += S::LANES;
            }
            let scale = s.splat(self.shape.scale());
            let before = at.max.add(r).read();
            let now = s.largest(s.max(s.mul(largest, scale), s.splat(before)));
            let minus = s.splat(-now);
            let mut sum = s.splat(0.0);
            let mut j = 0;
            while j < end {
                let p = exp_below(s, s.fma(s.load(row.add(j)), scale, minus));
                s.store(row.add(j), p);
                sum = s.add(sum, p);
                j += S::LANES;
            }
            let mut first = [0.0];
            s.store_part(first.as_mut_ptr(), 1, exp_below(s, s.splat(before - now)));
            let [fade] = first;
            at.max.add(r).write(now);
            at.sum
                .add(r)
                .write(at.sum.add(r).read() * fade + s.sum(sum));
            if k0 > 0 && fade != 1.0 {
                let mut j = 0;
                while j < dp {
                    let o = at.out.add(r * dp + j);
                    s.store(o, s.mul(s.load(o), s.splat(fade)));
                    j += S::LANES;
                }
            }
        }
    }
}
