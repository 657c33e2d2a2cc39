//! How a product is cut: a function of its shape and the arithmetic path, never of caches or threads.
//!
//! Only the cut of the inner dimension decides bits: each element of C is summed in the order of the depth blocks.

/// Depth of a block: a panel of B of this depth stays in the first cache, a block of A in the second.
pub(super) const DEPTH: usize = 384;
/// Panels of A in a block.
pub(super) const BLOCK_PANELS: usize = 16;
/// Elements of one of the two shared buffers for packed B (4 MiB).
pub(super) const SHARED: usize = 1 << 20;
/// Columns below which A would be packed too often for what it is used.
const NARROW: usize = 384;
/// Most columns a task works through with one packed block of A.
const WIDE: usize = 1536;
/// Tasks wanted along rows and columns, where the shape allows.
const TASKS: usize = 4;
/// Columns below which packing A costs more than another task gains.
const NARROW_TASK: usize = 96;
/// Panels of B that one packing task writes.
const PACK_PANELS: usize = 8;

/// The cut of C \[m, n\] = A \[m, k\] B \[k, n\].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocking {
    /// Depth of each block but perhaps the last.
    pub depth: usize,
    /// Depth blocks in all.
    pub depths: usize,
    /// Depth blocks of one shared panel.
    pub panel_depths: usize,
    /// Shared panels along the depth.
    pub depth_panels: usize,
    /// Columns of one shared panel, a multiple of NR.
    pub columns: usize,
    /// Shared panels along n.
    pub column_panels: usize,
    /// Blocks of rows; they differ by at most one tile row.
    pub row_blocks: usize,
    /// Columns of one task, a multiple of NR.
    pub task_columns: usize,
    /// Tasks along the columns of a shared panel.
    pub column_tasks: usize,
}

impl Blocking {
    pub(super) fn new(m: usize, n: usize, k: usize, (mr, nr): (usize, usize)) -> Blocking {
        let depths = k.div_ceil(DEPTH).max(1);
        let depth = k.div_ceil(depths).max(1).next_multiple_of(8);
        let depths = k.div_ceil(depth).max(1);
        let whole_depth = SHARED / (depth * depths) / nr * nr;
        let whole_columns = n.next_multiple_of(nr);
        let (panel_depths, columns) = if whole_depth >= whole_columns.min(NARROW) {
            (depths, even(whole_columns, whole_depth, nr))
        } else {
            let columns = even(
                whole_columns,
                (SHARED / depth).min(2 * NARROW) / nr * nr,
                nr,
            );
            let fit = SHARED / (columns * depth);
            (depths.div_ceil(depths.div_ceil(fit)), columns)
        };
        let tile_rows = m.div_ceil(mr).max(1);
        let mut row_blocks = tile_rows.div_ceil(BLOCK_PANELS);
        if row_blocks > 1 {
            row_blocks = row_blocks.next_multiple_of(2).min(tile_rows);
        }
        let column_panels = n.div_ceil(columns);
        // Each piece of the columns packs A again, so they are cut only where rows alone give few tasks.
        let pieces = (TASKS / (row_blocks * column_panels)).min(columns / NARROW_TASK);
        let pieces = pieces.max(columns.div_ceil(WIDE));
        let task_columns = columns.div_ceil(pieces).next_multiple_of(nr);
        Blocking {
            depth,
            depths,
            panel_depths,
            depth_panels: depths.div_ceil(panel_depths),
            columns,
            column_panels,
            row_blocks,
            task_columns,
            column_tasks: columns.div_ceil(task_columns),
        }
    }

    /// Shared panels in all; those along the depth of the same columns follow one another.
    pub(super) fn panels(&self) -> usize {
        self.column_panels * self.depth_panels
    }

    /// Packing tasks of a shared panel: (depth block, group of panels).
    pub(super) fn packs(&self, nr: usize) -> usize {
        self.panel_depths * self.pack_groups(nr)
    }

    /// Groups of panels along the columns of a shared panel.
    pub(super) fn pack_groups(&self, nr: usize) -> usize {
        self.columns.div_ceil(Self::pack_columns(nr))
    }

    /// Columns of one packing task.
    pub(super) fn pack_columns(nr: usize) -> usize {
        PACK_PANELS * nr
    }

    /// Computing tasks of a shared panel.
    pub(super) fn tasks(&self) -> usize {
        self.row_blocks * self.column_tasks
    }
}

/// The even multiple of `unit` that cuts `len` into as many pieces as `most` would.
fn even(len: usize, most: usize, unit: usize) -> usize {
    let pieces = len.div_ceil(most.max(unit)).max(1);
    len.div_ceil(pieces).next_multiple_of(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn blocks_cover_the_product_and_fit_the_buffers(
            m in 0usize..60_000, n in 1usize..60_000, k in 0usize..60_000,
            tile in prop::sample::select(vec![(6, 16), (14, 32), (6, 8)]),
        ) {
            let b = Blocking::new(m, n, k, tile);
            let nr = tile.1;
            prop_assert!(b.depth <= DEPTH && b.depth * b.depths >= k);
            prop_assert!(k == 0 || b.depth * (b.depths - 1) < k);
            prop_assert!(b.panel_depths * b.depth_panels >= b.depths);
            prop_assert!(b.columns.is_multiple_of(nr) && b.columns * b.column_panels >= n);
            prop_assert!(b.columns * b.depth * b.panel_depths <= SHARED);
            prop_assert!(b.task_columns.is_multiple_of(nr) && b.task_columns * b.column_tasks >= b.columns);
            let tile_rows = m.div_ceil(tile.0).max(1);
            prop_assert!(b.row_blocks <= tile_rows && tile_rows.div_ceil(b.row_blocks) <= BLOCK_PANELS);
        }
    }
}
