//! A group whose ranks are processes of one machine, over a memfd that the lowest rank makes and hands out.

use super::group::Member;
use super::handshake::{self, HELLO, Hello, Newcomer, PENDING, Reply, Waiting, Way};
use super::segment::{Cause, Segment};
use super::watch::{Watch, is_open};
use super::{BEAT, CommError, JOINING, Options, Spec, system};
use crate::sys::{fd, memfd, region::Memory};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A rank of a shm group.
pub type Shm = Member;

/// Joins the group; returns when this rank can call collectives. Rank 0 returns when all have joined.
pub fn join(spec: &Spec<'_>, options: Options) -> Result<Shm, CommError> {
    spec.check()?;
    let bytes = Segment::bytes(spec.size, spec.grads_bytes)
        .ok_or_else(|| system("size the shared segment", "too large"))?;
    if spec.rank == 0 {
        lead(spec, bytes, options)
    } else {
        follow(spec, bytes, options)
    }
}

fn map(spec: &Spec<'_>, fd: &OwnedFd, bytes: usize) -> Result<Segment, CommError> {
    let memory =
        Memory::shared(fd.as_fd(), bytes).map_err(|e| system("map the shared segment", e))?;
    Ok(Segment::over(memory, spec.size, spec.grads_bytes))
}

fn member(
    segment: Segment,
    spec: &Spec<'_>,
    options: Options,
    peers: Vec<(usize, UnixStream)>,
) -> Result<Member, CommError> {
    let watch = if peers.is_empty() {
        None
    } else {
        let started = Watch::start(segment.clone(), peers);
        Some(started.map_err(|e| system("start the thread that watches peers", e))?)
    };
    Ok(Member::new(segment, spec.rank, options, watch))
}

/// Rank 0: makes the memory, then hands it to every rank that proves to know the secret.
fn lead(spec: &Spec<'_>, bytes: usize, options: Options) -> Result<Member, CommError> {
    let memory = memfd::create(bytes).map_err(|e| {
        let mib = bytes >> 20;
        system(&format!("reserve {mib} MiB of shared memory"), e)
    })?;
    let segment = map(spec, &memory, bytes)?;
    let name = handshake::socket_name(spec);
    let listener = SocketAddr::from_abstract_name(&name)
        .and_then(|address| UnixListener::bind_addr(&address))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|e| {
            system(
                "listen for the group's ranks (another rank 0 of this attempt?)",
                e,
            )
        })?;
    let mut door = Door {
        spec,
        listener,
        memory,
        waiting: Waiting::default(),
        joined: (0..spec.size).map(|_| None).collect(),
    };
    let start = Instant::now();
    while let Some(missing) = door.missing() {
        match door.serve() {
            Ok(()) => {}
            Err(Fault::Gone { rank }) => {
                segment.poison(Cause::Died { rank });
                return Err(CommError::PeerDied {
                    rank,
                    operation: JOINING,
                    sequence: 0,
                });
            }
            Err(Fault::Differs { rank, how }) => {
                segment.set_text(0, &how);
                segment.poison(Cause::Aborted { rank: 0 });
                return Err(system(&format!("admit rank {rank} to the group"), how));
            }
        }
        segment.control(0).ticks.fetch_add(1, Ordering::Relaxed);
        if start.elapsed() > options.join {
            let millis = start.elapsed().as_millis() as u64;
            segment.poison(Cause::Silent {
                rank: missing,
                millis,
            });
            return Err(absent(missing, start));
        }
    }
    let peers = door.joined.into_iter().enumerate();
    let peers = peers.filter_map(|(rank, stream)| Some((rank, stream?)));
    member(segment, spec, options, peers.collect())
}

fn absent(rank: usize, since: Instant) -> CommError {
    CommError::PeerSilent {
        rank,
        seconds: since.elapsed().as_secs_f64(),
        operation: JOINING,
        sequence: 0,
    }
}

