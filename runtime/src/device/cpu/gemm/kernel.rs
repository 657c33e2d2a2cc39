//! The tile of the matrix kernel: MR x NR accumulators in registers over the whole depth of a block.
#![allow(unsafe_code)]

use super::super::simd::{Simd, Tile, prefetch};

/// [`Simd::tile`], written once; `MR` is `S::MR` as a constant the arrays can use.
/// # Safety
/// As for [`Simd::tile`].
#[inline(always)]
pub(in super::super) unsafe fn accumulate<S: Simd, const MR: usize>(s: S, t: Tile) {
    // SAFETY: as required of the caller.
    unsafe {
        let mut acc = [[s.splat(0.0); 2]; MR];
        for i in 0..MR {
            prefetch(t.c.wrapping_add(i * t.ldc));
            prefetch(t.c.wrapping_add(i * t.ldc + S::NR - 1));
        }
        let (mut a, mut b) = (t.a, t.b);
        for _ in 0..t.k {
            let b0 = s.load(b);
            let b1 = s.load(b.add(S::LANES));
            for (i, row) in acc.iter_mut().enumerate() {
                let x = s.splat(*a.add(i * t.a_row));
                row[0] = s.fma(x, b0, row[0]);
                row[1] = s.fma(x, b1, row[1]);
            }
            a = a.wrapping_add(t.a_col);
            b = b.wrapping_add(t.b_row);
        }
        if !t.from.is_null() {
            for (i, row) in acc.iter_mut().enumerate() {
                let p = t.from.add(i * t.ldc);
                row[0] = s.add(row[0], s.load(p));
                row[1] = s.add(row[1], s.load(p.add(S::LANES)));
            }
        }
        for (i, row) in acc.iter().enumerate() {
            let p = t.c.add(i * t.ldc);
            s.store(p, row[0]);
            s.store(p.add(S::LANES), row[1]);
        }
    }
}
