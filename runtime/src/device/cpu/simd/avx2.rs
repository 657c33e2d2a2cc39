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
        // SAFETY: as required of the caller.
        unsafe {
            // The counts of whole panels get loops of their own, without a branch for each row.
            match rows.count {
                8 => transpose::<8>(self, rows, dst, step, width),
                6 => transpose::<6>(self, rows, dst, step, width),
                _ => transpose_end(self, rows, 0, dst, step, width),
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

/// [`Simd::transpose`] of COUNT rows.
/// # Safety
/// As for [`Simd::transpose`], with COUNT = `rows.count`.
#[inline(always)]
unsafe fn transpose<const COUNT: usize>(
    s: Avx2,
    rows: Rows,
    dst: *mut f32,
    step: usize,
    width: usize,
) {
    // SAFETY: as required of the caller; rows beyond COUNT are not read.
    unsafe {
        let mut at = 0;
        while at + 8 < rows.depth {
            let src = rows.at.add(at);
            if rows.ahead > 0 && at % 16 == 0 {
                for i in 0..COUNT {
                    prefetch(src.wrapping_add(i * rows.stride + rows.ahead));
                }
            }
            let out = dst.add(at * step);
            for half in 0..2 {
                let mut t = [_mm256_setzero_ps(); 4];
                for (i, t) in t.iter_mut().enumerate() {
                    let low = src.wrapping_add(i * rows.stride + 4 * half);
                    let high = src.wrapping_add((i + 4) * rows.stride + 4 * half);
                    if i < COUNT {
                        *t = _mm256_castps128_ps256(_mm_loadu_ps(low));
                    }
                    if i + 4 < COUNT {
                        *t = _mm256_insertf128_ps::<1>(*t, _mm_loadu_ps(high));
                    } else if i < COUNT {
                        *t = _mm256_insertf128_ps::<1>(*t, _mm_setzero_ps());
                    }
                }
                for (i, v) in transposed(t).iter().enumerate() {
                    _mm256_storeu_ps(out.add((4 * half + i) * step), *v);
                }
            }
            at += 8;
        }
        transpose_end(s, rows, at, dst, step, width);
    }
}

/// [`Simd::transpose`] of any count, from column `at` on.
/// # Safety
/// As for [`Simd::transpose`].
#[inline(always)]
unsafe fn transpose_end(
    s: Avx2,
    rows: Rows,
    mut at: usize,
    dst: *mut f32,
    step: usize,
    width: usize,
) {
    // SAFETY: as required of the caller; rows and columns outside of the source are not read.
    unsafe {
        while at < rows.depth {
            let cols = (rows.depth - at).min(4);
            let mut side = [0.0f32; 32];
            for i in 0..rows.count {
                let src = rows.at.add(i * rows.stride + at);
                src.copy_to_nonoverlapping(side.as_mut_ptr().add(4 * i), cols);
            }
            let t = [0, 1, 2, 3].map(|i| {
                let low = _mm_loadu_ps(side.as_ptr().add(4 * i));
                let high = _mm_loadu_ps(side.as_ptr().add(4 * i + 16));
                _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
            });
            for (i, v) in transposed(t).iter().enumerate().take(cols) {
                s.store_part(dst.add((at + i) * step), width.min(8), *v);
            }
            at += 4;
        }
    }
}

/// Four columns of eight rows, rows i and i + 4 in the halves of vector i: only shuffles within halves are needed.
#[inline(always)]
fn transposed(t: [__m256; 4]) -> [__m256; 4] {
    // SAFETY: only `Avx2` calls this.
    unsafe {
        let (a, b) = (
            _mm256_unpacklo_ps(t[0], t[1]),
            _mm256_unpackhi_ps(t[0], t[1]),
        );
        let (c, d) = (
            _mm256_unpacklo_ps(t[2], t[3]),
            _mm256_unpackhi_ps(t[2], t[3]),
        );
        [
            _mm256_shuffle_ps::<0x44>(a, c),
            _mm256_shuffle_ps::<0xee>(a, c),
            _mm256_shuffle_ps::<0x44>(b, d),
            _mm256_shuffle_ps::<0xee>(b, d),
        ]
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
