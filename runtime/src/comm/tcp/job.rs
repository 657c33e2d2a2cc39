//! What moves in a collective: which bytes go to which peer, where those that come are put, when they are summed.
#![allow(unsafe_code)]

use super::super::reduce::sum_into_all;
use super::super::segment::Segment;
use super::super::{MAX_RANKS, slice};
use super::link::Link;
use crate::device::Real;
use crate::sys::region::Memory;
use std::io;
use std::ops::Range;

/// The part of a collective that is its own. Ranges of bytes are by peer; `at` counts those sent to or got from it.
pub(super) trait Job {
    /// Bytes this rank sends to `peer`.
    fn sends(&self, peer: usize) -> usize;
    /// Bytes it gets from `peer`.
    fn gets(&self, peer: usize) -> usize;
    /// Bytes that may be sent to `peer` now, in one piece.
    fn outgoing(&self, peer: usize, at: usize) -> &[u8];
    /// Room for bytes that may come from `peer` now, in one piece.
    fn incoming(&mut self, peer: usize, at: usize) -> &mut [u8];
    /// Works on what has come; whether there was anything to do.
    fn advance(&mut self, links: &[Link]) -> bool;
    /// Whether that work is done.
    fn is_done(&self) -> bool;
}

/// A barrier: nothing moves.
pub(super) struct Nothing;

impl Job for Nothing {
    fn sends(&self, _: usize) -> usize {
        0
    }

    fn gets(&self, _: usize) -> usize {
        0
    }

    fn outgoing(&self, _: usize, _: usize) -> &[u8] {
        &[]
    }

    fn incoming(&mut self, _: usize, _: usize) -> &mut [u8] {
        &mut []
    }

    fn advance(&mut self, _: &[Link]) -> bool {
        false
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// All-gather: this rank's bytes to everybody, everybody's into one buffer.
pub(super) struct Gather<'a> {
    mine: &'a [u8],
    out: &'a mut [u8],
}

impl<'a> Gather<'a> {
    /// `out` has room for `mine` of every rank; that of this one is filled.
    pub(super) fn new(rank: usize, mine: &'a [f64], out: &'a mut [f64]) -> Self {
        out[rank * mine.len()..][..mine.len()].copy_from_slice(mine);
        // SAFETY: any f64 is eight bytes, of weaker alignment; the borrow goes on in the result.
        let mine = unsafe { std::slice::from_raw_parts(mine.as_ptr().cast(), size_of_val(mine)) };
        // SAFETY: as above, and any eight bytes are an f64.
        let out = unsafe {
            std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), size_of_val(out))
        };
        Gather { mine, out }
    }
}

impl Job for Gather<'_> {
    fn sends(&self, _: usize) -> usize {
        self.mine.len()
    }

    fn gets(&self, _: usize) -> usize {
        self.mine.len()
    }

    fn outgoing(&self, _: usize, at: usize) -> &[u8] {
        &self.mine[at..]
    }

    fn incoming(&mut self, peer: usize, at: usize) -> &mut [u8] {
        let len = self.mine.len();
        &mut self.out[peer * len..][at..len]
    }

    fn advance(&mut self, _: &[Link]) -> bool {
        false
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// All-reduce: each rank gets all contributions to its own slice, sums them in rank order a chunk at a time, and sends
/// the sums to all. To a peer go first this rank's elements of the peer's slice, then the sums of its own. Between
/// ranks of one node nothing is sent: who sums reads and writes the others' memory, which they leave alone from their
/// call until all are done.
pub(super) struct Reduce<'a> {
    values: &'a Values,
    chunk: usize,
    real: Real,
    rank: usize,
    size: usize,
    /// Bytes of `grads` that are reduced.
    start: usize,
    len: usize,
    /// Bytes of this rank's slice summed.
    summed: usize,
}

/// Bytes of staging memory for all ranks together, unless chunks would be tiny.
const STAGING: usize = 4 << 20;
const CHUNKS: Range<usize> = 16 << 10..512 << 10;

/// Bytes of a chunk in a group of `size`.
fn chunk(size: usize) -> usize {
    let even = STAGING / size.max(1);
    even.clamp(CHUNKS.start, CHUNKS.end).next_multiple_of(4096)
}

/// The memory of a rank's values.
#[derive(Clone)]
pub(super) struct Values {
    /// This rank's elements.
    pub(super) grads: Memory,
    /// A chunk of this rank's slice from each rank.
    staging: Memory,
    /// Memory that the ranks of this node share, and the first of them.
    node: Option<(Segment, usize)>,
}

impl Values {
    /// Of a rank of `size` with `bytes` of elements; `node` has this rank's place in it.
    pub(super) fn new(
        size: usize,
        bytes: usize,
        node: Option<(Segment, usize, usize)>,
    ) -> io::Result<Values> {
        Ok(Values {
            grads: match &node {
                None => Memory::private(bytes)?,
                Some((segment, _, place)) => segment.grads(*place),
            },
            staging: Memory::private(size * chunk(size))?,
            node: node.map(|(segment, first, _)| (segment, first)),
        })
    }

