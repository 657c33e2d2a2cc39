//! How ranks prove to each other that they know the attempt's secret. Messages have fixed sizes; the secret never travels.
//!
//! The rank at the door says hello with a nonce; the other replies with its rank, what it expects of the group, a
//! nonce and a keyed hash of both nonces and all of that; the first grants with a keyed hash of its own. A stranger
//! costs one bounded read and changes nothing.

use super::Spec;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const MAGIC: [u8; 16] = *b"haul rank group2";
pub(super) const HELLO: usize = 16 + 32;
/// Numbers of a claim: rank, size, bytes of gradients, then those of [`Way`].
const NUMBERS: usize = 6;
const CLAIM: usize = NUMBERS * 8 + 32;
/// A connection that has not proved itself is dropped after this time.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// More unproven connections than this push the oldest out.
pub(super) const PENDING: usize = 64;
pub(super) const REPLY: usize = CLAIM + 32;

/// Name of the abstract socket: unknown to whoever lacks the secret.
pub(super) fn socket_name(spec: &Spec<'_>) -> String {
    let mut hasher = blake3::Hasher::new_keyed(spec.secret);
    hasher.update(b"socket").update(spec.group.as_bytes());
    format!("haul-{}", &hasher.finalize().to_hex()[..32])
}

/// Whether the other end runs as the same user.
pub(super) fn same_user(stream: &UnixStream) -> bool {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

fn nonce() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Keyed hash of everything a reply claims, for one side.
fn mac(spec: &Spec<'_>, side: &[u8; 6], hello: &Hello, reply: &Reply) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(spec.secret);
    hasher
        .update(side)
        .update(&hello.nonce)
        .update(&reply.claim())
        .update(spec.group.as_bytes());
    hasher.finalize()
}

pub(super) struct Hello {
    nonce: [u8; 32],
}

impl Hello {
    pub(super) fn new() -> io::Result<Hello> {
        Ok(Hello { nonce: nonce()? })
    }

    pub(super) fn to_bytes(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..].copy_from_slice(&self.nonce);
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; HELLO]) -> Option<Hello> {
        let (magic, rest) = bytes.split_first_chunk::<16>()?;
        let nonce = *rest.first_chunk::<32>()?;
        (*magic == MAGIC).then_some(Hello { nonce })
    }
}

/// What a rank says of itself.
pub(super) struct Reply {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) grads_bytes: usize,
    pub(super) way: Way,
    nonce: [u8; 32],
}

/// Which connection between which ranks this is; all zero where each rank has but one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Way {
    /// Rank at the door.
    pub(super) to: usize,
    /// From 1.
    pub(super) channel: usize,
    /// Where the rank that comes listens itself.
    pub(super) port: usize,
}

impl Reply {
    pub(super) fn new(spec: &Spec<'_>, way: Way) -> io::Result<Reply> {
        Ok(Reply {
            way,
            rank: spec.rank,
            size: spec.size,
            grads_bytes: spec.grads_bytes,
            nonce: nonce()?,
        })
    }

    fn claim(&self) -> [u8; CLAIM] {
        let mut bytes = [0; CLAIM];
        let Way { to, channel, port } = self.way;
        let numbers = [self.rank, self.size, self.grads_bytes, to, channel, port];
        for (to, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *to = (number as u64).to_le_bytes();
        }
        bytes[NUMBERS * 8..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Whether the rank expects the same group; if not, how it differs.
    pub(super) fn fits(&self, spec: &Spec<'_>) -> Result<(), String> {
        let (size, grads) = (self.size, self.grads_bytes);
        if (size, grads) == (spec.size, spec.grads_bytes) {
            return Ok(());
        }
        Err(format!(
            "it expects {size} ranks with {grads} bytes of gradients, this rank {} with {}: the ranks' plans differ",
            spec.size, spec.grads_bytes
        ))
    }

    pub(super) fn to_bytes(&self, spec: &Spec<'_>, hello: &Hello) -> [u8; REPLY] {
        let mut bytes = [0; REPLY];
        bytes[..CLAIM].copy_from_slice(&self.claim());
        bytes[CLAIM..].copy_from_slice(mac(spec, b"follow", hello, self).as_bytes());
        bytes
    }

    /// The reply, if it proves the secret.
    pub(super) fn verify(bytes: &[u8; REPLY], spec: &Spec<'_>, hello: &Hello) -> Option<Reply> {
        let (numbers, rest) = bytes.split_first_chunk::<{ NUMBERS * 8 }>()?;
        let (nonce, proof) = rest.split_first_chunk::<32>()?;
        let number = |i: usize| {
            let word = numbers.as_chunks::<8>().0[i];
            usize::try_from(u64::from_le_bytes(word)).ok()
        };
        let reply = Reply {
            rank: number(0)?,
            size: number(1)?,
            grads_bytes: number(2)?,
            way: Way {
                to: number(3)?,
                channel: number(4)?,
                port: number(5)?,
            },
            nonce: *nonce,
        };
        // Compared in constant time.
        let proven = mac(spec, b"follow", hello, &reply) == *proof.first_chunk::<32>()?;
        proven.then_some(reply)
    }
}

/// The door's proof to the rank that replied.
pub(super) fn grant(spec: &Spec<'_>, hello: &Hello, reply: &Reply) -> blake3::Hash {
    mac(spec, b"grants", hello, reply)
}

/// A connection that has replied, or may yet.
pub(super) struct Newcomer<S> {
    pub(super) stream: S,
    pub(super) hello: Hello,
    since: Instant,
    reply: [u8; REPLY],
    got: usize,
}

enum Progress {
    More,
    Complete,
    Closed,
}

impl<S: Read> Newcomer<S> {
    /// The reply, if it proves the secret.
    pub(super) fn verify(&self, spec: &Spec<'_>) -> Option<Reply> {
        Reply::verify(&self.reply, spec, &self.hello)
    }

    fn read(&mut self) -> Progress {
        match self.stream.read(&mut self.reply[self.got..]) {
            Ok(0) => Progress::Closed,
            Ok(count) => {
                self.got += count;
                if self.got == REPLY {
                    Progress::Complete
                } else {
                    Progress::More
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Progress::More,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Progress::More,
            Err(_) => Progress::Closed,
        }
    }
}

/// Connections that have not proved themselves; few, and each for a short time.
pub(super) struct Waiting<S>(Vec<Newcomer<S>>);

impl<S> Default for Waiting<S> {
    fn default() -> Self {
        Waiting(Vec::new())
    }
}

impl<S: Read + Write> Waiting<S> {
    pub(super) fn streams(&self) -> impl Iterator<Item = &S> {
        self.0.iter().map(|newcomer| &newcomer.stream)
    }

    /// Says hello; `stream` does not block.
    pub(super) fn greet(&mut self, mut stream: S) {
        let Ok(hello) = Hello::new() else {
            return;
        };
        if stream.write(&hello.to_bytes()).ok() != Some(HELLO) {
            return;
        }
        if self.0.len() == PENDING {
            self.0.remove(0);
        }
        self.0.push(Newcomer {
            stream,
            hello,
            since: Instant::now(),
            reply: [0; REPLY],
            got: 0,
        });
    }

    /// Those whose reply is here, proved or not.
    pub(super) fn replies(&mut self) -> Vec<Newcomer<S>> {
        let mut complete = Vec::new();
        for mut newcomer in std::mem::take(&mut self.0) {
            match newcomer.read() {
                Progress::More if newcomer.since.elapsed() < PATIENCE => self.0.push(newcomer),
                Progress::Complete => complete.push(newcomer),
                Progress::More | Progress::Closed => {}
            }
        }
        complete
    }
}
