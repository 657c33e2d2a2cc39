//! How a tcp group comes together: rank 0 listens where the contract says, every other rank at the address by which it
//! reaches rank 0. All come to rank 0, which tells where the others are; then each goes to those of lower rank.

use super::super::handshake::{self, HELLO, Hello, Newcomer, PENDING, Reply, Waiting, Way};
use super::super::segment::Segment;
use super::super::{BEAT, Comm, CommError, Options, Spec, shm, system};
use super::job::Values;
use super::link::Link;
use super::message::{At, Message};
use super::{Tcp, sleep};
use nix::poll::{PollFd, PollFlags};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The connections of a pair, in the order in which they are made.
const CONTROL: usize = 1;
const DATA: usize = 2;
/// Longest wait for an answer of a rank that is known to listen.
const ANSWER: Duration = Duration::from_secs(5);
/// Bytes of an address in the table.
const ENTRY: usize = 18;

/// Joins the group over `master`, the address and port on which rank 0 listens; returns when this rank is connected to
/// all others. `node` are the ranks of this node, which has them in a row.
pub fn join(
    spec: &Spec<'_>,
    master: (&str, u16),
    node: Range<usize>,
    options: Options,
) -> Result<Tcp, CommError> {
    spec.check()?;
    if !node.contains(&spec.rank) || node.end > spec.size {
        let what = format!("join as rank {} of {}", spec.rank, spec.size);
        return Err(system(&what, format!("its node has the ranks {node:?}")));
    }
    let shared = share(spec, &node, options)?;
    let values = Values::new(spec.size, spec.grads_bytes, shared).map_err(|e| {
        let mib = spec.grads_bytes >> 20;
        system(&format!("reserve {mib} MiB for the group's values"), e)
    })?;
    let mut party = Party {
        spec,
        tcp: Tcp::new(spec, values, options),
        start: Instant::now(),
        limit: options.join,
    };
    let result = match spec.rank {
        0 => party.lead(master),
        _ => party.follow(master),
    };
    if let Err(error) = result {
        return Err(party.tcp.fail(error, 0));
    }
    party.tcp.links.sort_by_key(|link| link.rank);
    party.tcp.last_tick = Instant::now();
    Ok(party.tcp)
}

/// The memory that the ranks of this node share, the first of them, and this rank's place; none if it is alone.
fn share(
    spec: &Spec<'_>,
    node: &Range<usize>,
    options: Options,
) -> Result<Option<(Segment, usize, usize)>, CommError> {
    if node.len() < 2 {
        return Ok(None);
    }
    let local = Spec {
        group: &format!("{} from {}", spec.group, node.start),
        rank: spec.rank - node.start,
        size: node.len(),
        ..*spec
    };
    let shared = shm::join(&local, options).and_then(|mut member| {
        // Nobody leaves before all have the memory. Whether they live is seen by their connections.
        member.barrier()?;
        Ok(member.segment().clone())
    });
    match shared {
        Ok(segment) => Ok(Some((segment, node.start, local.rank))),
        Err(mut error) => {
            if let CommError::PeerDied { rank, .. }
            | CommError::PeerSilent { rank, .. }
            | CommError::OutOfStep { rank, .. }
            | CommError::Aborted { rank, .. } = &mut error
            {
                *rank += node.start;
            }
            Err(error)
        }
    }
}

/// A group that is coming together.
struct Party<'a> {
    spec: &'a Spec<'a>,
    tcp: Tcp,
    start: Instant,
    limit: Duration,
}