    /// The elements of `rank`, if it is on this node.
    fn beside(&self, rank: usize) -> Option<Memory> {
        let (segment, first) = self.node.as_ref()?;
        let place = rank.checked_sub(*first)?;
        (place < segment.size()).then(|| segment.grads(place))
    }

    fn is_beside(&self, rank: usize) -> bool {
        let beside =
            |(segment, first): &(Segment, usize)| (*first..first + segment.size()).contains(&rank);
        self.node.as_ref().is_some_and(beside)
    }
}

impl<'a> Reduce<'a> {
    /// Elements `offset..offset + len`, which there are (the caller checks).
    pub(super) fn new(
        (rank, size): (usize, usize),
        values: &'a Values,
        real: Real,
        offset: usize,
        len: usize,
    ) -> Self {
        Reduce {
            values,
            chunk: chunk(size),
            real,
            rank,
            size,
            start: offset * real.bytes(),
            len,
            summed: 0,
        }
    }

    /// The bytes of `grads` that `rank` sums.
    fn slice(&self, rank: usize) -> Range<usize> {
        let Range { start, end } = slice(self.len, rank, self.size);
        let bytes = self.real.bytes();
        self.start + start * bytes..self.start + end * bytes
    }

    /// Bytes of the chunk that is being collected.
    fn current(&self) -> usize {
        self.chunk.min(self.slice(self.rank).len() - self.summed)
    }

    fn sum<T: Copy + Default + std::ops::AddAssign>(&mut self, bytes: usize) {
        let at = self.slice(self.rank).start + self.summed;
        // On the stack: collectives allocate nothing.
        let mut buffers = [std::ptr::null_mut::<T>(); MAX_RANKS];
        for (rank, buffer) in buffers.iter_mut().enumerate().take(self.size) {
            let part = if rank == self.rank {
                self.values.grads.part(at, bytes)
            } else if let Some(theirs) = self.values.beside(rank) {
                theirs.part(at, bytes)
            } else {
                self.values.staging.part(rank * self.chunk, bytes)
            };
            *buffer = part.as_ptr().cast();
        }
        // SAFETY: the parts are inside their memories and apart, and aligned: all memories are page-aligned, chunks are
        // pages, slices and offsets whole elements. From the calls of all ranks of the node to the last word that all is
        // done, only the owner of a slice touches it, and elements of other slices only their rank's compute thread.
        unsafe { sum_into_all(&buffers[..self.size], bytes / size_of::<T>()) };
        self.summed += bytes;
    }
}

impl Job for Reduce<'_> {
    fn sends(&self, peer: usize) -> usize {
        if self.values.is_beside(peer) {
            return 0;
        }
        self.slice(peer).len() + self.slice(self.rank).len()
    }

    fn gets(&self, peer: usize) -> usize {
        self.sends(peer)
    }

    fn outgoing(&self, peer: usize, at: usize) -> &[u8] {
        let theirs = self.slice(peer);
        let (from, to) = if at < theirs.len() {
            (theirs.start + at, theirs.end)
        } else {
            let own = self.slice(self.rank).start;
            (own + at - theirs.len(), own + self.summed)
        };
        let part = self.values.grads.part(from, to - from);
        // SAFETY: inside the memory, which only this rank's compute thread touches during a collective; no other slice
        // over these bytes is alive, as the job is borrowed.
        unsafe { std::slice::from_raw_parts(part.as_ptr(), part.len()) }
    }

    fn incoming(&mut self, peer: usize, at: usize) -> &mut [u8] {
        let own = self.slice(self.rank).len();
        let part = if at < own {
            let filled = at - self.summed;
            let room = self.current() - filled;
            self.values.staging.part(peer * self.chunk + filled, room)
        } else {
            // The peer sends sums when it has all of this rank's elements of its slice: they are no longer needed.
            let theirs = self.slice(peer);
            let from = theirs.start + at - own;
            self.values.grads.part(from, theirs.end - from)
        };
        // SAFETY: as in `outgoing`; the job is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(part.as_ptr(), part.len()) }
    }

    fn advance(&mut self, links: &[Link]) -> bool {
        let bytes = self.current();
        let until = self.summed + bytes;
        let lacks = |link: &Link| match self.values.is_beside(link.rank) {
            true => !link.met,
            false => link.got < until,
        };
        if bytes == 0 || links.iter().any(lacks) {
            return false;
        }
        match self.real {
            Real::F32 => self.sum::<f32>(bytes),
            Real::F64 => self.sum::<f64>(bytes),
        }
        true
    }

    fn is_done(&self) -> bool {
        self.current() == 0
    }
}
