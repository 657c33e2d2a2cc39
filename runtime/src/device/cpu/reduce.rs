//! Sums over rows and sums of squares, in fixed blocks.
#![allow(unsafe_code)]

use super::engine::{Scratch, Tiles};
use super::ptr::Ptr;
use super::simd::{Simd, load_up_to, prefetch, store_up_to};
use crate::blueprint::program::SQUARES_BLOCK;

/// Rows summed on their own before they are added to the total.
pub(super) const ROWS: usize = 64;

/// Columns of a strip of `vectors` vectors of the widest path; narrower paths go over it in steps.
pub(super) const fn strip_columns(vectors: usize) -> usize {
    16 * vectors
}

/// Vectors of a strip.
const STRIP: usize = 4;

/// out += sum over rows of x. A tile is a strip of columns.
pub(super) struct ColumnSum {
    pub x: Ptr<f32>,
    pub out: Ptr<f32>,
    pub rows: usize,
    pub width: usize,
}

impl Tiles for ColumnSum {
    fn tiles(&self) -> usize {
        self.width.div_ceil(strip_columns(STRIP))
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, _: Scratch) {
        let end = ((tile + 1) * strip_columns(STRIP)).min(self.width);
        let mut j = tile * strip_columns(STRIP);
        while j < end {
            // SAFETY: columns are cut to `width`, rows to `rows`.
            unsafe { self.columns(s, j, end - j) };
            j += STRIP * S::LANES;
        }
    }
}

impl ColumnSum {
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, j: usize, n: usize) {
        const AHEAD: usize = 8;
        let zero = s.splat(0.0);
        let mut total = [zero; STRIP];
        let mut row = 0;
        while row < self.rows {
            let mut block = [zero; STRIP];
            let end = (row + ROWS).min(self.rows);
            while row < end {
                let at = self.x.get().wrapping_add(row * self.width + j);
                prefetch(at.wrapping_add(AHEAD * self.width));
                prefetch(at.wrapping_add(AHEAD * self.width + 16));
                for (v, sum) in block.iter_mut().enumerate() {
                    let have = n.saturating_sub(v * S::LANES);
                    // SAFETY: as required of the caller.
                    let x = unsafe { load_up_to(s, at.wrapping_add(v * S::LANES), have) };
                    *sum = s.add(*sum, x);
                }
                row += 1;
            }
            for (total, block) in total.iter_mut().zip(block) {
                *total = s.add(*total, block);
            }
        }
        for (v, total) in total.iter().enumerate() {
            let have = n.saturating_sub(v * S::LANES);
            let at = self.out.get().wrapping_add(j + v * S::LANES);
            // SAFETY: cut to the columns that are left.
            unsafe { store_up_to(s, at, have, s.add(load_up_to(s, at, have), *total)) };
        }
    }
}

/// out\[i\] = sum of squares of block i, in f64. The order of the sum is the same on every path.
pub(super) struct SumSquares {
    pub x: Ptr<f32>,
    pub out: Ptr<f64>,
    pub len: usize,
}

impl Tiles for SumSquares {
    fn tiles(&self) -> usize {
        self.len.div_ceil(SQUARES_BLOCK)
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, _: S, tile: usize, _: Scratch) {
        const LANES: usize = 16;
        let start = tile * SQUARES_BLOCK;
        let len = SQUARES_BLOCK.min(self.len - start);
        // SAFETY: the block lies below `len`, and nobody writes it meanwhile.
        let block = unsafe { std::slice::from_raw_parts(self.x.get().add(start), len) };
        let mut acc = [0.0f64; LANES];
        let (chunks, rest) = block.as_chunks::<LANES>();
        for chunk in chunks {
            for (sum, &x) in acc.iter_mut().zip(chunk) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        for (sum, &x) in acc.iter_mut().zip(rest) {
            *sum += f64::from(x) * f64::from(x);
        }
        let mut width = LANES;
        while width > 1 {
            width /= 2;
            for i in 0..width {
                acc[i] += acc[i + width];
            }
        }
        // SAFETY: one element a block.
        unsafe { self.out.get().add(tile).write(acc[0]) };
    }
}
