//! Embedding look-up and its gradients. Gradients are cut by columns, so each destination row is summed in row order.
#![allow(unsafe_code)]

use super::engine::{Scratch, Tiles};
use super::ptr::Ptr;
use super::simd::{Simd, load_up_to, store_up_to};

/// Rows of a tile.
const TILE: usize = 32;
/// Columns of a strip.
const STRIP: usize = 64;

/// out\[r\] = table\[tokens\[r\]\] + positions\[at\[r\]\].
pub(super) struct Embed {
    pub tokens: Ptr<u32>,
    pub at: Ptr<u32>,
    pub table: Ptr<f32>,
    pub positions: Ptr<f32>,
    pub out: Ptr<f32>,
    pub rows: usize,
    pub width: usize,
}

impl Tiles for Embed {
    fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, _: Scratch) {
        for row in tile * TILE..(tile * TILE + TILE).min(self.rows) {
            // SAFETY: `row` is below `rows`; tokens and positions were checked against their tables.
            unsafe {
                let token = self.tokens.get().add(row).read() as usize;
                let at = self.at.get().add(row).read() as usize;
                let x = self.table.get().add(token * self.width);
                let y = self.positions.get().add(at * self.width);
                let out = self.out.get().add(row * self.width);
                let mut j = 0;
                while j < self.width {
                    let n = self.width - j;
                    let sum = s.add(load_up_to(s, x.add(j), n), load_up_to(s, y.add(j), n));
                    store_up_to(s, out.add(j), n, sum);
                    j += S::LANES;
                }
            }
        }
    }
}

/// to\[index\[r\]\] += from\[r\] in increasing r; a tile is a strip of columns. Rows of `from` are zeroed where `clear` says so.
pub(super) struct Scatter {
    pub index: Ptr<u32>,
    pub from: Ptr<f32>,
    pub to: Ptr<f32>,
    pub rows: usize,
    pub width: usize,
    pub clear: bool,
}

impl Tiles for Scatter {
    fn tiles(&self) -> usize {
        self.width.div_ceil(STRIP)
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, _: Scratch) {
        let end = (tile * STRIP + STRIP).min(self.width);
        for row in 0..self.rows {
            // SAFETY: `row` is below `rows`; indices were checked against the destination.
            unsafe {
                let to = self
                    .to
                    .get()
                    .add(self.index.get().add(row).read() as usize * self.width);
                let from = self.from.get().add(row * self.width);
                let mut j = tile * STRIP;
                while j < end {
                    let n = end - j;
                    let sum = s.add(load_up_to(s, to.add(j), n), load_up_to(s, from.add(j), n));
                    store_up_to(s, to.add(j), n, sum);
                    if self.clear {
                        store_up_to(s, from.add(j), n, s.splat(0.0));
                    }
                    j += S::LANES;
                }
            }
        }
    }
}
