//! LayerNorm and its gradient.
#![allow(unsafe_code)]

use super::engine::{Scratch, Tiles};
use super::ptr::Ptr;
use super::reduce::{ROWS, strip_columns};
use super::simd::{Simd, load_up_to, store_up_to};

/// Rows of a tile.
const TILE: usize = 8;

/// out = (x - mean) rstd gain + bias; stats \[rows, 2\] = (mean, rstd).
pub(super) struct Norm {
    pub x: Ptr<f32>,
    pub gain: Ptr<f32>,
    pub bias: Ptr<f32>,
    pub out: Ptr<f32>,
    pub stats: Ptr<f32>,
    pub rows: usize,
    pub width: usize,
    pub eps: f32,
}

impl Tiles for Norm {
    fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, _: Scratch) {
        for row in tile * TILE..(tile * TILE + TILE).min(self.rows) {
            // SAFETY: `row` is below `rows`; columns are cut to `width`.
            unsafe {
                let x = self.x.get().add(row * self.width);
                let out = self.out.get().add(row * self.width);
                let mean = total(s, x, self.width) / self.width as f32;
                let var = squares(s, x, self.width, mean) / self.width as f32;
                let rstd = 1.0 / (var + self.eps).sqrt();
                self.stats.get().add(2 * row).write(mean);
                self.stats.get().add(2 * row + 1).write(rstd);
                let (m, r) = (s.splat(mean), s.splat(rstd));
                let mut j = 0;
                while j < self.width {
                    let n = self.width - j;
                    let gain = load_up_to(s, self.gain.get().add(j), n);
                    let bias = load_up_to(s, self.bias.get().add(j), n);
                    let v = s.mul(s.sub(load_up_to(s, x.add(j), n), m), r);
                    store_up_to(s, out.add(j), n, s.fma(v, gain, bias));
                    j += S::LANES;
                }
            }
        }
    }
}

/// Sum of `n` elements, in two vectors by turns.
#[inline(always)]
unsafe fn total<S: Simd>(s: S, x: *const f32, n: usize) -> f32 {
    let mut acc = [s.splat(0.0); 2];
    let (mut j, mut turn) = (0, 0);
    while j < n {
        // SAFETY: cut to `n`.
        acc[turn] = s.add(acc[turn], unsafe { load_up_to(s, x.add(j), n - j) });
        j += S::LANES;
        turn ^= 1;
    }
    s.sum(s.add(acc[0], acc[1]))
}

/// Sum of (x - mean)^2 over `n` elements.
#[inline(always)]
unsafe fn squares<S: Simd>(s: S, x: *const f32, n: usize, mean: f32) -> f32 {
    let mut acc = s.splat(0.0);
    let m = s.splat(mean);
    let mut j = 0;
    while j + S::LANES <= n {
        // SAFETY: a whole vector lies below `n`.
        let d = s.sub(unsafe { s.load(x.add(j)) }, m);
        acc = s.fma(d, d, acc);
        j += S::LANES;
    }
    let mut rest = s.splat(0.0);
    if j < n {
        // The lanes beyond the row must count 0, not mean^2.
        let mut ends = [0.0; 16];
        // SAFETY: at most LANES <= 16 elements below `n`.
        unsafe {
            let d = s.sub(s.load_part(x.add(j), n - j), m);
            s.store_part(ends.as_mut_ptr(), n - j, d);
            rest = s.load(ends.as_ptr());
        }
    }
    s.sum(s.fma(rest, rest, acc))
}

/// dx (+)= rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gain.
pub(super) struct NormGrad {
    pub x: Ptr<f32>,
    pub gain: Ptr<f32>,
    pub stats: Ptr<f32>,
    pub dy: Ptr<f32>,
    pub dx: Ptr<f32>,
    pub rows: usize,
    pub width: usize,
    pub add: bool,
}

impl Tiles for NormGrad {
    fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, _: Scratch) {
        for row in tile * TILE..(tile * TILE + TILE).min(self.rows) {
            // SAFETY: `row` is below `rows`; columns are cut to `width`.
            unsafe { self.row(s, row) };
        }
    }
}

