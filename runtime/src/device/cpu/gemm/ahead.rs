//! Asks for the next block of A while the present one is used: its rows lie far apart, where the hardware does not look.

use super::super::simd::prefetch_far;
use super::pack::Source;

/// Elements of a cache line.
const LINE: usize = 64 / size_of::<f32>();

/// Cache lines of a block still to ask for.
pub(super) struct Ahead {
    source: Source,
    /// Distance of neighbouring runs of adjacent elements.
    stride: usize,
    /// Length of a run.
    run: usize,
    runs: usize,
    at: usize,
    /// Lines to ask for at a time.
    pace: usize,
}

impl Ahead {
    /// `count` x `depth` from `source` on, spread over `steps` calls of [`Ahead::step`].
    pub(super) fn new(source: Source, count: usize, depth: usize, steps: usize) -> Ahead {
        let (stride, run, runs) = if source.major == 1 {
            (source.inner, count, depth)
        } else {
            (source.major, depth, count)
        };
        Ahead {
            source,
            stride,
            run,
            runs,
            at: 0,
            pace: (run.div_ceil(LINE) * runs).div_ceil(steps.max(1)),
        }
    }

    /// Asks for some more lines.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        for _ in 0..self.pace {
            if self.runs == 0 {
                return;
            }
            prefetch_far(self.source.at.wrapping_add(self.at));
            self.at += LINE;
            if self.at >= self.run {
                self.at = 0;
                self.runs -= 1;
                self.source.at = self.source.at.wrapping_add(self.stride);
            }
        }
    }
}
