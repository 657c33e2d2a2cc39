//! AVX2 with FMA: 8 lanes, tiles of 6 x 16 (12 accumulators of 16 registers).
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::super::gemm::kernel::accumulate;
use super::{Rows, Simd, Tile, prefetch};

#[derive(Clone, Copy)]
pub(in super::super) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The CPU has AVX2 and FMA.
    pub(in super::super) unsafe fn new() -> Self {
        Avx2(())
    }
}

/// Lanes below `n` are all ones.
#[inline(always)]
fn mask(n: usize) -> __m256i {
    // SAFETY: AVX2 is present wherever an `Avx2` exists, and only its methods call this.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes)
    }
}

macro_rules! lanewise {
    ($($name:ident($($arg:ident),*) => $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: __m256),*) -> __m256 {
            // SAFETY: the value proves that the CPU has AVX2 and FMA.
            unsafe { $body }
        }
    )*};
}

impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const MR: usize = 6;

    lanewise! {
        add(a, b) => _mm256_add_ps(a, b);
        sub(a, b) => _mm256_sub_ps(a, b);
        mul(a, b) => _mm256_mul_ps(a, b);
        div(a, b) => _mm256_div_ps(a, b);
        fma(a, b, c) => _mm256_fmadd_ps(a, b, c);
        max(a, b) => _mm256_max_ps(a, b);
        min(a, b) => _mm256_min_ps(a, b);
        sqrt(a) => _mm256_sqrt_ps(a);
        shift_to_exponent(a) => _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(a)));
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: the value proves AVX2.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        // SAFETY: the value proves AVX2.
        unsafe {
            let h = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let q = _mm_add_ps(h, _mm_movehl_ps(h, h));
            _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)))
        }
    }

    #[inline(always)]
    fn largest(self, a: __m256) -> f32 {
        // SAFETY: the value proves AVX2.
        unsafe {
            let h = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let q = _mm_max_ps(h, _mm_movehl_ps(h, h));
            _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)))
        }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: as required of the caller.
        unsafe { _mm256_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: as required of the caller.
        unsafe { _mm256_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> __m256 {
        // SAFETY: masked lanes are not accessed; the others are the caller's.
        unsafe { _mm256_maskload_ps(p, mask(n)) }
    }

    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize, v: __m256) {
        // SAFETY: masked lanes are not accessed; the others are the caller's.
        unsafe { _mm256_maskstore_ps(p, mask(n), v) }
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
                let cols = (depth - at).min(8);
                let mut r = [_mm256_setzero_ps(); 8];
                for (i, row) in r.iter_mut().enumerate() {
                    if i < count {
                        let p = src.add(i * stride + at);
                        if ahead > 0 && at % 16 == 0 {
                            prefetch(p.wrapping_add(ahead));
                        }
                        *row = if cols == 8 {
                            _mm256_loadu_ps(p)
                        } else {
                            self.load_part(p, cols)
                        };
                    }
                }
                let r = transposed(r);
                if at + 8 < depth {
                    for (i, row) in r.iter().enumerate() {
                        _mm256_storeu_ps(dst.add((at + i) * step), *row);
                    }
                } else {
                    for (i, row) in r.iter().enumerate().take(cols) {
                        self.store_part(dst.add((at + i) * step), width.min(8), *row);
                    }
                }
                at += 8;
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

/// Transpose of 8 x 8.
#[inline(always)]
fn transposed(r: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: only `Avx2` calls this.
    unsafe {
        let mut t = r;
        for i in 0..4 {
            t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
        }
        let mut u = t;
        for i in 0..2 {
            u[4 * i] = _mm256_shuffle_ps::<0x44>(t[4 * i], t[4 * i + 2]);
            u[4 * i + 1] = _mm256_shuffle_ps::<0xee>(t[4 * i], t[4 * i + 2]);
            u[4 * i + 2] = _mm256_shuffle_ps::<0x44>(t[4 * i + 1], t[4 * i + 3]);
            u[4 * i + 3] = _mm256_shuffle_ps::<0xee>(t[4 * i + 1], t[4 * i + 3]);
        }
        let mut v = u;
        for i in 0..4 {
            v[i] = _mm256_permute2f128_ps::<0x20>(u[i], u[i + 4]);
            v[i + 4] = _mm256_permute2f128_ps::<0x31>(u[i], u[i + 4]);
        }
        v
    }
}

#[target_feature(enable = "avx2,fma")]
#[inline(never)]
unsafe fn tile(s: Avx2, t: Tile) {
    // SAFETY: as required of the caller.
    unsafe { accumulate::<Avx2, { Avx2::MR }>(s, t) }
}

#[target_feature(enable = "avx2,fma")]
#[inline(never)]
unsafe fn tile_packed(s: Avx2, t: Tile) {
    let packed = Tile {
        a_row: 1,
        a_col: Avx2::MR,
        b_row: Avx2::NR,
        ..t
    };
    // SAFETY: as required of the caller.
    unsafe { accumulate::<Avx2, { Avx2::MR }>(s, packed) }
}