impl Party<'_> {
    fn lead(&mut self, (host, port): (&str, u16)) -> Result<(), CommError> {
        let any = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let bound = match host.parse::<IpAddr>() {
            Ok(address) => TcpListener::bind((address, port)),
            Err(_) if host == "localhost" => TcpListener::bind((Ipv4Addr::LOCALHOST, port)),
            // What a name means on its own machine, others may be unable to reach.
            Err(_) => TcpListener::bind(&any.map(|ip: IpAddr| SocketAddr::new(ip, port))[..]),
        };
        let listener = bound.map_err(|e| {
            let what = format!("listen on {host}:{port} (MASTER_ADDR, MASTER_PORT)");
            system(&what, e)
        })?;
        let here = listener.local_addr();
        let here = here.map_err(|e| system("read the address of the listener", e))?;
        let mut addresses = vec![here; self.spec.size];
        self.receive(&listener, &mut addresses)?;
        same_reach(&addresses[1..])?;
        let table = addresses.iter().flat_map(|at| entry(*at)).collect();
        self.tcp.say(&Message::Table(table));
        Ok(())
    }

    fn follow(&mut self, (host, port): (&str, u16)) -> Result<(), CommError> {
        let mut listener = None;
        let control = self.dial(0, |party| {
            let stream = connect((host, port).to_socket_addrs()?)?;
            let here = stream.local_addr()?.ip();
            let own = match listener.take() {
                Some(own) => own,
                None => TcpListener::bind((here, 0))?,
            };
            let port = own.local_addr()?.port();
            listener = Some(own);
            party.enter(stream, 0, CONTROL, port)
        })?;
        let master = control.peer_addr();
        let master = master.map_err(|e| system("read the address of rank 0", e))?;
        let Some(listener) = listener else {
            return Err(system("listen for other ranks", "no address"));
        };
        self.connect_data(0, master, control)?;
        let table = self.table()?;
        let below = table.into_iter().enumerate().take(self.spec.rank);
        for (rank, at) in below.skip(1) {
            let control = self.dial(rank, |party| party.enter(connect([at])?, rank, CONTROL, 0))?;
            self.connect_data(rank, at, control)?;
        }
        self.receive(&listener, &mut vec![master; self.spec.size])
    }

    fn connect_data(
        &mut self,
        rank: usize,
        at: SocketAddr,
        control: TcpStream,
    ) -> Result<(), CommError> {
        let data = self.dial(rank, |party| party.enter(connect([at])?, rank, DATA, 0))?;
        self.tcp.links.push(Link::new(rank, control, data));
        Ok(())
    }

    /// Tries until `rank` opens its door.
    fn dial(
        &mut self,
        rank: usize,
        mut attempt: impl FnMut(&Party<'_>) -> io::Result<TcpStream>,
    ) -> Result<TcpStream, CommError> {
        let mut pause = Duration::from_millis(5);
        loop {
            let error = match attempt(self) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            if self.start.elapsed() > self.limit {
                let seconds = self.limit.as_secs_f64();
                return Err(system(
                    &format!("reach rank {rank} within {seconds} s"),
                    error,
                ));
            }
            self.attend()?;
            std::thread::sleep(pause);
            pause = (2 * pause).min(BEAT);
        }
    }

    /// This rank's side of a connection to `rank`.
    fn enter(
        &self,
        mut stream: TcpStream,
        rank: usize,
        channel: usize,
        port: u16,
    ) -> io::Result<TcpStream> {
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let mut hello = [0; HELLO];
        stream.read_exact(&mut hello)?;
        let stranger = || io::Error::other("something else than a rank of this attempt listens");
        let hello = Hello::from_bytes(&hello).ok_or_else(stranger)?;
        let way = Way {
            to: rank,
            channel,
            port: port.into(),
        };
        let reply = Reply::new(self.spec, way)?;
        stream.write_all(&reply.to_bytes(self.spec, &hello))?;
        let mut proof = [0; blake3::OUT_LEN];
        stream.read_exact(&mut proof)?;
        // Compared in constant time.
        if handshake::grant(self.spec, &hello, &reply) != proof {
            return Err(stranger());
        }
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Waits for rank 0's table of addresses.
    fn table(&mut self) -> Result<Vec<SocketAddr>, CommError> {
        loop {
            self.attend()?;
            if let Some(table) = self.tcp.links[0].table.take() {
                let (entries, rest) = table.as_chunks::<ENTRY>();
                if entries.len() != self.spec.size || !rest.is_empty() {
                    return Err(system("read the table of ranks", "it has another size"));
                }
                return Ok(entries.iter().map(address).collect());
            }
            self.in_time(0)?;
            let fd = self.tcp.links[0].control.as_fd();
            let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
            sleep(&mut fds, BEAT).map_err(|e| system("wait for rank 0", e))?;
        }
    }

    /// Listens to those that have joined.
    fn attend(&mut self) -> Result<(), CommError> {
        for link in &mut self.tcp.links {
            link.hear();
            link.flush();
        }
        self.tcp.beat(Instant::now());
        // Those that are complete may go on and come to the first collective, but not leave.
        self.tcp.told_to_fail(At::JOINING, u64::MAX)?;
        self.tcp.miss(At::JOINING, |_| true)
    }

    fn in_time(&self, rank: usize) -> Result<(), CommError> {
        match self.start.elapsed() {
            waited if waited > self.limit => Err(At::JOINING.silent(rank, waited.as_secs_f64())),
            _ => Ok(()),
        }
    }

    /// Lets all ranks above this one in, and notes where each listens.
    fn receive(
        &mut self,
        listener: &TcpListener,
        addresses: &mut [SocketAddr],
    ) -> Result<(), CommError> {
        let ready = listener.set_nonblocking(true);
        ready.map_err(|e| system("listen for other ranks", e))?;
        let mut door = Door {
            listener,
            waiting: Waiting::default(),
            halves: Vec::new(),
        };
        loop {
            let mut above = self.spec.rank + 1..self.spec.size;
            let missing = above.find(|&r| self.tcp.links.iter().all(|link| link.rank != r));
            let Some(missing) = missing else {
                return Ok(());
            };
            self.in_time(missing)?;
            door.serve(self, addresses)?;
            self.attend()?;
        }
    }
}

fn connect(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, ANSWER) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// Either all ranks reach rank 0 within one machine, or none does: else some could not reach the others.
pub(super) fn same_reach(addresses: &[SocketAddr]) -> Result<(), CommError> {
    let inside = |at: &&SocketAddr| at.ip().is_loopback();
    let count = addresses.iter().filter(inside).count();
    match addresses.iter().position(|at| at.ip().is_loopback()) {
        Some(at) if count < addresses.len() => Err(system(
            "tell the ranks where the others are",
            format!(
                "rank {} listens on {}, out of reach of other machines: MASTER_ADDR must be an address, or a name that means the same on all nodes",
                at + 1,
                addresses[at].ip(),
            ),
        )),
        _ => Ok(()),
    }
}

fn entry(at: SocketAddr) -> [u8; ENTRY] {
    let ip = match at.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ENTRY];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&at.port().to_le_bytes());
    bytes
}