/// What ends the joining of a group early.
enum Fault {
    /// The rank joined and is gone again.
    Gone { rank: usize },
    /// The rank knows the secret and expects another group.
    Differs { rank: usize, how: String },
}

/// Rank 0's side of joining. Whatever comes from strangers costs a bounded read and changes nothing.
struct Door<'a> {
    spec: &'a Spec<'a>,
    listener: UnixListener,
    memory: OwnedFd,
    waiting: Waiting<UnixStream>,
    joined: Vec<Option<UnixStream>>,
}

impl Door<'_> {
    fn missing(&self) -> Option<usize> {
        (1..self.spec.size).find(|&rank| self.joined[rank].is_none())
    }

    /// One round of at most a beat.
    fn serve(&mut self) -> Result<(), Fault> {
        let mut fds = vec![self.listener.as_fd()];
        fds.extend(self.waiting.streams().map(|stream| stream.as_fd()));
        let known = self.joined.iter().flatten();
        fds.extend(known.map(|stream| stream.as_fd()));
        if fd::readable(&fds, Some(BEAT)).is_err() {
            std::thread::sleep(BEAT);
        }
        for (rank, stream) in self.joined.iter_mut().enumerate() {
            if stream.as_mut().is_some_and(|stream| !is_open(stream)) {
                return Err(Fault::Gone { rank });
            }
        }
        self.accept();
        for newcomer in self.waiting.replies() {
            self.admit(newcomer)?;
        }
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..PENDING {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            if handshake::same_user(&stream) && stream.set_nonblocking(true).is_ok() {
                self.waiting.greet(stream);
            }
        }
    }

    fn admit(&mut self, newcomer: Newcomer<UnixStream>) -> Result<(), Fault> {
        let spec = self.spec;
        let Some(reply) = newcomer.verify(spec) else {
            return Ok(());
        };
        let rank = reply.rank;
        if let Err(how) = reply.fits(spec) {
            return Err(Fault::Differs { rank, how });
        }
        if rank == 0 || rank >= spec.size || self.joined[rank].is_some() {
            let how = "that place is taken or does not exist".into();
            return Err(Fault::Differs { rank, how });
        }
        let grant = handshake::grant(spec, &newcomer.hello, &reply);
        if fd::send_fd(&newcomer.stream, grant.as_bytes(), self.memory.as_fd()).is_ok() {
            self.joined[rank] = Some(newcomer.stream);
        }
        Ok(())
    }
}

/// Other ranks: come to rank 0's door until it opens.
fn follow(spec: &Spec<'_>, bytes: usize, options: Options) -> Result<Member, CommError> {
    let name = handshake::socket_name(spec);
    let address =
        SocketAddr::from_abstract_name(&name).map_err(|e| system("name the group's socket", e))?;
    let start = Instant::now();
    while start.elapsed() < options.join {
        if let Ok(stream) = UnixStream::connect_addr(&address)
            && let Ok(Some(memory)) = enter(spec, &stream)
            && memfd::is_sealed(&memory, bytes).unwrap_or(false)
        {
            let segment = map(spec, &memory, bytes)?;
            return member(segment, spec, options, vec![(0, stream)]);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(absent(0, start))
}

fn enter(spec: &Spec<'_>, mut stream: &UnixStream) -> std::io::Result<Option<OwnedFd>> {
    stream.set_read_timeout(Some(handshake::PATIENCE))?;
    stream.set_write_timeout(Some(handshake::PATIENCE))?;
    let mut hello = [0; HELLO];
    stream.read_exact(&mut hello)?;
    let Some(hello) = Hello::from_bytes(&hello) else {
        return Ok(None);
    };
    let reply = Reply::new(spec, Way::default())?;
    stream.write_all(&reply.to_bytes(spec, &hello))?;
    let mut proof = [0; blake3::OUT_LEN];
    let memory = fd::recv_fd(stream, &mut proof)?;
    // Compared in constant time.
    let proven = handshake::grant(spec, &hello, &reply) == proof;
    Ok(memory.filter(|_| proven))
}

#[cfg(test)]
mod tests;
