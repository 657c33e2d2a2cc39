//! Regions of the device, and the one place where a value becomes an address: offset and length are checked here.
#![allow(unsafe_code)]

use super::ptr::Ptr;
use crate::blueprint::program::{Program, Region, Val};
use crate::device::{DeviceError, Frame, Sizes};
use crate::sys::region::Memory;

/// Type of a region's elements.
pub(super) trait Element: Copy {
    fn lives_in(region: Region) -> bool;
}

impl Element for f32 {
    fn lives_in(region: Region) -> bool {
        !matches!(region, Region::Tokens | Region::Scalars)
    }
}

impl Element for u32 {
    fn lives_in(region: Region) -> bool {
        region == Region::Tokens
    }
}

impl Element for f64 {
    fn lives_in(region: Region) -> bool {
        region == Region::Scalars
    }
}

/// Bytes of an element of `region`.
fn element_bytes(region: Region) -> usize {
    if region == Region::Scalars { 8 } else { 4 }
}

/// A region: elements of one slot, slots, memory.
struct Range {
    len: usize,
    slots: usize,
    memory: Memory,
}

/// All regions.
pub(super) struct Arena {
    ranges: [Range; 7],
}

/// Place of a region in [`Arena::ranges`].
fn place(region: Region) -> usize {
    match region {
        Region::Weights => 0,
        Region::Grads => 1,
        Region::Moments => 2,
        Region::Kept => 3,
        Region::Work => 4,
        Region::Tokens => 5,
        Region::Scalars => 6,
    }
}

impl Arena {
    /// Reserves what `sizes` says; `grads` takes the place of memory of its own.
    pub(super) fn new(sizes: &Sizes, grads: Option<Memory>) -> Result<Arena, DeviceError> {
        let slots = sizes.slots.max(1);
        let reserve = |region, len: usize, slots: usize| {
            let bytes = len
                .checked_mul(slots)
                .and_then(|n| n.checked_mul(element_bytes(region)));
            let bytes = bytes.unwrap_or(usize::MAX / 2);
            let memory = Memory::private(bytes).map_err(|source| DeviceError::OutOfMemory {
                region,
                bytes,
                source,
            })?;
            Ok(Range { len, slots, memory })
        };
        let grads = match grads {
            Some(memory) => placed(memory, sizes.grads)?,
            None => reserve(Region::Grads, sizes.grads, 1)?,
        };
        Ok(Arena {
            ranges: [
                reserve(Region::Weights, sizes.weights, 1)?,
                grads,
                reserve(Region::Moments, sizes.moments, 1)?,
                reserve(Region::Kept, sizes.kept, slots)?,
                reserve(Region::Work, sizes.work, 1)?,
                reserve(Region::Tokens, sizes.tokens, slots)?,
                reserve(Region::Scalars, sizes.scalars, 1)?,
            ],
        })
    }

    /// Address of `need` elements from the start of `val`.
    pub(super) fn resolve<T: Element>(
        &self,
        program: &Program,
        val: Val,
        frame: Frame,
        need: usize,
    ) -> Result<Ptr<T>, DeviceError> {
        let Some(info) = program.vals.get(val.0 as usize) else {
            return Err(DeviceError::NoValue { index: val.0 });
        };
        let range = &self.ranges[place(info.region)];
        let slot = if range.slots > 1 { frame.slot } else { 0 };
        let inside = slot < range.slots
            && info
                .offset
                .checked_add(info.len)
                .is_some_and(|end| end <= range.len);
        if !inside || need > info.len || !T::lives_in(info.region) {
            return Err(DeviceError::Misplaced {
                name: info.name.clone(),
                region: info.region,
                offset: info.offset,
                len: info.len,
                need,
                holds: range.len,
            });
        }
        let at = range.memory.as_ptr().cast::<T>();
        Ok(Ptr::new(at.wrapping_add(slot * range.len + info.offset)))
    }

    /// Bytes `offset..offset + len` of a region; panics where they are outside (a bug of the caller, as in [`Memory::part`]).
    pub(super) fn bytes(&self, region: Region, offset: usize, len: usize) -> *mut u8 {
        self.ranges[place(region)].memory.part(offset, len).as_ptr()
    }
}

/// Gradients in memory of the caller.
fn placed(memory: Memory, len: usize) -> Result<Range, DeviceError> {
    let aligned = memory.as_ptr().cast::<f32>().is_aligned();
    if memory.len() / size_of::<f32>() < len || !aligned {
        return Err(DeviceError::OutOfMemory {
            region: Region::Grads,
            bytes: len * size_of::<f32>(),
            source: std::io::Error::other(format!(
                "the memory given for gradients has {} bytes (aligned: {aligned})",
                memory.len()
            )),
        });
    }
    Ok(Range {
        len,
        slots: 1,
        memory,
    })
}
