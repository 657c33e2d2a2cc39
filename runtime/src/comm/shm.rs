//! A group whose ranks are processes of one machine, over a memfd that the lowest rank makes and hands out.

use super::group::{MAX_RANKS, Member};
use super::handshake::{self, HELLO, Hello, REPLY, Reply};
use super::segment::{Cause, Segment};
use super::watch::{Watch, is_open};
use super::{CommError, Options};
use crate::sys::{fd, memfd, region::Memory};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A rank of a shm group.
pub type Shm = Member;

/// A connection that has not proved itself is dropped after this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// More unproven connections than this push the oldest out.
const PENDING: usize = 64;
const BEAT: Duration = Duration::from_millis(100);
const JOINING: &str = "joining the group";

/// What the ranks of a group agree on beforehand.
#[derive(Clone, Copy)]
pub struct Spec<'a> {
    /// The attempt's secret: who has it may join.
    pub secret: &'a [u8; 32],
    /// Name of the group, unique in the attempt.
    pub group: &'a str,
    pub rank: usize,
    pub size: usize,
    /// Bytes of gradient memory of each rank.
    pub grads_bytes: usize,
}

/// Joins the group; returns when this rank can call collectives. Rank 0 returns when all have joined.
pub fn join(spec: &Spec<'_>, options: Options) -> Result<Shm, CommError> {
    if spec.rank >= spec.size || spec.size > MAX_RANKS {
        let range = format!("a group has 1 to {MAX_RANKS} ranks");
        return Err(system(
            &format!("join as rank {} of {}", spec.rank, spec.size),
            range,
        ));
    }
    let bytes = Segment::bytes(spec.size, spec.grads_bytes)
        .ok_or_else(|| system("size the shared segment", "too large"))?;
    if spec.rank == 0 {
        lead(spec, bytes, options)
    } else {
        follow(spec, bytes, options)
    }
}

fn system(what: &str, error: impl ToString) -> CommError {
    CommError::System {
        what: what.into(),
        error: error.to_string(),
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
        pending: Vec::new(),
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

/// A connection that has not proved itself yet.
struct Pending {
    stream: UnixStream,
    since: Instant,
    hello: Hello,
    reply: [u8; REPLY],
    got: usize,
}

/// Rank 0's side of joining. Whatever comes from strangers costs a bounded read and changes nothing.
struct Door<'a> {
    spec: &'a Spec<'a>,
    listener: UnixListener,
    memory: OwnedFd,
    pending: Vec<Pending>,
    joined: Vec<Option<UnixStream>>,
}

impl Door<'_> {
    fn missing(&self) -> Option<usize> {
        (1..self.spec.size).find(|&rank| self.joined[rank].is_none())
    }

    /// One round of at most a beat.
    fn serve(&mut self) -> Result<(), Fault> {
        let mut fds = vec![self.listener.as_fd()];
        fds.extend(self.pending.iter().map(|p| p.stream.as_fd()));
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
        let pending = std::mem::take(&mut self.pending);
        for mut connection in pending {
            match connection.read() {
                Progress::More if connection.since.elapsed() < PATIENCE => {
                    self.pending.push(connection);
                }
                Progress::Complete => self.admit(connection)?,
                Progress::More | Progress::Closed => {}
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..PENDING {
            let Ok((mut stream, _)) = self.listener.accept() else {
                return;
            };
            let Ok(hello) = Hello::new() else {
                return;
            };
            let ready = handshake::same_user(&stream)
                && stream.set_nonblocking(true).is_ok()
                && stream.write(&hello.to_bytes()).ok() == Some(HELLO);
            if !ready {
                continue;
            }
            if self.pending.len() == PENDING {
                self.pending.remove(0);
            }
            self.pending.push(Pending {
                stream,
                since: Instant::now(),
                hello,
                reply: [0; REPLY],
                got: 0,
            });
        }
    }

    fn admit(&mut self, connection: Pending) -> Result<(), Fault> {
        let spec = self.spec;
        let Some(reply) = Reply::verify(&connection.reply, spec, &connection.hello) else {
            return Ok(());
        };
        let rank = reply.rank;
        if (reply.size, reply.grads_bytes) != (spec.size, spec.grads_bytes) {
            let (size, grads) = (reply.size, reply.grads_bytes);
            let how = format!(
                "it expects {size} ranks with {grads} bytes of gradients, this rank {} with {}: the ranks' plans differ",
                spec.size, spec.grads_bytes
            );
            return Err(Fault::Differs { rank, how });
        }
        if rank == 0 || rank >= spec.size || self.joined[rank].is_some() {
            let how = "that place is taken or does not exist".into();
            return Err(Fault::Differs { rank, how });
        }
        let grant = handshake::grant(spec, &connection.hello, &reply);
        if fd::send_fd(&connection.stream, grant.as_bytes(), self.memory.as_fd()).is_ok() {
            self.joined[rank] = Some(connection.stream);
        }
        Ok(())
    }
}

enum Progress {
    More,
    Complete,
    Closed,
}

impl Pending {
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
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Progress::More,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Progress::More,
            Err(_) => Progress::Closed,
        }
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
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut hello = [0; HELLO];
    stream.read_exact(&mut hello)?;
    let Some(hello) = Hello::from_bytes(&hello) else {
        return Ok(None);
    };
    let reply = Reply::new(spec)?;
    stream.write_all(&reply.to_bytes(spec, &hello))?;
    let mut proof = [0; blake3::OUT_LEN];
    let memory = fd::recv_fd(stream, &mut proof)?;
    // Compared in constant time.
    let proven = handshake::grant(spec, &hello, &reply) == proof;
    Ok(memory.filter(|_| proven))
}

#[cfg(test)]
mod tests;
