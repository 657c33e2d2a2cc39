//! Devices: memory reserved once, operations carried out in order.

pub mod cpu;
pub mod reference;

pub use crate::blueprint::memory::{Real, Sizes};

use crate::blueprint::program::{Op, Program, Region};
use crate::sys::region::Memory;

/// Which copy of the slotted regions an operation works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    pub slot: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("cannot reserve {bytes} bytes for {region:?}")]
    OutOfMemory {
        region: Region,
        bytes: usize,
        #[source]
        source: std::io::Error,
    },
}

/// A device carries out [`Op`]s on its regions. Nothing is allocated after [`Device::reserve`].
pub trait Device {
    /// Type of the real regions.
    fn real(&self) -> Real;

    /// Name of the arithmetic path, such as `avx2`; results are equal to the bit only on the same one.
    fn isa(&self) -> &'static str;

    /// Reserves all regions, zeroed. `grads`, where given, is the memory for [`Region::Grads`] (a part of a shared segment).
    fn reserve(&mut self, sizes: &Sizes, grads: Option<Memory>) -> Result<(), DeviceError>;

    /// Carries out one operation of `program`.
    fn launch(&mut self, program: &Program, op: &Op, frame: Frame) -> Result<(), DeviceError>;

    /// Copies bytes of a region out; `offset` in bytes (slot included for slotted regions).
    fn read(&self, region: Region, offset: usize, out: &mut [u8]);

    /// Copies bytes into a region.
    fn write(&mut self, region: Region, offset: usize, data: &[u8]);
}
