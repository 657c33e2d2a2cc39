//! Plain Rust in 4 lanes, multiply then add: for any CPU, and the same bits on all of them.
#![allow(unsafe_code)]

use super::super::gemm::kernel::accumulate;
use super::{Rows, Simd, Tile};

#[derive(Clone, Copy)]
pub(in super::super) struct Portable;

type V = [f32; 4];

#[inline(always)]
fn zip(a: V, b: V, f: fn(f32, f32) -> f32) -> V {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

impl Simd for Portable {
    type V = V;
    const LANES: usize = 4;
    const MR: usize = 6;

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; 4]
    }

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x + y)
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x - y)
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x * y)
    }

    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x / y)
    }

    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        self.add(self.mul(a, b), c)
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        zip(a, b, |x, y| if x > y { x } else { y })
    }

    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        zip(a, b, |x, y| if x < y { x } else { y })
    }

    #[inline(always)]
    fn sqrt(self, a: V) -> V {
        a.map(f32::sqrt)
    }

    #[inline(always)]
    fn shift_to_exponent(self, a: V) -> V {
        a.map(|x| f32::from_bits(x.to_bits() << 23))
    }

    #[inline(always)]
    fn sum(self, a: V) -> f32 {
        (a[0] + a[2]) + (a[1] + a[3])
    }

    #[inline(always)]
    fn largest(self, a: V) -> f32 {
        let h = self.max(a, [a[2], a[3], a[2], a[3]]);
        if h[0] > h[1] { h[0] } else { h[1] }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> V {
        // SAFETY: as required of the caller.
        unsafe { p.cast::<V>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: V) {
        // SAFETY: as required of the caller.
        unsafe { p.cast::<V>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> V {
        let mut v = [0.0; 4];
        for (i, x) in v.iter_mut().enumerate().take(n) {
            // SAFETY: i < n.
            *x = unsafe { p.add(i).read() };
        }
        v
    }

    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize, v: V) {
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
            for i in 0..width.min(4) {
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
        unsafe { tile(t) }
    }

    #[inline(always)]
    unsafe fn tile_packed(self, t: Tile) {
        // SAFETY: as required of the caller.
        unsafe { tile_packed(t) }
    }
}

#[inline(never)]
unsafe fn tile(t: Tile) {
    // SAFETY: as required of the caller.
    unsafe { accumulate::<Portable, { Portable::MR }>(Portable, t) }
}

#[inline(never)]
unsafe fn tile_packed(t: Tile) {
    let packed = Tile {
        a_row: 1,
        a_col: Portable::MR,
        b_row: Portable::NR,
        ..t
    };
    // SAFETY: as required of the caller.
    unsafe { accumulate::<Portable, { Portable::MR }>(Portable, packed) }
}
