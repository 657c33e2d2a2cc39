//! Cross entropy over the vocabulary: row statistics, gradient in place, sum.
#![allow(unsafe_code)]

use super::engine::{Scratch, Tiles};
use super::math::{exp_below, ln};
use super::ptr::Ptr;
use super::simd::{Simd, load_up_to, prefetch, store_up_to};

/// stats \[rows, 3\] = (maximum, sum of exp(logit - maximum), logit of the target). A tile is a row.
pub(super) struct RowStats {
    pub logits: Ptr<f32>,
    pub targets: Ptr<u32>,
    pub stats: Ptr<f32>,
    pub rows: usize,
    pub vocab: usize,
}

impl Tiles for RowStats {
    fn tiles(&self) -> usize {
        self.rows
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, row: usize, _: Scratch) {
        // SAFETY: `row` is below `rows`; the target was checked against `vocab`.
        unsafe {
            let x = self.logits.get().add(row * self.vocab);
            let (mut max, mut sum) = (LOWEST, 0.0);
            let mut j = 0;
            while j < self.vocab {
                let n = (self.vocab - j).min(BLOCK);
                let top = maximum(s, x.add(j), n);
                let top = if top > max { top } else { max };
                let new = exp_sum(s, x.add(j), n, top);
                let mut fade = [0.0];
                s.store_part(fade.as_mut_ptr(), 1, exp_below(s, s.splat(max - top)));
                sum = sum * fade[0] + new;
                max = top;
                j += BLOCK;
            }
            let out = self.stats.get().add(3 * row);
            // Comparisons pass over NaN; sums do not.
            out.write(if sum.is_nan() { f32::NAN } else { max });
            out.add(1).write(sum);
            out.add(2)
                .write(x.add(self.targets.get().add(row).read() as usize).read());
        }
    }
}

/// Under every logit, and finite: a block of -infinity alone leaves no NaN.
const LOWEST: f32 = -1e30;

/// Elements of a row whose maximum and sum are taken at a time, while they are in the first cache.
const BLOCK: usize = 2048;

/// Largest of `n` > 0 elements.
#[inline(always)]
unsafe fn maximum<S: Simd>(s: S, x: *const f32, n: usize) -> f32 {
    // SAFETY: all loads are cut to `n`.
    unsafe {
        let mut acc = [s.splat(f32::NEG_INFINITY); 4];
        let mut j = 0;
        while j + 4 * S::LANES <= n {
            for (v, max) in acc.iter_mut().enumerate() {
                *max = s.max(*max, s.load(x.add(j + v * S::LANES)));
            }
            j += 4 * S::LANES;
        }
        let mut largest = s.largest(s.max(s.max(acc[0], acc[1]), s.max(acc[2], acc[3])));
        while j < n {
            let v = x.add(j).read();
            largest = if v > largest { v } else { largest };
            j += 1;
        }
        largest
    }
}

/// Sum of exp(x - max) over `n` elements; asks for the block after these.
#[inline(always)]
unsafe fn exp_sum<S: Simd>(s: S, x: *const f32, n: usize, max: f32) -> f32 {
    // SAFETY: all loads are cut to `n`.
    unsafe {
        let m = s.splat(max);
        let mut acc = [s.splat(0.0); 4];
        let mut j = 0;
        while j + 4 * S::LANES <= n {
            for v in 0..4 * S::LANES / 16 {
                prefetch(x.wrapping_add(j + BLOCK + 16 * v));
            }
            for (v, sum) in acc.iter_mut().enumerate() {
                *sum = s.add(
                    *sum,
                    exp_below(s, s.sub(s.load(x.add(j + v * S::LANES)), m)),
                );
            }
            j += 4 * S::LANES;
        }
        while j < n {
            let have = (n - j).min(S::LANES);
            let mut ends = [0.0; 16];
            s.store_part(
                ends.as_mut_ptr(),
                have,
                exp_below(s, s.sub(s.load_part(x.add(j), have), m)),
            );
            acc[0] = s.add(acc[0], s.load(ends.as_ptr()));
            j += S::LANES;
        }
        s.sum(s.add(s.add(acc[0], acc[1]), s.add(acc[2], acc[3])))
    }
}

/// losses\[r\] = m + ln(sum) - target; where `scale` is not 0, logits = scale (softmax - onehot). A tile is a row.
pub(super) struct LossGrad {
    pub logits: Ptr<f32>,
    pub targets: Ptr<u32>,
    pub stats: Ptr<f32>,
    pub losses: Ptr<f32>,
    pub rows: usize,
    pub vocab: usize,
    pub scale: f32,
}

impl Tiles for LossGrad {
    fn tiles(&self) -> usize {
        self.rows
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, row: usize, _: Scratch) {
        // SAFETY: `row` is below `rows`; columns are cut to `vocab`; the target was checked against it.
        unsafe {
            let stats = self.stats.get().add(3 * row);
            let (max, sum, target) = (stats.read(), stats.add(1).read(), stats.add(2).read());
            self.losses.get().add(row).write(max + ln(sum) - target);
            if self.scale == 0.0 {
                return;
            }
            let x = self.logits.get().add(row * self.vocab);
            let (m, factor) = (s.splat(max), s.splat(self.scale / sum));
            let mut j = 0;
            while j < self.vocab {
                let n = self.vocab - j;
                let e = exp_below(s, s.sub(load_up_to(s, x.add(j), n), m));
                store_up_to(s, x.add(j), n, s.mul(e, factor));
                j += S::LANES;
            }
            let hit = x.add(self.targets.get().add(row).read() as usize);
            hit.write(hit.read() - self.scale);
        }
    }
}

/// out\[0\] += sum of the losses in f64, in row order.
pub(super) struct LossSum {
    pub losses: Ptr<f32>,
    pub out: Ptr<f64>,
    pub rows: usize,
}

impl Tiles for LossSum {
    fn tiles(&self) -> usize {
        1
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, _: S, _: usize, _: Scratch) {
        // SAFETY: rows are below `rows`; `out` is one element.
        unsafe {
            let mut sum = 0.0;
            for row in 0..self.rows {
                sum += f64::from(self.losses.get().add(row).read());
            }
            *self.out.get() += sum;
        }
    }
}
