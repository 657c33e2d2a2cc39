//! The fast f32 device for CPU cores.
//!
//! [`arena`] turns values into checked addresses, [`launch`] operations into kernels, [`engine`] runs kernels tile by tile on a
//! [`pool`] of threads; kernels are written once over [`simd`] and compiled for each path of [`isa`]. What a tile computes depends
//! on shapes and path alone, so results are equal to the bit for any number of threads.
#![allow(unsafe_code)]

mod activation;
mod adamw;
mod arena;
mod attention;
mod decode;
mod embed;
mod engine;
mod gemm;
mod isa;
mod launch;
mod loss;
mod math;
mod norm;
pub mod peak;
mod pool;
mod ptr;
mod reduce;
mod simd;

pub use self::isa::Isa;
pub use self::pool::Waiting;

use std::io;

use self::arena::Arena;
use self::engine::Engine;
use self::launch::Launch;
use super::{Device, DeviceError, Frame, Real, Sizes};
use crate::blueprint::program::{Op, Program, Region};
use crate::sys::region::Memory;

/// A device on the cores of this machine. Results depend on the arithmetic path, never on the number of threads.
pub struct CpuDevice {
    engine: Engine,
    arena: Option<Arena>,
}

impl CpuDevice {
    /// Largest head dimension that attention takes; larger ones are refused at launch.
    pub const HEAD_DIM_MAX: usize = attention::HEAD_DIM_MAX;

    /// On `threads` threads, the caller's included, with the fastest path of this CPU.
    pub fn new(threads: usize) -> Result<CpuDevice, DeviceError> {
        Self::with_isa(threads, Isa::detect())
    }

    /// On a path of choice, for comparisons and for checkpoints of another machine.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<CpuDevice, DeviceError> {
        Self::with(threads, isa, Waiting::Spin)
    }

    /// As [`CpuDevice::with_isa`]; `waiting` says whether the threads have cores of their own.
    pub fn with(threads: usize, isa: Isa, waiting: Waiting) -> Result<CpuDevice, DeviceError> {
        if !isa.available() {
            let what = format!(
                "the {} path on this CPU, which lacks its instructions",
                isa.name()
            );
            return Err(DeviceError::Unsupported { what });
        }
        let engine =
            Engine::new(threads, isa, waiting).map_err(|source| out_of_memory(threads, source))?;
        Ok(CpuDevice {
            engine,
            arena: None,
        })
    }

    /// Bytes that a device of `threads` threads takes beside its regions, for good: packed operands and scratch. The same on every path.
    pub fn workspace_bytes(threads: usize) -> usize {
        engine::workspace_bytes(threads)
    }

    /// Threads at work, the caller's included.
    pub fn threads(&self) -> usize {
        self.engine.threads()
    }

    fn arena(&self) -> &Arena {
        self.arena
            .as_ref()
            .expect("regions are reserved before they are used")
    }
}

fn out_of_memory(threads: usize, source: io::Error) -> DeviceError {
    DeviceError::OutOfMemory {
        region: Region::Work,
        bytes: CpuDevice::workspace_bytes(threads),
        source,
    }
}

impl Device for CpuDevice {
    fn real(&self) -> Real {
        Real::F32
    }

    fn isa(&self) -> &'static str {
        self.engine.isa().name()
    }

    fn reserve(&mut self, sizes: &Sizes, grads: Option<Memory>) -> Result<(), DeviceError> {
        self.arena = Some(Arena::new(sizes, grads)?);
        Ok(())
    }

    fn launch(&mut self, program: &Program, op: &Op, frame: Frame) -> Result<(), DeviceError> {
        let arena = self.arena.as_ref().ok_or(DeviceError::NotReserved)?;
        let engine = &mut self.engine;
        Launch {
            engine,
            arena,
            program,
            frame,
        }
        .op(op)
    }

    fn read(&self, region: Region, offset: usize, out: &mut [u8]) {
        let from = self.arena().bytes(region, offset, out.len());
        // SAFETY: the range was checked, and no kernel is running.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    fn write(&mut self, region: Region, offset: usize, data: &[u8]) {
        let to = self.arena().bytes(region, offset, data.len());
        // SAFETY: the range was checked, and no kernel is running.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }
}

#[cfg(test)]
mod tests;
