//! Watches the connections to peers' processes: one that closes is a process that ended.
//!
//! The lowest rank is connected to all others and each of them to it, so a death is seen at once by one rank at
//! least, which poisons the segment for all. The thread sleeps in `poll` and never spins.

use super::segment::{Cause, LEFT, Segment};
use crate::sys::fd;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// The thread; it ends when this is dropped.
pub(super) struct Watch {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches `peers`, (rank, connection) each.
    pub(super) fn start(
        segment: Segment,
        peers: Vec<(usize, UnixStream)>,
    ) -> std::io::Result<Watch> {
        let (stop, stopped) = UnixStream::pair()?;
        for (_, stream) in &peers {
            stream.set_nonblocking(true)?;
        }
        let thread = std::thread::Builder::new()
            .name("haul-watch".into())
            .spawn(move || run(&segment, peers, &stopped))?;
        Ok(Watch {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

fn run(segment: &Segment, mut peers: Vec<(usize, UnixStream)>, stopped: &UnixStream) {
    loop {
        let mut fds = vec![stopped.as_fd()];
        fds.extend(peers.iter().map(|(_, stream)| stream.as_fd()));
        let Ok(ready) = fd::readable(&fds, None) else {
            // Without a watch the deadline of silent peers still stands.
            return;
        };
        if ready[0] {
            return;
        }
        let mut ready = ready[1..].iter();
        peers.retain_mut(|(rank, stream)| {
            let ready = ready.next().copied().unwrap_or(false);
            if !ready || is_open(stream) {
                return true;
            }
            if segment.control(*rank).state.load(Ordering::Acquire) != LEFT {
                segment.poison(Cause::Died { rank: *rank });
            }
            false
        });
    }
}

/// Reads and forgets: after the handshake nobody has anything to say.
pub(super) fn is_open(stream: &mut UnixStream) -> bool {
    let mut bytes = [0u8; 256];
    match stream.read(&mut bytes) {
        Ok(0) => false,
        Ok(_) => true,
        Err(e) => matches!(
            e.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
        ),
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
