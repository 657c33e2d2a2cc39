//! Runs operations that are cut into tiles: the pool, the arithmetic path and the scratch of each worker.
#![allow(unsafe_code)]

use std::io;

use super::attention;
use super::gemm::{self, Gemm, Product};
use super::isa::{Body, Isa};
use super::pool::{Pool, Waiting};
use super::ptr::Ptr;
use super::simd::Simd;
use crate::sys::region::Memory;

/// An operation as a fixed list of tiles.
pub(super) trait Tiles: Sync {
    /// Number of tiles, from the shape alone.
    fn tiles(&self) -> usize;

    /// Carries out one tile. Implementations are `#[inline(always)]`.
    /// # Safety
    /// The operation's ranges are valid, and each tile is run once.
    unsafe fn tile<S: Simd>(&self, s: S, tile: usize, scratch: Scratch);
}

/// Scratch memory of one worker: [`scratch_len`] elements, 64-byte aligned.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    pub at: Ptr<f32>,
}

/// Elements of a worker's scratch, a multiple of a cache line; the same on every path, so that a plan holds on any machine.
fn scratch_len() -> usize {
    gemm::block_len()
        .max(attention::scratch_len())
        .next_multiple_of(1024)
}

/// Bytes of all scratch memory.
pub(super) fn workspace_bytes(threads: usize) -> usize {
    (gemm::SHARED_LEN + threads.max(1) * scratch_len()) * size_of::<f32>()
}

/// Pool, path and scratch.
pub(super) struct Engine {
    pool: Pool,
    isa: Isa,
    workspace: Memory,
}

impl Engine {
    /// The path must be available.
    pub(super) fn new(threads: usize, isa: Isa, waiting: Waiting) -> io::Result<Engine> {
        assert!(isa.available(), "this CPU has no {}", isa.name());
        Ok(Engine {
            pool: Pool::new(threads.max(1), waiting),
            isa,
            workspace: Memory::private(workspace_bytes(threads))?,
        })
    }

    pub(super) fn isa(&self) -> Isa {
        self.isa
    }

    pub(super) fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Carries out all tiles.
    /// # Safety
    /// The operation's ranges are valid.
    pub(super) unsafe fn run(&mut self, op: &impl Tiles) {
        let (isa, len) = (self.isa, scratch_len());
        let first = Ptr::new(self.workspace.as_ptr().cast::<f32>()).add(gemm::SHARED_LEN);
        self.pool.run(op.tiles(), &|worker, tile| {
            let scratch = Scratch {
                at: first.add(worker * len),
            };
            // SAFETY: `new` checked the path; ranges are the caller's; the pool runs each tile once and each worker has its scratch.
            unsafe { isa.run(One { op, tile, scratch }) };
        });
    }

    /// Carries out a matrix product.
    /// # Safety
    /// The operands' ranges are valid.
    pub(super) unsafe fn product(&mut self, product: Product) {
        let shared = Ptr::new(self.workspace.as_ptr().cast::<f32>());
        // SAFETY: as required of the caller; the shared part belongs to products.
        unsafe { self.run(&Gemm::new(product, self.isa, shared)) };
    }
}

/// One tile as the body of a path.
struct One<'a, T> {
    op: &'a T,
    tile: usize,
    scratch: Scratch,
}

impl<T: Tiles> Body for One<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        // SAFETY: as required of the caller.
        unsafe { self.op.tile(s, self.tile, self.scratch) }
    }
}