impl NormGrad {
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, row: usize) {
        // SAFETY: as required of the caller.
        unsafe {
            let at = row * self.width;
            let (x, dy, dx) = (
                self.x.get().add(at),
                self.dy.get().add(at),
                self.dx.get().add(at),
            );
            let rstd = self.stats.get().add(2 * row + 1).read();
            let (m, r) = (s.splat(self.stats.get().add(2 * row).read()), s.splat(rstd));
            let (mut sum, mut dot) = (s.splat(0.0), s.splat(0.0));
            let mut j = 0;
            while j < self.width {
                let n = self.width - j;
                let hat = s.mul(s.sub(load_up_to(s, x.add(j), n), m), r);
                // Beyond the row g is 0, whatever xhat is there.
                let g = s.mul(
                    load_up_to(s, dy.add(j), n),
                    load_up_to(s, self.gain.get().add(j), n),
                );
                sum = s.add(sum, g);
                dot = s.fma(g, hat, dot);
                j += S::LANES;
            }
            let width = self.width as f32;
            let (mean, slope) = (s.splat(s.sum(sum) / width), s.splat(s.sum(dot) / width));
            let mut j = 0;
            while j < self.width {
                let n = self.width - j;
                let hat = s.mul(s.sub(load_up_to(s, x.add(j), n), m), r);
                let g = s.mul(
                    load_up_to(s, dy.add(j), n),
                    load_up_to(s, self.gain.get().add(j), n),
                );
                let mut d = s.mul(r, s.sub(s.sub(g, mean), s.mul(hat, slope)));
                if self.add {
                    d = s.add(d, load_up_to(s, dx.add(j), n));
                }
                store_up_to(s, dx.add(j), n, d);
                j += S::LANES;
            }
        }
    }
}

/// dgain += sum over rows of dy xhat; dbias += sum over rows of dy. A tile is a strip of columns, rows summed in fixed blocks.
pub(super) struct NormParameters {
    pub x: Ptr<f32>,
    pub stats: Ptr<f32>,
    pub dy: Ptr<f32>,
    pub dgain: Ptr<f32>,
    pub dbias: Ptr<f32>,
    pub rows: usize,
    pub width: usize,
}

/// Vectors of a strip.
const STRIP: usize = 2;

impl Tiles for NormParameters {
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

impl NormParameters {
    /// Up to STRIP vectors of columns from `j` on, `n` at most.
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, j: usize, n: usize) {
        let zero = s.splat(0.0);
        let (mut gains, mut biases) = ([zero; STRIP], [zero; STRIP]);
        let mut row = 0;
        while row < self.rows {
            let (mut gain, mut bias) = ([zero; STRIP], [zero; STRIP]);
            let end = (row + ROWS).min(self.rows);
            while row < end {
                // SAFETY: as required of the caller.
                unsafe {
                    let m = s.splat(self.stats.get().add(2 * row).read());
                    let r = s.splat(self.stats.get().add(2 * row + 1).read());
                    for v in 0..STRIP {
                        let have = n.saturating_sub(v * S::LANES);
                        let at = row * self.width + j + v * S::LANES;
                        let dy = load_up_to(s, self.dy.get().wrapping_add(at), have);
                        let x = load_up_to(s, self.x.get().wrapping_add(at), have);
                        gain[v] = s.fma(dy, s.mul(s.sub(x, m), r), gain[v]);
                        bias[v] = s.add(bias[v], dy);
                    }
                }
                row += 1;
            }
            for v in 0..STRIP {
                gains[v] = s.add(gains[v], gain[v]);
                biases[v] = s.add(biases[v], bias[v]);
            }
        }
        for v in 0..STRIP {
            let have = n.saturating_sub(v * S::LANES);
            for (out, sum) in [(self.dgain, gains[v]), (self.dbias, biases[v])] {
                let at = out.get().wrapping_add(j + v * S::LANES);
                // SAFETY: cut to the columns that are left.
                unsafe { store_up_to(s, at, have, s.add(load_up_to(s, at, have), sum)) };
            }
        }
    }
}
