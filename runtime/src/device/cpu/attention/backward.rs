//! Attention backward: a tile is one head of one sequence; blocks of keys outside, blocks of queries inside.
#![allow(unsafe_code)]

use super::super::engine::{Scratch, Tiles};
use super::super::gemm::pack::{Source, pack};
use super::super::math::exp_below;
use super::super::ptr::Ptr;
use super::super::simd::{Simd, Tile, load_up_to, store_up_to};
use super::{KEYS, Parts, SLACK, Shape, copy_rows, mask_segments, rows_of};

/// dqkv from dout; delta = row sums of dout out.
pub(in super::super) struct AttentionGrad {
    pub qkv: Ptr<f32>,
    pub out: Ptr<f32>,
    pub lse: Ptr<f32>,
    pub dout: Ptr<f32>,
    pub delta: Ptr<f32>,
    pub dqkv: Ptr<f32>,
    pub segments: Option<Ptr<u32>>,
    pub shape: Shape,
}

/// Scratch of a head.
struct Block {
    q: *mut f32,
    dout: *mut f32,
    dq: *mut f32,
    /// Keys and values packed as right factors \[D, KEYS\].
    keys: *mut f32,
    values: *mut f32,
    key_rows: *mut f32,
    scores: *mut f32,
    dscores: *mut f32,
    dkeys: *mut f32,
    dvalues: *mut f32,
}

/// Where a pair of blocks lies.
#[derive(Clone, Copy)]
struct Pair {
    b: usize,
    h: usize,
    q0: usize,
    /// Queries of the block.
    here: usize,
    k0: usize,
    /// Keys of the block.
    keys: usize,
}

impl Pair {
    /// Keys that the row at `r` of the block sees.
    #[inline(always)]
    fn seen(&self, r: usize) -> usize {
        (self.q0 + r + 1).saturating_sub(self.k0).min(self.keys)
    }
}

impl Tiles for AttentionGrad {
    fn tiles(&self) -> usize {
        self.shape.batch * self.shape.heads
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, scratch: Scratch) {
        let shape = &self.shape;
        let (b, h) = (tile / shape.heads, tile % shape.heads);
        let (rows, d) = (rows_of(S::MR), shape.head_dim);
        let dp = d.next_multiple_of(S::NR);
        let mut parts = Parts(scratch.at);
        let at = Block {
            q: parts.take(rows * dp),
            dout: parts.take(rows * dp),
            dq: parts.take(rows * dp),
            keys: parts.take(KEYS * d),
            values: parts.take(KEYS * d),
            key_rows: parts.take(KEYS * dp),
            scores: parts.take(rows * KEYS + SLACK),
            dscores: parts.take(rows * KEYS + SLACK),
            dkeys: parts.take(rows * dp),
            dvalues: parts.take(rows * dp),
        };
        // SAFETY: positions are below the sequence length; the scratch was made for the largest head.
        unsafe {
            for t in 0..shape.seq {
                self.dot_rows(s, b, h, t);
            }
            let (qkv, stride) = (self.qkv.get(), shape.qkv_row());
            let mut k0 = 0;
            while k0 < shape.seq {
                let keys = (shape.seq - k0).min(KEYS);
                for (part, to) in [(1, at.keys), (2, at.values)] {
                    let from = qkv.add(shape.qkv(b, h, k0, part));
                    pack(
                        s,
                        Source {
                            at: from,
                            major: stride,
                            inner: 1,
                        },
                        keys,
                        d,
                        S::NR,
                        to,
                    );
                }
                copy_rows(
                    s,
                    qkv.add(shape.qkv(b, h, k0, 1)),
                    stride,
                    keys,
                    d,
                    at.key_rows,
                    dp,
                    KEYS,
                );
                let first = k0 / rows * rows;
                let mut q0 = first;
                while q0 < shape.seq {
                    let pair = Pair {
                        b,
                        h,
                        q0,
                        here: (shape.seq - q0).min(rows),
                        k0,
                        keys,
                    };
                    self.pair(s, &at, pair, q0 == first);
                    q0 += rows;
                }
                for (part, from) in [(1, at.dkeys), (2, at.dvalues)] {
                    for r in 0..keys {
                        let to = self.dqkv.get().add(shape.qkv(b, h, k0 + r, part));
                        let mut j = 0;
                        while j < d {
                            store_up_to(s, to.add(j), d - j, s.load(from.add(r * dp + j)));
                            j += S::LANES;
                        }
                    }
                }
                k0 += KEYS;
            }
        }
    }
}

impl AttentionGrad {
    /// delta of position `t`.
    #[inline(always)]
    unsafe fn dot_rows<S: Simd>(&self, s: S, b: usize, h: usize, t: usize) {
        let d = self.shape.head_dim;
        let at = self.shape.out(b, h, t);
        let mut sum = s.splat(0.0);
        let mut j = 0;
        // SAFETY: as for the tile.
        unsafe {
            while j < d {
                let x = load_up_to(s, self.dout.get().add(at + j), d - j);
                sum = s.fma(x, load_up_to(s, self.out.get().add(at + j), d - j), sum);
                j += S::LANES;
            }
            self.delta
                .get()
                .add(self.shape.sums(b, h, t))
                .write(s.sum(sum));
        }
    }

