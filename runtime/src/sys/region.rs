//! A range of memory with a fixed address: private with huge pages, or a part of a shared mapping.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Keeps a mapping alive and unmaps it at the end.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory; who may access which bytes when is the contract of `Memory`'s users.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and len are those of a successful mmap, unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A range of bytes inside a mapping, 64-byte aligned when made by [`Memory::private`]. Clones share the bytes.
#[derive(Clone)]
pub struct Memory {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl Memory {
    /// Zeroed private memory, backed by huge pages where the kernel grants them, present at return.
    pub fn private(len: usize) -> io::Result<Memory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::map(len, flags, -1, true)
    }

    /// The shared mapping of `fd`, from its start.
    pub fn shared(fd: std::os::fd::BorrowedFd<'_>, len: usize) -> io::Result<Memory> {
        use std::os::fd::AsRawFd;
        Self::map(len, libc::MAP_SHARED, fd.as_raw_fd(), false)
    }

    fn map(len: usize, flags: i32, fd: i32, huge: bool) -> io::Result<Memory> {
        let size = len
            .max(1)
            .next_multiple_of(if huge { 2 << 20 } else { 4096 });
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        if huge {
            // SAFETY: the range was just mapped; advice may be refused without harm.
            unsafe { libc::madvise(at, size, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: as above; MADV_POPULATE_WRITE makes the pages present and needs Linux 5.14, so touch them where it is refused.
        if unsafe { libc::madvise(at, size, libc::MADV_POPULATE_WRITE) } != 0 && huge {
            for page in (0..size).step_by(4096) {
                // SAFETY: inside the fresh private mapping.
                unsafe { base.as_ptr().add(page).write_volatile(0) };
            }
        }
        Ok(Memory {
            mapping: Arc::new(Mapping { base, len: size }),
            offset: 0,
            len,
        })
    }

    /// The bytes `offset..offset + len` of this range; panics when they are not inside it (a bug of the caller).
    pub fn part(&self, offset: usize, len: usize) -> Memory {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "part outside of the region"
        );
        Memory {
            mapping: self.mapping.clone(),
            offset: self.offset + offset,
            len,
        }
    }

    /// Address of the first byte, valid while any clone lives.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: offset is inside the mapping by construction.
        unsafe { self.mapping.base.as_ptr().add(self.offset) }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_bytes_and_bounds_are_checked() {
        let memory = Memory::private(1 << 16).unwrap();
        let part = memory.part(4096, 64);
        // SAFETY: inside the mapping, single thread.
        unsafe { part.as_ptr().write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { memory.as_ptr().add(4096).read() }, 7);
        assert!(std::panic::catch_unwind(|| memory.part(1 << 16, 1)).is_err());
    }
}
