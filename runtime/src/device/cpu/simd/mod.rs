//! Vectors of one instruction set behind one trait: kernels are written once and compiled for each path.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod portable;

/// Proof that the CPU has an instruction set, and its operations on vectors of f32.
///
/// A value exists only where detection succeeded, so arithmetic is safe; access to memory is not.
/// Everything that takes a `Simd` is `#[inline(always)]`: it must end up inside the function that enables the features.
pub(super) trait Simd: Copy + Send + Sync + 'static {
    /// A vector of [`Simd::LANES`] f32.
    type V: Copy;
    const LANES: usize;
    /// Rows of a tile of the matrix kernel.
    const MR: usize;
    /// Columns of a tile of the matrix kernel: two vectors.
    const NR: usize = 2 * Self::LANES;

    fn splat(self, x: f32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a b + c, rounded once where the path has fused multiply-add, else twice.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn sqrt(self, a: Self::V) -> Self::V;
    /// The bits of each lane moved up by 23 places: a small number in the lowest bits becomes an exponent.
    fn shift_to_exponent(self, a: Self::V) -> Self::V;
    /// Sum of the lanes, by halves.
    fn sum(self, a: Self::V) -> f32;
    /// Largest lane.
    fn largest(self, a: Self::V) -> f32;

    /// # Safety
    /// `p` points to LANES f32, any alignment.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// # Safety
    /// `p` points to LANES f32, any alignment.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    /// The first `n` <= LANES elements, then zeros; touches no other memory.
    /// # Safety
    /// `p` points to `n` f32.
    unsafe fn load_part(self, p: *const f32, n: usize) -> Self::V;
    /// Stores the first `n` <= LANES lanes; touches no other memory.
    /// # Safety
    /// `p` points to `n` f32.
    unsafe fn store_part(self, p: *mut f32, n: usize, v: Self::V);

    /// dst\[j step + i\] = rows\[i, j\] for i < `rows.count` <= LANES and j < `rows.depth`; zeros for `rows.count` <= i < `width`.
    /// May write up to LANES elements a step while the next step overwrites them; the last step writes `width` at most.
    /// # Safety
    /// The rows are valid; `dst` holds (depth - 1) step + min(width, LANES) elements.
    unsafe fn transpose(self, rows: Rows, dst: *mut f32, step: usize, width: usize);

    /// c\[i, j\] = from\[i, j\] + sum over p of a\[i, p\] b\[p, j\] on a full tile of MR x NR; a null `from` counts as zeros.
    /// # Safety
    /// All addresses of the tile are valid; `from` and `c` have the row stride of [`Tile::ldc`].
    unsafe fn tile(self, t: Tile);
    /// [`Simd::tile`] for packed panels: `a` with strides (1, MR), `b` with stride NR.
    /// # Safety
    /// As for [`Simd::tile`].
    unsafe fn tile_packed(self, t: Tile);
}

/// Rows as they lie in memory, strides in elements.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub at: *const f32,
    /// Distance of neighbouring rows.
    pub stride: usize,
    pub count: usize,
    /// Elements of a row.
    pub depth: usize,
    /// Distance of the rows that will be wanted next, whose cache lines are asked for; 0 asks for none.
    pub ahead: usize,
}

/// Operands of one tile. Strides in elements.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub k: usize,
    pub a: *const f32,
    /// Distance of a's rows.
    pub a_row: usize,
    /// Distance of a's columns.
    pub a_col: usize,
    pub b: *const f32,
    /// Distance of b's rows; columns are adjacent.
    pub b_row: usize,
    pub from: *const f32,
    pub c: *mut f32,
    pub ldc: usize,
}

/// [`Simd::load`] of min(LANES, n) elements.
/// # Safety
/// `p` points to that many f32.
#[inline(always)]
pub(super) unsafe fn load_up_to<S: Simd>(s: S, p: *const f32, n: usize) -> S::V {
    // SAFETY: as required of the caller.
    unsafe {
        if n >= S::LANES {
            s.load(p)
        } else {
            s.load_part(p, n)
        }
    }
}

/// [`Simd::store`] of min(LANES, n) elements.
/// # Safety
/// `p` points to that many f32.
#[inline(always)]
pub(super) unsafe fn store_up_to<S: Simd>(s: S, p: *mut f32, n: usize, v: S::V) {
    // SAFETY: as required of the caller.
    unsafe {
        if n >= S::LANES {
            s.store(p, v);
        } else {
            s.store_part(p, n, v);
        }
    }
}

/// Asks for the cache line of `p`; any address is allowed.
#[inline(always)]
pub(super) fn prefetch(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that never faults; SSE is part of x86_64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// As [`prefetch`], into the second cache.
#[inline(always)]
pub(super) fn prefetch_second(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that never faults; SSE is part of x86_64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}