    /// One block of queries against one block of keys; `first` starts the sums of dk and dv.
    #[inline(always)]
    unsafe fn pair<S: Simd>(&self, s: S, at: &Block, pair: Pair, first: bool) {
        let shape = &self.shape;
        let (rows, d) = (rows_of(S::MR), shape.head_dim);
        let dp = d.next_multiple_of(S::NR);
        // SAFETY: as for the tile; rows beyond `here` and keys beyond `keys` are scratch.
        unsafe {
            let q = self.qkv.get().add(shape.qkv(pair.b, pair.h, pair.q0, 0));
            copy_rows(s, q, shape.qkv_row(), pair.here, d, at.q, dp, rows);
            let dout = self.dout.get().add(shape.out(pair.b, pair.h, pair.q0));
            copy_rows(s, dout, shape.out_row(), pair.here, d, at.dout, dp, rows);
            let mut i = 0;
            while i < pair.here {
                let seen = pair.seen(i + S::MR - 1);
                for (left, right, to) in
                    [(at.q, at.keys, at.scores), (at.dout, at.values, at.dscores)]
                {
                    let mut j = 0;
                    while j < seen {
                        s.tile(Tile {
                            k: d,
                            a: left.add(i * dp),
                            a_row: dp,
                            a_col: 1,
                            b: right.add(j * d),
                            b_row: S::NR,
                            from: std::ptr::null(),
                            c: to.add(i * KEYS + j),
                            ldc: KEYS,
                        });
                        j += S::NR;
                    }
                }
                for r in i..(i + S::MR).min(pair.here) {
                    self.score_row(s, at, pair, r);
                }
                self.query_tile(s, at, pair, i, seen);
                i += S::MR;
            }
            self.key_tiles(s, at, pair, first);
        }
    }

    /// Probabilities and their gradients of row `r`, zero where the row sees nothing.
    #[inline(always)]
    unsafe fn score_row<S: Simd>(&self, s: S, at: &Block, pair: Pair, r: usize) {
        let shape = &self.shape;
        let seen = pair.seen(r);
        let t = pair.q0 + r;
        // SAFETY: as for the tile; `seen` <= KEYS, a multiple of LANES.
        unsafe {
            let (p, g) = (at.scores.add(r * KEYS), at.dscores.add(r * KEYS));
            let sums = shape.sums(pair.b, pair.h, t);
            let scale = s.splat(shape.scale());
            let minus = s.splat(-self.lse.get().add(sums).read());
            let delta = s.splat(self.delta.get().add(sums).read());
            let mut j = 0;
            while j < seen {
                let e = exp_below(s, s.fma(s.load(p.add(j)), scale, minus));
                s.store(p.add(j), e);
                let slope = s.sub(s.load(g.add(j)), delta);
                s.store(g.add(j), s.mul(s.mul(e, slope), scale));
                j += S::LANES;
            }
            for c in seen..KEYS {
                p.add(c).write(0.0);
                g.add(c).write(0.0);
            }
            if let Some(segments) = self.segments {
                let segments = segments.add(pair.b * shape.seq);
                mask_segments(segments, t, pair.k0, seen, p, 0.0);
                mask_segments(segments, t, pair.k0, seen, g, 0.0);
            }
        }
    }

    /// dq of MR rows += dscores k.
    #[inline(always)]
    unsafe fn query_tile<S: Simd>(&self, s: S, at: &Block, pair: Pair, i: usize, seen: usize) {
        let d = self.shape.head_dim;
        let dp = d.next_multiple_of(S::NR);
        if seen == 0 {
            return;
        }
        // SAFETY: as for the tile.
        unsafe {
            let mut j = 0;
            while j < dp {
                s.tile(Tile {
                    k: seen,
                    a: at.dscores.add(i * KEYS),
                    a_row: KEYS,
                    a_col: 1,
                    b: at.key_rows.add(j),
                    b_row: dp,
                    from: std::ptr::null(),
                    c: at.dq.add(i * dp + j),
                    ldc: dp,
                });
                j += S::NR;
            }
            for r in i..(i + S::MR).min(pair.here) {
                let to = self
                    .dqkv
                    .get()
                    .add(self.shape.qkv(pair.b, pair.h, pair.q0 + r, 0));
                let mut j = 0;
                while j < d {
                    let mut v = s.load(at.dq.add(r * dp + j));
                    if pair.k0 > 0 {
                        v = s.add(v, load_up_to(s, to.add(j), d - j));
                    }
                    store_up_to(s, to.add(j), d - j, v);
                    j += S::LANES;
                }
            }
        }
    }

    /// dv += p^T dout and dk += dscores^T q over the block of queries.
    #[inline(always)]
    unsafe fn key_tiles<S: Simd>(&self, s: S, at: &Block, pair: Pair, first: bool) {
        let dp = self.shape.head_dim.next_multiple_of(S::NR);
        // SAFETY: as for the tile; reads beyond the last key end in the slack behind the scores.
        unsafe {
            let mut key = 0;
            while key < pair.keys {
                // Rows above the first key of the tile don't see it.
                let start = (pair.k0 + key).saturating_sub(pair.q0).min(pair.here);
                for (left, right, to) in [
                    (at.scores, at.dout, at.dvalues),
                    (at.dscores, at.q, at.dkeys),
                ] {
                    let mut j = 0;
                    while j < dp {
                        let c = to.add(key * dp + j);
                        s.tile(Tile {
                            k: pair.here - start,
                            a: left.add(start * KEYS + key),
                            a_row: 1,
                            a_col: KEYS,
                            b: right.add(start * dp + j),
                            b_row: dp,
                            from: if first { std::ptr::null() } else { c },
                            c,
                            ldc: dp,
                        });
                        j += S::NR;
                    }
                }
                key += S::MR;
            }
        }
    }
}
