//! Plain Rust, multiply then add: for any CPU, and the same bits on all of them.
#![allow(unsafe_code)]

use super::super::gemm::kernel::accumulate;
use super::{Rows, Simd, Tile};

/// LANES elements, tiles of MR rows.
#[derive(Clone, Copy)]
pub(in super::super) struct Plain<const LANES: usize, const MR: usize>;

/// The portable path.
pub(in super::super) type Portable = Plain<4, 6>;

/// The measures of AVX-512 in plain Rust: kernels are tested with them on CPUs that lack it.
#[cfg(test)]
pub(in super::super) type Wide = Plain<16, 14>;

#[inline(always)]
fn zip<const L: usize>(a: [f32; L], b: [f32; L], f: fn(f32, f32) -> f32) -> [f32; L] {
    let mut out = a;
    for (out, b) in out.iter_mut().zip(b) {
        *out = f(*out, b);
    }
    out
}

/// The lanes folded by halves.
#[inline(always)]
fn fold<const L: usize>(mut a: [f32; L], f: fn(f32, f32) -> f32) -> f32 {
    let mut width = L;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            a[i] = f(a[i], a[i + width]);
        }
    }
    a[0]
}

impl<const L: usize, const M: usize> Simd for Plain<L, M> {
    type V = [f32; L];
    const LANES: usize = L;
    const MR: usize = M;

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; L] {
        [x; L]
    }

    #[inline(always)]
    fn add(self, a: [f32; L], b: [f32; L]) -> [f32; L] {
        zip(a, b, |x, y| x + y)
    }

    #[inline(always)]
    fn sub(self, a: [f32; L], b: [f32; L]) -> [f32; L] {
        zip(a, b, |x, y| x - y)
    }

    #[inline(always)]
    fn mul(self, a: [f32; L], b: [f32; L]) -> [f32; L] {
        zip(a, b, |x, y| x * y)
    }

    #[inline(always)]
    fn div(self, a: [f32; L], b: [f32; L]) -> [f32; L] {
        zip(a, b, |x, y| x / y)
    }

    #[inline(always)]
    fn fma(self, a: [f32; L], b: [f32; L], c: [f32; L]) -> [f32; L] {
        self.add(self.mul(a, b), c)
    }

    #[inline(always)]
    fn max(self, a: [f32; L], b: [f32; L]) -> [f32; L] {
        zip(a, b, |x, y| if x > y { x } else { y })
    }

    #[inline(always)]
    fn min(self, a: [f32; L], b: [f32; L]) -> [f32; L] {
        zip(a, b, |x, y| if x < y { x } else { y })
    }

    #[inline(always)]
    fn sqrt(self, a: [f32; L]) -> [f32; L] {
        a.map(f32::sqrt)
    }

    #[inline(always)]
    fn shift_to_exponent(self, a: [f32; L]) -> [f32; L] {
        a.map(|x| f32::from_bits(x.to_bits() << 23))
    }

    #[inline(always)]
    fn sum(self, a: [f32; L]) -> f32 {
        fold(a, |x, y| x + y)
    }

    #[inline(always)]
    fn largest(self, a: [f32; L]) -> f32 {
        fold(a, |x, y| if x > y { x } else { y })
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> [f32; L] {
        // SAFETY: as required of the caller.
        unsafe { p.cast::<[f32; L]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: [f32; L]) {
        // SAFETY: as required of the caller.
        unsafe { p.cast::<[f32; L]>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> [f32; L] {
        let mut v = [0.0; L];
        for (i, x) in v.iter_mut().enumerate().take(n) {
            // SAFETY: i < n.
            *x = unsafe { p.add(i).read() };
        }
        v
    }

    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize, v: [f32; L]) {
        for (i, x) in v.iter().enumerate().take(n) {
            // SAFETY: i < n.
            unsafe { p.add(i).write(*x) };
        }
    }

    #[inline(always)]
    unsafe fn transpose(self, rows: Rows, dst: *mut f32, step: usize, width: usize) {
        let Rows {
            at: src,
            stride,
            count,
            depth,
            ahead: _,
        } = rows;
        for j in 0..depth {
            for i in 0..width.min(L) {
                // SAFETY: as required of the caller.
                unsafe {
                    let x = if i < count {
                        src.add(i * stride + j).read()
                    } else {
                        0.0
                    };
                    dst.add(j * step + i).write(x);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(self, t: Tile) {
        // SAFETY: as required of the caller.
        unsafe { tile::<L, M>(t) }
    }

    #[inline(always)]
    unsafe fn tile_packed(self, t: Tile) {
        // SAFETY: as required of the caller.
        unsafe { tile_packed::<L, M>(t) }
    }
}

#[inline(never)]
unsafe fn tile<const L: usize, const M: usize>(t: Tile) {
    // SAFETY: as required of the caller.
    unsafe { accumulate::<Plain<L, M>, M>(Plain, t) }
}

#[inline(never)]
unsafe fn tile_packed<const L: usize, const M: usize>(t: Tile) {
    let packed = Tile {
        a_row: 1,
        a_col: M,
        b_row: 2 * L,
        ..t
    };
    // SAFETY: as required of the caller.
    unsafe { accumulate::<Plain<L, M>, M>(Plain, packed) }
}
