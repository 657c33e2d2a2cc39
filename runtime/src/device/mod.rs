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
    #[error(
        "value {index} is not in the program: its operations and values do not belong together"
    )]
    NoValue { index: u32 },
    #[error(
        "value `{name}` ({len} elements at {offset} of {region:?}) is used with {need} elements, and the region holds {holds}: the program does not fit the reserved memory"
    )]
    Misplaced {
        name: String,
        region: Region,
        offset: usize,
        len: usize,
        need: usize,
        holds: usize,
    },
    #[error("`{name}` holds {value} in row {row}, beyond the last index {last}", last = .limit.wrapping_sub(1))]
    Index {
        name: String,
        value: u32,
        row: usize,
        limit: usize,
    },
    #[error("the device cannot carry out {what}")]
    Unsupported { what: String },
    #[error("an operation was launched before memory was reserved")]
    NotReserved,
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
