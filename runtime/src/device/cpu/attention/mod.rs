//! Causal attention in tiles: scores never leave the caches, tiles above the diagonal are skipped.
//!
//! Dao, FlashAttention-2 (arXiv 2307.08691): online softmax forward; backward recomputes the probabilities from the log sums.
#![allow(unsafe_code)]

mod backward;
mod forward;

pub(super) use self::backward::AttentionGrad;
pub(super) use self::forward::Attention;
use super::isa::ROWS_MOST;
use super::ptr::Ptr;
use super::simd::{Simd, load_up_to, prefetch};

/// Largest head dimension: what the scratch memory of a worker is made for.
pub(super) const HEAD_DIM_MAX: usize = 256;

/// Keys of a block, a multiple of every path's NR.
const KEYS: usize = 96;

/// Query rows of a block, and rows of the key gradients: whole tiles.
const fn rows_of(mr: usize) -> usize {
    KEYS.next_multiple_of(mr)
}

/// Elements that reads of a tile may go beyond the scores.
const SLACK: usize = 64;

/// Elements of a worker's scratch, on the path with the most rows in a tile.
pub(super) fn scratch_len() -> usize {
    let rows = rows_of(ROWS_MOST);
    // The backward pass needs most: queries, dout, dq; keys and values packed, keys; scores and their gradients; dk, dv.
    3 * rows * HEAD_DIM_MAX
        + 3 * KEYS * HEAD_DIM_MAX
        + 2 * (rows * KEYS + SLACK)
        + 2 * rows * HEAD_DIM_MAX
}

/// Shape of the operation: qkv \[B, T, 3, H, D\].
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub batch: usize,
    pub seq: usize,
    pub heads: usize,
    pub head_dim: usize,
}

impl Shape {
    /// Distance of neighbouring positions in qkv.
    fn qkv_row(&self) -> usize {
        3 * self.heads * self.head_dim
    }

    /// Distance of neighbouring positions in out.
    fn out_row(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Offset of the head's part `part` (0 q, 1 k, 2 v) at position `t` in qkv.
    fn qkv(&self, b: usize, h: usize, t: usize, part: usize) -> usize {
        (b * self.seq + t) * self.qkv_row() + (part * self.heads + h) * self.head_dim
    }

    /// Offset of the head at position `t` in out.
    fn out(&self, b: usize, h: usize, t: usize) -> usize {
        (b * self.seq + t) * self.out_row() + h * self.head_dim
    }

    /// Offset of position `t` in the sums \[B, H, T\].
    fn sums(&self, b: usize, h: usize, t: usize) -> usize {
        (b * self.heads + h) * self.seq + t
    }

    /// 1 / sqrt(D).
    fn scale(&self) -> f32 {
        (1.0 / (self.head_dim as f64).sqrt()) as f32
    }
}

/// Hands out parts of a worker's scratch.
struct Parts(Ptr<f32>);

impl Parts {
    fn take(&mut self, len: usize) -> *mut f32 {
        let at = self.0;
        self.0 = at.add(len);
        at.get()
    }
}

/// Copies `rows` x `d` into rows of `dp` elements, a multiple of LANES; zeros fill columns d.. and rows up to `all`.
#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "source and destination of one copy"
)]
unsafe fn copy_rows<S: Simd>(
    s: S,
    src: *const f32,
    stride: usize,
    rows: usize,
    d: usize,
    dst: *mut f32,
    dp: usize,
    all: usize,
) {
    // Rows lie a page or more apart, where hardware does not look ahead.
    const AHEAD: usize = 6;
    // SAFETY: the source holds rows x d, the destination all x dp.
    unsafe {
        for r in 0..rows {
            let (from, to) = (src.add(r * stride), dst.add(r * dp));
            let mut j = 0;
            while j < d {
                prefetch(from.wrapping_add(AHEAD * stride + j));
                s.store(to.add(j), load_up_to(s, from.add(j), d - j));
                j += S::LANES;
            }
            while j < dp {
                s.store(to.add(j), s.splat(0.0));
                j += S::LANES;
            }
        }
        dst.add(rows * dp).write_bytes(0, (all - rows) * dp);
    }
}

/// Writes `value` where keys `k0..k0 + n` are of another segment than query `r`.
unsafe fn mask_segments(
    segments: Ptr<u32>,
    r: usize,
    k0: usize,
    n: usize,
    row: *mut f32,
    value: f32,
) {
    // SAFETY: positions are below the sequence length; the row holds n scores.
    unsafe {
        let own = segments.get().add(r).read();
        for c in 0..n {
            if segments.get().add(k0 + c).read() != own {
                row.add(c).write(value);
            }
        }
    }
}
