//! Matrix products: packed panels, a register tile, fixed depth blocks, fused epilogues.
//!
//! One list of tasks a product: for each shared panel of B its packing tasks, then its computing tasks. Two shared buffers take
//! turns, so a thread that finds no computing task left packs the next panel instead of waiting.
#![allow(unsafe_code)]

mod blocking;
pub(super) mod kernel;
pub(super) mod pack;

use std::sync::atomic::{AtomicUsize, Ordering};

use self::blocking::{BLOCK_PANELS, Blocking, DEPTH, SHARED};
use self::pack::{Source, pack};
use super::activation::gelu;
use super::engine::{Scratch, Tiles};
use super::isa::{Isa, ROWS_MOST};
use super::pool::wait_for;
use super::ptr::Ptr;
use super::simd::{Simd, Tile, load_up_to, store_up_to};

/// What is done to C before it is stored for the last time.
#[derive(Clone, Copy)]
pub(super) enum Finish {
    Nothing,
    Bias(Ptr<f32>),
    /// (bias, pre): C = gelu(pre).
    BiasGelu(Ptr<f32>, Ptr<f32>),
    /// (bias, residual).
    BiasResidual(Ptr<f32>, Ptr<f32>),
}

/// A product and its operands, dense and row-major.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Ptr<f32>,
    pub b: Ptr<f32>,
    pub c: Ptr<f32>,
    /// A is stored \[k, m\].
    pub ta: bool,
    /// B is stored \[n, k\].
    pub tb: bool,
    pub accumulate: bool,
    pub finish: Finish,
}

/// Elements of the shared part of the workspace.
pub(super) const SHARED_LEN: usize = 2 * SHARED;

/// Elements of a worker's part of the workspace: one block of A on the path with the most rows, and a vector more.
pub(super) fn block_len() -> usize {
    BLOCK_PANELS * ROWS_MOST * DEPTH + 64
}

/// A product on its way.
pub(super) struct Gemm {
    product: Product,
    blocking: Blocking,
    nr: usize,
    shared: Ptr<f32>,
    /// Packing tasks done, of even and of odd panels.
    packed: [AtomicUsize; 2],
    /// Computing tasks done, of even and of odd panels.
    done: [AtomicUsize; 2],
}

impl Gemm {
    /// `shared` holds [`SHARED_LEN`] elements.
    pub(super) fn new(product: Product, isa: Isa, shared: Ptr<f32>) -> Gemm {
        let tile = isa.tile();
        Gemm {
            product,
            blocking: Blocking::new(product.m, product.n.max(1), product.k, tile),
            nr: tile.1,
            shared,
            packed: [const { AtomicUsize::new(0) }; 2],
            done: [const { AtomicUsize::new(0) }; 2],
        }
    }

    /// Packed panels of shared panel `panel`.
    fn buffer(&self, panel: usize) -> Ptr<f32> {
        self.shared.add(panel % 2 * SHARED)
    }
}

impl Tiles for Gemm {
    fn tiles(&self) -> usize {
        if self.product.m == 0 || self.product.n == 0 {
            return 0;
        }
        self.blocking.panels() * (self.blocking.packs(self.nr) + self.blocking.tasks())
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, index: usize, scratch: Scratch) {
        let b = &self.blocking;
        let (packs, tasks) = (b.packs(S::NR), b.tasks());
        let (panel, task) = (index / (packs + tasks), index % (packs + tasks));
        let (turn, parity) = (panel / 2, panel % 2);
        if task < packs {
            // The buffer is free when the panel before the last is done.
            wait_for(&self.done[parity], turn * tasks);
            // SAFETY: this task alone writes its part of the buffer.
            unsafe { self.pack(s, panel, task) };
            self.packed[parity].fetch_add(1, Ordering::Release);
        } else {
            wait_for(&self.packed[parity], (turn + 1) * packs);
            if panel % b.depth_panels > 0 {
                // C holds the sum over the panel before.
                wait_for(&self.done[1 - parity], panel.div_ceil(2) * tasks);
            }
            // SAFETY: the panel is packed, and this task alone writes its part of C.
            unsafe { self.compute(s, panel, task - packs, scratch) };
            self.done[parity].fetch_add(1, Ordering::Release);
        }
    }
}

impl Gemm {
    /// Packs one group of panels of B in one depth block.
    #[inline(always)]
    unsafe fn pack<S: Simd>(&self, s: S, panel: usize, task: usize) {
        let (p, b) = (&self.product, &self.blocking);
        let groups = b.pack_groups(S::NR);
        let (depth_in_panel, group) = (task / groups, task % groups);
        let first = (panel % b.depth_panels * b.panel_depths + depth_in_panel) * b.depth;
        let column = group * Blocking::pack_columns(S::NR);
        let j = panel / b.depth_panels * b.columns + column;
        if first >= p.k || j >= p.n {
            return;
        }
        let depth = (p.k - first).min(b.depth);
        let count = (p.n - j)
            .min(Blocking::pack_columns(S::NR))
            .min(b.columns - column);
        let (major, inner) = if p.tb { (p.k, 1) } else { (1, p.n) };
        let source = Source {
            at: p.b.get(),
            major,
            inner,
        };
        let to = self
            .buffer(panel)
            .add(depth_in_panel * b.depth * b.columns + column * depth);
        // SAFETY: the source lies inside B; the panels lie inside the buffer, which is as large as the blocking says.
        unsafe { pack(s, source.from(j, first), count, depth, S::NR, to.get()) };
    }

