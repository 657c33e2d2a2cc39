//! How ranks prove to each other that they know the attempt's secret. Messages have fixed sizes; the secret never travels.
//!
//! Rank 0 says hello with a nonce; the other replies with its rank, what it expects of the group, a nonce and a
//! keyed hash of both nonces and all of that; rank 0 grants with a keyed hash of its own, the memory attached.

use super::shm::Spec;
use std::io;
use std::os::unix::net::UnixStream;

const MAGIC: [u8; 16] = *b"haul shm group 1";
pub(super) const HELLO: usize = 16 + 32;
const CLAIM: usize = 3 * 8 + 32;
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
    use std::io::Read;
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
    nonce: [u8; 32],
}

impl Reply {
    pub(super) fn new(spec: &Spec<'_>) -> io::Result<Reply> {
        Ok(Reply {
            rank: spec.rank,
            size: spec.size,
            grads_bytes: spec.grads_bytes,
            nonce: nonce()?,
        })
    }

    fn claim(&self) -> [u8; CLAIM] {
        let mut bytes = [0; CLAIM];
        let numbers = [self.rank, self.size, self.grads_bytes];
        for (to, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *to = (number as u64).to_le_bytes();
        }
        bytes[24..].copy_from_slice(&self.nonce);
        bytes
    }

    pub(super) fn to_bytes(&self, spec: &Spec<'_>, hello: &Hello) -> [u8; REPLY] {
        let mut bytes = [0; REPLY];
        bytes[..CLAIM].copy_from_slice(&self.claim());
        bytes[CLAIM..].copy_from_slice(mac(spec, b"follow", hello, self).as_bytes());
        bytes
    }

    /// The reply, if it proves the secret.
    pub(super) fn verify(bytes: &[u8; REPLY], spec: &Spec<'_>, hello: &Hello) -> Option<Reply> {
        let (numbers, rest) = bytes.split_first_chunk::<24>()?;
        let (nonce, proof) = rest.split_first_chunk::<32>()?;
        let number = |i: usize| {
            let word = numbers.as_chunks::<8>().0[i];
            usize::try_from(u64::from_le_bytes(word)).ok()
        };
        let reply = Reply {
            rank: number(0)?,
            size: number(1)?,
            grads_bytes: number(2)?,
            nonce: *nonce,
        };
        // Compared in constant time.
        let proven = mac(spec, b"follow", hello, &reply) == *proof.first_chunk::<32>()?;
        proven.then_some(reply)
    }
}

/// Rank 0's proof to the rank that replied.
pub(super) fn grant(spec: &Spec<'_>, hello: &Hello, reply: &Reply) -> blake3::Hash {
    mac(spec, b"grants", hello, reply)
}
