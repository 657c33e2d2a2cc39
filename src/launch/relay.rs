//! A cut of the node from its supervisor, for tests of the whole: a relay between them that stops to pass bytes on.
//!
//! While `$HAUL_FAULTS/<node>` says `cut`, nothing passes in either direction and no connection is closed. What was sent
//! meanwhile passes after `heal`, as TCP would deliver it. Files are written all the time.

use crate::rank::RankError;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Names the directory of faults.
const VARIABLE: &str = "HAUL_FAULTS";
/// How often a cut is looked at.
const POLL: Duration = Duration::from_millis(20);

/// The file that says whether the node is cut off.
#[derive(Debug)]
struct Cut(PathBuf);

impl Cut {
    /// Returns when bytes may pass.
    fn wait(&self) {
        while std::fs::read_to_string(&self.0).is_ok_and(|word| word.trim() == "cut") {
            std::thread::sleep(POLL);
        }
    }
}

/// The way from a node to its supervisor.
#[derive(Debug)]
pub(super) struct Way {
    /// Where the node connects: to a relay where faults are asked for, else to the supervisor.
    pub at: SocketAddr,
    cut: Option<Arc<Cut>>,
}

impl Way {
    pub(super) fn open(node: &str, supervisor: SocketAddr) -> Result<Way, RankError> {
        match std::env::var_os(VARIABLE) {
            Some(directory) => start(PathBuf::from(directory).join(node), supervisor),
            None => Ok(Way {
                at: supervisor,
                cut: None,
            }),
        }
    }

    /// Returns when connections may be seen to close: not while the node is cut off.
    pub(super) fn close(self) {
        if let Some(cut) = self.cut {
            cut.wait();
        }
    }
}

/// Relays connections to `to` until the process ends.
fn start(file: PathBuf, to: SocketAddr) -> Result<Way, RankError> {
    let fault = |what| move |source| RankError::System { what, source };
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(fault("listen for the relay"))?;
    let at = listener
        .local_addr()
        .map_err(fault("listen for the relay"))?;
    let cut = Arc::new(Cut(file));
    let own = cut.clone();
    let accept = move || {
        for near in listener.incoming().flatten() {
            let cut = own.clone();
            // Without a thread the connection closes, which the caller sees.
            let _ = spawn(move || connect(near, to, &cut));
        }
    };
    spawn(accept).map_err(fault("start a thread"))?;
    Ok(Way { at, cut: Some(cut) })
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("relay".into());
    thread.spawn(work).map(|_| ())
}

/// Carries one connection in both directions.
fn connect(near: TcpStream, to: SocketAddr, cut: &Arc<Cut>) {
    cut.wait();
    let streams = || {
        let far = TcpStream::connect(to)?;
        far.set_nodelay(true)?;
        near.set_nodelay(true)?;
        Ok::<_, std::io::Error>((near.try_clone()?, far.try_clone()?, far))
    };
    let Ok((near_too, far_too, far)) = streams() else {
        return;
    };
    let back = cut.clone();
    let started = spawn(move || pass(far_too, near_too, &back));
    if started.is_ok() {
        pass(near, far, cut);
    }
}

/// Passes bytes on until `from` ends, then ends `to`.
fn pass(mut from: TcpStream, mut to: TcpStream, cut: &Cut) {
    let mut chunk = [0; 8192];
    loop {
        let read = from.read(&mut chunk).unwrap_or(0);
        cut.wait();
        if read == 0 || to.write_all(&chunk[..read]).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_holds_bytes_and_closes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("local1");
        let far = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let way = start(file.clone(), far.local_addr().unwrap()).unwrap();
        let mut near = TcpStream::connect(way.at).unwrap();
        let (mut far, _) = far.accept().unwrap();
        let mut chunk = [0; 3];
        near.write_all(b"one").unwrap();
        far.read_exact(&mut chunk).unwrap();
        far.write_all(b"two").unwrap();
        near.read_exact(&mut chunk).unwrap();
        assert_eq!(&chunk, b"two");

        std::fs::write(&file, "cut\n").unwrap();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            from.write_all(b"six").unwrap();
            to.set_read_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            let held = to.read(&mut chunk).unwrap_err();
            assert_eq!(held.kind(), std::io::ErrorKind::WouldBlock);
            to.set_read_timeout(None).unwrap();
        }
        std::fs::write(&file, "heal\n").unwrap();
        near.read_exact(&mut chunk).unwrap();
        far.read_exact(&mut chunk).unwrap();
        assert_eq!(&chunk, b"six");
        drop(near);
        assert_eq!(far.read(&mut chunk).unwrap(), 0);
        way.close();
    }
}