    /// Computes one task of C over all depth blocks of a shared panel.
    #[inline(always)]
    unsafe fn compute<S: Simd>(&self, s: S, panel: usize, task: usize, scratch: Scratch) {
        let (p, b) = (&self.product, &self.blocking);
        let (column_task, row_block) = (task / b.row_blocks, task % b.row_blocks);
        let tile_rows = p.m.div_ceil(S::MR);
        let i0 = tile_rows * row_block / b.row_blocks * S::MR;
        let i1 = (tile_rows * (row_block + 1) / b.row_blocks * S::MR).min(p.m);
        let start = panel / b.depth_panels * b.columns;
        let c0 = column_task * b.task_columns;
        let c1 = (c0 + b.task_columns)
            .min(b.columns)
            .min(p.n.saturating_sub(start));
        if c0 >= c1 {
            return;
        }
        let (major, inner) = if p.ta { (1, p.m) } else { (p.k, 1) };
        let source = Source {
            at: p.a.get(),
            major,
            inner,
        };
        let block = scratch.at.get();
        for q in 0..b.panel_depths {
            let index = panel % b.depth_panels * b.panel_depths + q;
            let first = index * b.depth;
            if index >= b.depths {
                break;
            }
            let depth = p.k.saturating_sub(first).min(b.depth);
            let packed = self.buffer(panel).add(q * b.depth * b.columns).get();
            // SAFETY: the block fits the scratch; packed panels and C's part are inside their buffers.
            unsafe {
                pack(s, source.from(i0, first), i1 - i0, depth, S::MR, block);
                let mut j = c0;
                while j < c1 {
                    let mut i = i0;
                    while i < i1 {
                        let t = Tile {
                            k: depth,
                            a: block.add((i - i0) * depth),
                            a_row: 1,
                            a_col: S::MR,
                            b: packed.add(j * depth),
                            b_row: S::NR,
                            from: std::ptr::null(),
                            c: std::ptr::null_mut(),
                            ldc: p.n,
                        };
                        let (rows, columns) = ((i1 - i).min(S::MR), (c1 - j).min(S::NR));
                        self.place(s, t, i * p.n + start + j, rows, columns, index);
                        if index + 1 == b.depths {
                            self.finish(s, i, start + j, rows, columns);
                        }
                        i += S::MR;
                    }
                    j += S::NR;
                }
            }
        }
    }

    /// Runs the tile whose first element is at `offset` of C; an edge goes through a full tile on the side, in the same arithmetic.
    #[inline(always)]
    unsafe fn place<S: Simd>(
        &self,
        s: S,
        t: Tile,
        offset: usize,
        rows: usize,
        columns: usize,
        index: usize,
    ) {
        let p = &self.product;
        let partial = match p.finish {
            Finish::BiasGelu(_, pre) => pre,
            _ => p.c,
        };
        let from = match p.finish {
            _ if index > 0 => partial.get(),
            Finish::BiasResidual(_, residual) => residual.get(),
            _ if p.accumulate => p.c.get(),
            _ => std::ptr::null_mut(),
        };
        // SAFETY: `rows` x `columns` from `offset` on are inside C, pre and residual.
        unsafe {
            let c = partial.get().add(offset);
            let from = if from.is_null() {
                from
            } else {
                from.add(offset)
            };
            if rows == S::MR && columns == S::NR {
                s.tile_packed(Tile { from, c, ..t });
                return;
            }
            let mut side = Side([0.0; SIDE]);
            let side = side.0.as_mut_ptr();
            if !from.is_null() {
                for i in 0..rows {
                    std::ptr::copy_nonoverlapping(
                        from.add(i * t.ldc),
                        side.add(i * S::NR),
                        columns,
                    );
                }
            }
            let side_from = if from.is_null() {
                std::ptr::null()
            } else {
                side.cast_const()
            };
            s.tile_packed(Tile {
                from: side_from,
                c: side,
                ldc: S::NR,
                ..t
            });
            for i in 0..rows {
                std::ptr::copy_nonoverlapping(side.add(i * S::NR), c.add(i * t.ldc), columns);
            }
        }
    }

    /// The epilogue on a tile that has just been stored.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, i: usize, j: usize, rows: usize, columns: usize) {
        let p = &self.product;
        let (bias, target) = match p.finish {
            Finish::Nothing => return,
            Finish::Bias(bias) | Finish::BiasResidual(bias, _) => (bias, p.c),
            Finish::BiasGelu(bias, pre) => (bias, pre),
        };
        let activate = matches!(p.finish, Finish::BiasGelu(..));
        // SAFETY: the tile is inside C and pre, its columns inside the bias.
        unsafe {
            let mut x = 0;
            while x < columns {
                let n = columns - x;
                let add = load_up_to(s, bias.get().add(j + x), n);
                for r in 0..rows {
                    let at = (i + r) * p.n + j + x;
                    let v = s.add(load_up_to(s, target.get().add(at), n), add);
                    store_up_to(s, target.get().add(at), n, v);
                    if activate {
                        store_up_to(s, p.c.get().add(at), n, gelu(s, v));
                    }
                }
                x += S::LANES;
            }
        }
    }
}

/// Elements of the largest tile (14 x 32).
const SIDE: usize = 448;

#[repr(align(64))]
struct Side([f32; SIDE]);
