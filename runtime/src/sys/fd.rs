//! Waiting on descriptors, passing one to another process, keeping them from children.
#![allow(unsafe_code)]

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Waits until one of `fds` is readable, closed or broken, at most `limit` (for ever without one).
/// True at the places of those that are; all false after the limit or a signal.
pub fn readable(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polls: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let limit = limit.map_or(-1, |l| i32::try_from(l.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: the array lives through the call and has the length given.
    let got = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, limit) };
    if got < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok(vec![false; fds.len()]);
    }
    Ok(polls.iter().map(|poll| poll.revents != 0).collect())
}

/// Closes every descriptor above 2 in the programs that this process becomes or starts from now on, whoever opened it.
pub fn keep_from_children() -> io::Result<()> {
    // Before Linux 5.11 there is no such call.
    mark_range(3).or_else(|_| mark_each(3))
}

/// In one call.
fn mark_range(first: i32) -> io::Result<()> {
    // SAFETY: only a flag of descriptors changes; none is closed here.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The same by the list of the open ones.
fn mark_each(first: i32) -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(fd) = name.to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        if fd >= first {
            // SAFETY: only a flag changes; one that is closed by now is refused.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Sends `data` with `fd` attached, in one message.
pub fn send_fd(stream: &UnixStream, data: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd.as_raw_fd()];
    let sent = sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(data)],
        &[ControlMessage::ScmRights(&fds)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    if sent == data.len() {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::WriteZero,
            "message cut short",
        ))
    }
}

/// Fills `data` and takes the descriptor that came with it, if one did.
pub fn recv_fd(stream: &UnixStream, data: &mut [u8]) -> io::Result<Option<OwnedFd>> {
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
    let (mut at, mut taken) = (0, None);
    while at < data.len() {
        let mut parts = [IoSliceMut::new(&mut data[at..])];
        let message = recvmsg::<()>(
            stream.as_raw_fd(),
            &mut parts,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = control {
                for fd in fds {
                    // SAFETY: the kernel has just made this descriptor for us.
                    taken = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at += message.bytes;
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_kept_from_children_one_by_one_too() {
        let flags = |fd: &OwnedFd| {
            // SAFETY: reads a flag of an open descriptor.
            unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }
        };
        // Above what other tests have open, which is theirs.
        let first = 900;
        // SAFETY: makes a descriptor that is owned from here on, without the flag.
        let open = || unsafe { OwnedFd::from_raw_fd(libc::fcntl(2, libc::F_DUPFD, first)) };
        for keep in [mark_each, mark_range] {
            let fd = open();
            assert_eq!(flags(&fd) & libc::FD_CLOEXEC, 0);
            keep(first).unwrap();
            assert_eq!(flags(&fd) & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        }
    }
}