fn address(entry: &[u8; ENTRY]) -> SocketAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&entry[..16]);
    let port = u16::from_le_bytes([entry[16], entry[17]]);
    SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port)
}

/// Where ranks come in. Whatever comes from strangers costs a bounded read and changes nothing.
struct Door<'a> {
    listener: &'a TcpListener,
    waiting: Waiting<TcpStream>,
    /// First connections of ranks whose second is still to come.
    halves: Vec<(usize, TcpStream)>,
}

impl Door<'_> {
    /// One round of at most a beat.
    fn serve(
        &mut self,
        party: &mut Party<'_>,
        addresses: &mut [SocketAddr],
    ) -> Result<(), CommError> {
        let known = party.tcp.links.iter().map(|link| &link.control);
        let halves = self.halves.iter().map(|(_, stream)| stream);
        let mut fds: Vec<PollFd<'_>> =
            [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)].into();
        for stream in self.waiting.streams().chain(known).chain(halves) {
            fds.push(PollFd::new(stream.as_fd(), PollFlags::POLLIN));
        }
        if sleep(&mut fds, BEAT).is_err() {
            std::thread::sleep(BEAT);
        }
        for (rank, stream) in &self.halves {
            if matches!(stream.peek(&mut [0]), Ok(0)) {
                return Err(At::JOINING.died(*rank));
            }
        }
        for _ in 0..PENDING {
            let Ok((stream, _)) = self.listener.accept() else {
                break;
            };
            if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
                self.waiting.greet(stream);
            }
        }
        for newcomer in self.waiting.replies() {
            self.admit(newcomer, party, addresses)?;
        }
        Ok(())
    }

    fn admit(
        &mut self,
        mut newcomer: Newcomer<TcpStream>,
        party: &mut Party<'_>,
        addresses: &mut [SocketAddr],
    ) -> Result<(), CommError> {
        let spec = party.spec;
        let Some(reply) = newcomer.verify(spec) else {
            return Ok(());
        };
        // Meant for a rank that listened here before.
        if reply.way.to != spec.rank {
            return Ok(());
        }
        let rank = reply.rank;
        let differs = |how: String| Err(system(&format!("admit rank {rank} to the group"), how));
        if let Err(how) = reply.fits(spec) {
            return differs(how);
        }
        let half = self.halves.iter().position(|(have, _)| *have == rank);
        let linked = party.tcp.links.iter().any(|link| link.rank == rank);
        let expected = rank > spec.rank && rank < spec.size && !linked;
        if !expected || reply.way.channel != half.map_or(CONTROL, |_| DATA) {
            return differs("that place is taken or does not exist".into());
        }
        let grant = handshake::grant(spec, &newcomer.hello, &reply);
        let Ok(from) = newcomer.stream.peer_addr() else {
            return Ok(());
        };
        if newcomer.stream.write_all(grant.as_bytes()).is_err() {
            return Ok(());
        }
        match half {
            None => {
                addresses[rank] = SocketAddr::new(from.ip().to_canonical(), reply.way.port as u16);
                self.halves.push((rank, newcomer.stream));
            }
            Some(at) => {
                let (_, control) = self.halves.remove(at);
                let link = Link::new(rank, control, newcomer.stream);
                party.tcp.links.push(link);
            }
        }
        Ok(())
    }
}
