//! Packing: copies a block of a matrix into panels that the tile kernel reads front to back.
#![allow(unsafe_code)]

use super::super::simd::{Rows, Simd, load_up_to, prefetch, store_up_to};

/// Rows of `major` (rows of A, columns of B) by `depth` of the product's inner dimension, as they lie in memory.
#[derive(Clone, Copy)]
pub(in super::super) struct Source {
    pub at: *const f32,
    /// Distance of neighbours along the major dimension, or 1.
    pub major: usize,
    /// Distance of neighbours along the inner dimension; one of the two is 1.
    pub inner: usize,
}

impl Source {
    /// The source from major index `i` and inner index `p` on.
    pub(super) fn from(self, i: usize, p: usize) -> Source {
        Source {
            at: self.at.wrapping_add(i * self.major + p * self.inner),
            ..self
        }
    }
}

/// Packs `count` major rows in panels of `width`: panel q at dst + q depth width, holding \[p\]\[i\]. Rows missing in the last panel are zeros.
/// # Safety
/// `src` holds `count` x `depth`; `dst` holds whole panels and one vector more.
#[inline(always)]
pub(in super::super) unsafe fn pack<S: Simd>(
    s: S,
    src: Source,
    count: usize,
    depth: usize,
    width: usize,
    dst: *mut f32,
) {
    // SAFETY: as required of the caller.
    unsafe {
        if src.major == 1 {
            pack_adjacent(s, src, count, depth, width, dst);
        } else {
            let mut i = 0;
            while i < count {
                let panel = dst.add(i * depth);
                let mut group = 0;
                while group < width {
                    let rows = Rows {
                        at: src.at.wrapping_add((i + group) * src.major),
                        stride: src.major,
                        count: (count - i).saturating_sub(group).min(S::LANES),
                        depth,
                        ahead: if i + width < count {
                            width * src.major
                        } else {
                            0
                        },
                    };
                    s.transpose(rows, panel.add(group), width, width - group);
                    group += S::LANES;
                }
                i += width;
            }
        }
    }
}

/// [`pack`] where major neighbours are adjacent: row by row, all panels of a row.
#[inline(always)]
unsafe fn pack_adjacent<S: Simd>(
    s: S,
    src: Source,
    count: usize,
    depth: usize,
    width: usize,
    dst: *mut f32,
) {
    // Far enough for memory latency, near enough to stay in the first cache.
    const AHEAD: usize = 8;
    let line = 64 / size_of::<f32>();
    // SAFETY: as required of the caller; loads are cut to what the source holds, and a vector that sticks out of its
    // step of the panel is overwritten by the next step, the last one being cut.
    unsafe {
        for p in 0..depth {
            let row = src.at.wrapping_add(p * src.inner);
            let mut i = 0;
            while i < count {
                prefetch(row.wrapping_add(AHEAD * src.inner + i));
                i += line;
            }
            let mut i = 0;
            while i < count {
                let out = dst.add(i * depth + p * width);
                let have = (count - i).min(width);
                let mut g = 0;
                while g < width {
                    let v = if g < have {
                        load_up_to(
                            s,
                            row.add(i + g),
                            if have == width && i + g + S::LANES <= count {
                                S::LANES
                            } else {
                                have - g
                            },
                        )
                    } else {
                        s.splat(0.0)
                    };
                    if p + 1 < depth {
                        s.store(out.add(g), v);
                    } else {
                        store_up_to(s, out.add(g), width - g, v);
                    }
                    g += S::LANES;
                }
                i += width;
            }
        }
    }
}
