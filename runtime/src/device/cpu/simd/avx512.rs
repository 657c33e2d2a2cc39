//! AVX-512F: 16 lanes, tiles of 14 x 32 (28 accumulators of 32 registers). The twin of `avx2`.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::super::gemm::kernel::accumulate;
use super::{Rows, Simd, Tile, prefetch};

#[derive(Clone, Copy)]
pub(in super::super) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The CPU has AVX-512F.
    pub(in super::super) unsafe fn new() -> Self {
        Avx512(())
    }
}

/// Bits below `n` are ones.
#[inline(always)]
fn mask(n: usize) -> __mmask16 {
    if n >= 16 { 0xffff } else { (1 << n) - 1 }
}

macro_rules! lanewise {
    ($($name:ident($($arg:ident),*) => $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: __m512),*) -> __m512 {
            // SAFETY: the value proves that the CPU has AVX-512F.
            unsafe { $body }
        }
    )*};
}

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const MR: usize = 14;

    lanewise! {
        add(a, b) => _mm512_add_ps(a, b);
        sub(a, b) => _mm512_sub_ps(a, b);
        mul(a, b) => _mm512_mul_ps(a, b);
        div(a, b) => _mm512_div_ps(a, b);
        fma(a, b, c) => _mm512_fmadd_ps(a, b, c);
        max(a, b) => _mm512_max_ps(a, b);
        min(a, b) => _mm512_min_ps(a, b);
        sqrt(a) => _mm512_sqrt_ps(a);
        shift_to_exponent(a) => _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(a)));
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: the value proves AVX-512F.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        // SAFETY: the value proves AVX-512F.
        unsafe { _mm512_reduce_add_ps(a) }
    }

    #[inline(always)]
    fn largest(self, a: __m512) -> f32 {
        // SAFETY: the value proves AVX-512F.
        unsafe { _mm512_reduce_max_ps(a) }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: as required of the caller.
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: as required of the caller.
        unsafe { _mm512_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> __m512 {
        // SAFETY: masked lanes are not accessed; the others are the caller's.
        unsafe { _mm512_maskz_loadu_ps(mask(n), p) }
    }

    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize, v: __m512) {
        // SAFETY: masked lanes are not accessed; the others are the caller's.
        unsafe { _mm512_mask_storeu_ps(p, mask(n), v) }
    }

    #[inline(always)]
    unsafe fn transpose(self, rows: Rows, dst: *mut f32, step: usize, width: usize) {
        let Rows {
            at: src,
            stride,
            count,
            depth,
            ahead,
        } = rows;
        // SAFETY: as required of the caller; rows and columns outside of the source are not read.
        unsafe {
            let mut at = 0;
            while at < depth {
                let cols = (depth - at).min(16);
                let mut r = [_mm512_setzero_ps(); 16];
                for (i, row) in r.iter_mut().enumerate() {
                    if i < count {
                        let p = src.add(i * stride + at);
                        if ahead > 0 {
                            prefetch(p.wrapping_add(ahead));
                        }
                        *row = self.load_part(p, cols);
                    }
                }
                let r = transposed(r);
                if at + 16 < depth {
                    for (i, row) in r.iter().enumerate() {
                        _mm512_storeu_ps(dst.add((at + i) * step), *row);
                    }
                } else {
                    for (i, row) in r.iter().enumerate().take(cols) {
                        self.store_part(dst.add((at + i) * step), width.min(16), *row);
                    }
                }
                at += 16;
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(self, t: Tile) {
        // SAFETY: as required of the caller; the value proves the features.
        unsafe { tile(self, t) }
    }

    #[inline(always)]
    unsafe fn tile_packed(self, t: Tile) {
        // SAFETY: as required of the caller; the value proves the features.
        unsafe { tile_packed(self, t) }
    }
}

/// Transpose of 16 x 16: within 128-bit lanes first, then of the lanes.
#[inline(always)]
fn transposed(r: [__m512; 16]) -> [__m512; 16] {
    // SAFETY: only `Avx512` calls this.
    unsafe {
        let mut t = r;
        for i in 0..8 {
            t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
        }
        let mut u = t;
        for i in 0..4 {
            u[4 * i] = _mm512_shuffle_ps::<0x44>(t[4 * i], t[4 * i + 2]);
            u[4 * i + 1] = _mm512_shuffle_ps::<0xee>(t[4 * i], t[4 * i + 2]);
            u[4 * i + 2] = _mm512_shuffle_ps::<0x44>(t[4 * i + 1], t[4 * i + 3]);
            u[4 * i + 3] = _mm512_shuffle_ps::<0xee>(t[4 * i + 1], t[4 * i + 3]);
        }
        // u[4 g + c] holds, in 128-bit lane l, column 4 l + c of rows 4 g .. 4 g + 4.
        let mut v = u;
        for c in 0..4 {
            let even_low = _mm512_shuffle_f32x4::<0x88>(u[c], u[4 + c]);
            let odd_low = _mm512_shuffle_f32x4::<0xdd>(u[c], u[4 + c]);
            let even_high = _mm512_shuffle_f32x4::<0x88>(u[8 + c], u[12 + c]);
            let odd_high = _mm512_shuffle_f32x4::<0xdd>(u[8 + c], u[12 + c]);
            v[c] = _mm512_shuffle_f32x4::<0x88>(even_low, even_high);
            v[4 + c] = _mm512_shuffle_f32x4::<0x88>(odd_low, odd_high);
            v[8 + c] = _mm512_shuffle_f32x4::<0xdd>(even_low, even_high);
            v[12 + c] = _mm512_shuffle_f32x4::<0xdd>(odd_low, odd_high);
        }
        v
    }
}

#[target_feature(enable = "avx512f")]
#[inline(never)]
unsafe fn tile(s: Avx512, t: Tile) {
    // SAFETY: as required of the caller.
    unsafe { accumulate::<Avx512, { Avx512::MR }>(s, t) }
}

#[target_feature(enable = "avx512f")]
#[inline(never)]
unsafe fn tile_packed(s: Avx512, t: Tile) {
    let packed = Tile {
        a_row: 1,
        a_col: Avx512::MR,
        b_row: Avx512::NR,
        ..t
    };
    // SAFETY: as required of the caller.
    unsafe { accumulate::<Avx512, { Avx512::MR }>(s, packed) }
}
