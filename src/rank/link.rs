//! The connection to the supervisor: connect, prove, send, receive. Blocking; a thread receives.

use super::RankError;
use crate::control::auth::{Nonce, Secret, Side};
use crate::control::frame::LIMIT;
use crate::control::{Answer, Challenge, Decoder, Down, Hello, PROTOCOL, Up, encode};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a hello may take, and a write that the supervisor does not read.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open, proved connection.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    decoder: Decoder,
}

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    pub attempt: u32,
    /// Absent for a node's launcher.
    pub rank: Option<usize>,
    pub node: String,
}

/// Connects to the supervisor at `at`; both ends prove that they know `secret`.
pub fn connect(at: SocketAddr, caller: &Caller, secret: &Secret) -> Result<Link, RankError> {
    let fault = |what| move |source| RankError::Link { what, at, source };
    let stream = TcpStream::connect_timeout(&at, PATIENCE).map_err(fault("reach"))?;
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .map_err(fault("speak with"))?;
    let mut link = Link {
        stream,
        decoder: Decoder::new(LIMIT),
    };
    let own = Nonce::new(random().map_err(fault("greet"))?);
    let hello = Hello {
        protocol: PROTOCOL,
        attempt: caller.attempt,
        rank: caller.rank,
        node: caller.node.clone(),
        nonce: own.clone(),
        pid: std::process::id() as i32,
    };
    link.write(&hello).map_err(fault("greet"))?;
    let challenge: Challenge = link
        .read()
        .and_then(|message| message.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()))
        .map_err(fault("hear"))?;
    if !secret.verify(Side::Supervisor, &own, &challenge.nonce, &challenge.proof) {
        return Err(RankError::Refused {
            at,
            reason: "it does not know the secret of this attempt".into(),
        });
    }
    let proof = secret.proof(Side::Shim, &own, &challenge.nonce);
    link.write(&Answer { proof }).map_err(fault("answer"))?;
    link.stream
        .set_read_timeout(None)
        .map_err(fault("speak with"))?;
    Ok(link)
}

impl Link {
    fn write<T: serde::Serialize>(&mut self, message: &T) -> io::Result<()> {
        let frame = encode(message).map_err(io::Error::other)?;
        self.stream.write_all(&frame)
    }

    fn read<T: serde::de::DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut chunk = [0; 8192];
        loop {
            if let Some(message) = self.decoder.message().map_err(io::Error::other)? {
                return Ok(Some(message));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(n) => self.decoder.push(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts the thread that hands every message to `receive`, and absent once at the end of the connection.
    pub fn listen(
        self,
        mut receive: impl FnMut(Option<Down>) + Send + 'static,
    ) -> io::Result<Sender> {
        let sender = Sender {
            stream: Some(self.stream.try_clone()?),
        };
        let mut link = self;
        std::thread::Builder::new()
            .name("link".into())
            .spawn(move || {
                while let Ok(Some(message)) = link.read() {
                    receive(Some(message));
                }
                receive(None);
            })?;
        Ok(sender)
    }
}

/// The sending half. After the first failure it is silent: the receiving half tells the loss.
#[derive(Debug)]
pub struct Sender {
    stream: Option<TcpStream>,
}

impl Sender {
    /// Sends a message; false when it does not fit in a frame.
    pub fn send(&mut self, message: &Up) -> bool {
        let Ok(frame) = encode(message) else {
            return false;
        };
        if let Some(stream) = &mut self.stream
            && stream.write_all(&frame).is_err()
        {
            // Half a frame may be on its way, so nothing more can be said.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            self.stream = None;
        }
        true
    }
}

/// 32 bytes from the kernel.
pub fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
