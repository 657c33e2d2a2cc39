//! Shared memory without a name: nothing can be left behind, and a lack of memory is an error here, never a signal later.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Memory of `len` bytes, zeroed, all of it present, of a size that nobody can change any more.
///
/// Looks at what is available first: such memory has no owner the kernel could name when it runs out, so it would
/// kill others one by one rather than fail the call.
pub fn create(len: usize) -> io::Result<OwnedFd> {
    if let Some(available) = super::available::memory()
        && len as u64 > available
    {
        let message = format!("{} MiB are available", available >> 20);
        return Err(io::Error::new(io::ErrorKind::OutOfMemory, message));
    }
    let len = libc::off_t::try_from(len)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too large"))?;
    // SAFETY: the name is a C string.
    let fd = unsafe {
        libc::memfd_create(
            c"haul".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: plain calls on an owned descriptor.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    loop {
        // SAFETY: as above.
        if unsafe { libc::fallocate(fd.as_raw_fd(), 0, 0, len) } == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: as above.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Whether `fd` has `len` bytes and can't shrink: mapped, it never raises SIGBUS.
pub fn is_sealed(fd: &OwnedFd, len: usize) -> io::Result<bool> {
    // SAFETY: a plain call on an owned descriptor.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    let size = std::fs::File::from(fd.try_clone()?).metadata()?.len();
    Ok(seals >= 0 && seals & libc::F_SEAL_SHRINK != 0 && size == len as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_its_size_for_good_and_too_much_is_an_error() {
        let fd = create(10_000).unwrap();
        assert!(is_sealed(&fd, 10_000).unwrap());
        assert!(!is_sealed(&fd, 10_001).unwrap());
        let file = std::fs::File::from(fd);
        assert!(file.set_len(1).is_err());
        // More than any machine has.
        let error = create(1 << 50).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }
}
