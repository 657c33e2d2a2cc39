//! Ranks over loopback: as threads where all end in peace, as processes where one is killed.

use super::super::handshake::{self, HELLO, Hello, PENDING, Reply, Way};
use super::*;
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

const HOST: &str = "127.0.0.1";
const CHILD: &str = "HAUL_TEST_TCP_CHILD";
const FAILED: i32 = 7;

/// A port below those the kernel takes by itself; no two calls of one process get the same.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 50 * 200) as u16;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if TcpListener::bind((HOST, port)).is_ok() {
            return port;
        }
    }
}

fn secret(text: &str) -> [u8; 32] {
    *blake3::hash(format!("{text} {}", std::process::id()).as_bytes()).as_bytes()
}

fn spec(secret: &[u8; 32], rank: usize, size: usize, grads_bytes: usize) -> Spec<'_> {
    Spec {
        secret,
        group: "data",
        rank,
        size,
        grads_bytes,
    }
}

fn options(silent: f64, join: f64) -> Options {
    Options {
        spin: false,
        silent: Duration::from_secs_f64(silent),
        join: Duration::from_secs_f64(join),
    }
}

/// Joins as the only rank of its node.
fn join_alone(spec: &Spec<'_>, port: u16, options: Options) -> Result<Tcp, CommError> {
    join(spec, (HOST, port), spec.rank..spec.rank + 1, options)
}

/// Ranks of the node of `rank`.
fn node(rank: usize, each: usize, size: usize) -> std::ops::Range<usize> {
    let first = rank - rank % each;
    first..(first + each).min(size)
}

/// A group in rank order; its last rank comes first.
pub(in super::super) fn group(size: usize, bytes: usize, options: Options) -> Vec<Tcp> {
    group_at(HOST, 1, size, bytes, options)
}

/// The same on nodes of `each` ranks, the last may have less.
pub(in super::super) fn group_at(
    host: &str,
    each: usize,
    size: usize,
    bytes: usize,
    options: Options,
) -> Vec<Tcp> {
    let port = port();
    let secret = secret(&format!("group {port}"));
    thread::scope(|scope| {
        let mut threads: Vec<_> = (0..size)
            .rev()
            .map(|rank| {
                let spec = spec(&secret, rank, size, bytes);
                scope.spawn(move || {
                    join(&spec, (host, port), node(rank, each, size), options).unwrap()
                })
            })
            .collect();
        threads.reverse();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// A reduce of many chunks a slice, over uneven slices, has the bits of the one over memory.
#[test]
fn large_reduces_have_the_bits_of_local_memory() {
    let len = 3 * (1 << 20) + 77;
    let value = |rank: usize, i: usize| {
        ((i * 31 + rank * 977) % 10_007) as f32 * 1.7f32.powi(rank as i32 * 9)
    };
    fn reduced(mut member: impl Comm, len: usize, value: impl Fn(usize, usize) -> f32) -> Vec<f32> {
        let memory = member.grads();
        let grads = crate::comm::tests::elements::<f32>(&memory);
        let rank = member.rank();
        grads
            .iter_mut()
            .enumerate()
            .for_each(|(i, g)| *g = value(rank, i));
        member.all_reduce(Real::F32, 5, len - 5).unwrap();
        grads.to_vec()
    }
    for (size, each) in [(2, 1), (3, 1), (3, 2), (4, 2)] {
        let over_tcp = group_at(HOST, each, size, len * 4, Options::default());
        let over_memory = crate::comm::local::group(size, len * 4).unwrap();
        thread::scope(|scope| {
            let tcp: Vec<_> = over_tcp
                .into_iter()
                .map(|m| scope.spawn(move || reduced(m, len, value)))
                .collect();
            let local: Vec<_> = over_memory
                .into_iter()
                .map(|m| scope.spawn(move || reduced(m, len, value)))
                .collect();
            for (one, other) in tcp.into_iter().zip(local) {
                let (one, other) = (one.join().unwrap(), other.join().unwrap());
                assert!(
                    one.iter()
                        .zip(&other)
                        .all(|(a, b)| a.to_bits() == b.to_bits())
                );
            }
        });
    }
}

/// Starts rank `rank` of `size`.
fn spawn(secret: &[u8; 32], rank: usize, (size, each): (usize, usize), port: u16) -> Child {
    let hex = blake3::Hash::from_bytes(*secret).to_hex();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "comm::tcp::tests::child", "--nocapture", "-q"])
        .env(CHILD, format!("{hex} {rank} {size} {port} {each}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lines a child wrote after its harness' own, marked with `@`.
fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let out = std::io::BufReader::new(child.stdout.take().unwrap());
    out.lines()
        .map_while(Result::ok)
        .filter_map(|line| Some(line.split_once('@')?.1.to_owned()))
}

/// Not a test of its own: a rank that goes on until a peer fails, when [`CHILD`] says so.
#[test]
fn child() {
    let Ok(text) = std::env::var(CHILD) else {
        return;
    };
    let words: Vec<&str> = text.split(' ').collect();
    let secret = blake3::Hash::from_hex(words[0]).unwrap();
    let (rank, size) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let spec = spec(secret.as_bytes(), rank, size, 4 << 20);
    let port = words[3].parse().unwrap();
    let forever = |mut member: Tcp| -> Result<(), CommError> {
        println!("@joined");
        let memory = member.grads();
        let grads = crate::comm::tests::elements::<f32>(&memory);
        let mut all = vec![0.0; size * 3];
        for round in 0u64.. {
            grads.fill((rank + 1) as f32 * (round % 1000) as f32);
            member.all_reduce(Real::F32, 0, grads.len())?;
            let sum = (size * (size + 1) / 2) as f32 * (round % 1000) as f32;
            assert!(grads.iter().all(|g| *g == sum), "a wrong sum");
            member.tick();
            member.all_gather(&[rank as f64, round as f64, 1.0], &mut all)?;
            for (peer, part) in all.chunks(3).enumerate() {
                assert_eq!(part, [peer as f64, round as f64, 1.0]);
            }
            member.barrier()?;
            member.check()?;
        }
        Ok(())
    };
    let node = node(rank, words[4].parse().unwrap(), size);
    let result = join(&spec, (HOST, port), node, options(1.0, 30.0)).and_then(forever);
    println!("@{}", result.unwrap_err());
    std::process::exit(FAILED);
}

fn signal(child: &Child, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, signal).unwrap();
}

/// Stops one of several running ranks with a signal; returns it and what the others said last.
fn kill_one(round: u64, with: nix::sys::signal::Signal) -> (usize, Vec<(usize, String)>) {
    let size = 2 + (round % 3) as usize;
    let victim = (round / 3) as usize % size;
    // Every other group has nodes of two ranks.
    let each = 1 + (round % 2) as usize;
    let (secret, port) = (secret(&format!("kill {round} {with}")), port());
    let mut children: Vec<Child> = (0..size)
        .map(|rank| spawn(&secret, rank, (size, each), port))
        .collect();
    let mut outputs: Vec<_> = children.iter_mut().map(lines).collect();
    for output in &mut outputs {
        assert_eq!(output.next().as_deref(), Some("joined"));
    }
    // Anywhere in the loop, which takes a few milliseconds a round.
    thread::sleep(Duration::from_micros(round * 7919 % 50_000));
    signal(&children[victim], with);
    let mut said = Vec::new();
    for rank in (0..size).filter(|&rank| rank != victim) {
        said.push((rank, outputs[rank].by_ref().last().unwrap_or_default()));
        assert_eq!(children[rank].wait().unwrap().code(), Some(FAILED));
    }
    signal(&children[victim], nix::sys::signal::Signal::SIGKILL);
    children[victim].wait().unwrap();
    (victim, said)
}

/// 12 kills, or as many as `HAUL_TEST_KILLS` says.
#[test]
fn a_killed_rank_is_named_by_all_others() {
    let kills = std::env::var("HAUL_TEST_KILLS").map_or(12, |text| text.parse().unwrap());
    for round in 0..kills {
        let (victim, said) = kill_one(round, nix::sys::signal::Signal::SIGKILL);
        for (rank, text) in said {
            let want = format!("rank {victim} is gone, noticed in ");
            assert!(
                text.starts_with(&want),
                "round {round}, rank {rank}: {text}"
            );
        }
    }
}

#[test]
fn a_stopped_rank_is_named_by_all_others() {
    for round in [4, 7, 11] {
        let (victim, said) = kill_one(round, nix::sys::signal::Signal::SIGSTOP);
        for (rank, text) in said {
            let want = format!("rank {victim} has shown no progress for ");
            assert!(
                text.starts_with(&want),
                "round {round}, rank {rank}: {text}"
            );
        }
    }
}

/// Knocks until somebody listens.
fn knock(port: u16) -> TcpStream {
    loop {
        match TcpStream::connect((HOST, port)) {
            Ok(stream) => break stream,
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// What the door answers to a reply made by `reply`: nothing, unless it lets in.
fn answer(port: u16, reply: impl Fn(&Hello) -> [u8; handshake::REPLY]) -> usize {
    let mut stream = knock(port);
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut hello = [0; HELLO];
    stream.read_exact(&mut hello).unwrap();
    stream
        .write_all(&reply(&Hello::from_bytes(&hello).unwrap()))
        .unwrap();
    stream.read(&mut [0; 64]).unwrap_or(0)
}

/// Garbage, silence, floods, wrong secrets and replayed replies come first; then the group forms as if nothing had been.
#[test]
fn strangers_at_the_port_do_no_harm() {
    let (secret, port) = (secret("strangers"), port());
    let spec = |rank| spec(&secret, rank, 2, 64);
    let way = Way {
        to: 0,
        channel: 1,
        port: 9,
    };
    thread::scope(|scope| {
        let leader = scope.spawn(move || join_alone(&spec(0), port, options(30.0, 60.0)).unwrap());
        let silent = knock(port);
        let mut garbage = knock(port);
        let _ = garbage.write_all(&[0xa5; 4096]);
        let mut short = knock(port);
        short.write_all(b"rank 1").unwrap();
        drop(short);
        let flood: Vec<TcpStream> = (0..2 * PENDING).map(|_| knock(port)).collect();
        let wrong = [1; 32];
        let liar = Spec {
            secret: &wrong,
            ..spec(1)
        };
        let of_liar = |hello: &Hello| Reply::new(&liar, way).unwrap().to_bytes(&liar, hello);
        assert_eq!(answer(port, of_liar), 0, "no grant for another secret");
        // A reply to another hello proves nothing, nor does one that was meant for another rank.
        let replayed = |_: &Hello| {
            let other = Hello::new().unwrap();
            Reply::new(&spec(1), way)
                .unwrap()
                .to_bytes(&spec(1), &other)
        };
        assert_eq!(answer(port, replayed), 0, "no grant for a replay");
        let elsewhere = Way { to: 1, ..way };
        let astray = |hello: &Hello| {
            Reply::new(&spec(1), elsewhere)
                .unwrap()
                .to_bytes(&spec(1), hello)
        };
        assert_eq!(answer(port, astray), 0, "no grant at another rank's door");

        let mut follower = join_alone(&spec(1), port, options(30.0, 60.0)).unwrap();
        let mut leader = leader.join().unwrap();
        let one = scope.spawn(move || leader.barrier().map(|_| leader));
        follower.barrier().unwrap();
        let _leader = one.join().unwrap().unwrap();
        drop((silent, garbage, flood));
    });
}

#[test]
fn a_listener_without_the_secret_gets_nobody() {
    let (secret, port) = (secret("impostor"), port());
    let listener = TcpListener::bind((HOST, port)).unwrap();
    let impostor = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&Hello::new().unwrap().to_bytes()).unwrap();
        stream.write_all(&[7; 32]).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = join_alone(&spec(&secret, 1, 2, 64), port, options(1.0, 0.3))
        .err()
        .unwrap();
    let text = error.to_string();
    assert!(text.contains("reach rank 0 within 0.3 s"), "{text}");
    impostor.join().unwrap();
}

/// Rank 1 joins and ends before rank 3 comes: all are told, also those that wait for rank 3 themselves.
#[test]
fn a_rank_that_joins_and_ends_before_the_group_is_complete_is_named() {
    let (secret, port) = (secret("early"), port());
    let spec = |rank| spec(&secret, rank, 4, 64);
    let errors = thread::scope(|scope| {
        let others = [0, 2].map(|rank| {
            scope.spawn(move || {
                join_alone(&spec(rank), port, options(30.0, 60.0))
                    .err()
                    .unwrap()
            })
        });
        let party = |channel| {
            let mut stream = knock(port);
            let mut hello = [0; HELLO];
            stream.read_exact(&mut hello).unwrap();
            let hello = Hello::from_bytes(&hello).unwrap();
            let way = Way {
                to: 0,
                channel,
                port: 9,
            };
            let reply = Reply::new(&spec(1), way).unwrap();
            stream.write_all(&reply.to_bytes(&spec(1), &hello)).unwrap();
            stream.read_exact(&mut [0; 32]).unwrap();
            stream
        };
        let both = [party(1), party(2)];
        thread::sleep(Duration::from_millis(300));
        drop(both);
        others.map(|other| other.join().unwrap())
    });
    for error in errors {
        assert!(
            matches!(error, CommError::PeerDied { rank: 1, .. }),
            "{error}"
        );
    }
}

#[test]
fn ranks_with_other_plans_missing_ranks_and_taken_ports_are_errors() {
    let (secret, first) = (secret("plans"), port());
    let joined = |rank, size, bytes, port, limit| {
        let error = join_alone(
            &spec(&secret, rank, size, bytes),
            port,
            options(30.0, limit),
        )
        .err();
        error.map_or("joined".into(), |error| error.to_string())
    };
    thread::scope(|scope| {
        scope.spawn(move || joined(1, 2, 128, first, 1.0));
        let text = joined(0, 2, 64, first, 30.0);
        assert!(
            text.contains("admit rank 1") && text.contains("2 ranks with 128"),
            "{text}"
        );
    });
    let text = joined(0, 2, 64, port(), 0.3);
    assert!(text.contains("rank 1 has shown no progress"), "{text}");
    let taken = port();
    let _listener = TcpListener::bind((HOST, taken)).unwrap();
    let text = joined(0, 2, 64, taken, 30.0);
    assert!(
        text.contains(&format!("listen on 127.0.0.1:{taken} (MASTER_ADDR")),
        "{text}"
    );
    assert!(joined(2, 2, 64, taken, 30.0).contains("join as rank 2 of 2"));
    assert!(joined(0, 300, 64, taken, 30.0).contains("1 to 256 ranks"));
}

/// After a rank has come to its end, those that are not yet there find nothing wrong.
#[test]
fn leaving_in_peace_is_no_failure() {
    let mut members = group(3, 64, Options::default());
    thread::scope(|scope| {
        for mut member in members.drain(1..) {
            scope.spawn(move || member.barrier().unwrap());
        }
        members[0].barrier().unwrap();
    });
    assert_eq!(members[0].check(), Ok(()));
    let error = members[0].barrier().unwrap_err();
    assert!(
        matches!(error, CommError::PeerDied { rank: 1, .. }),
        "{error}"
    );
}

#[test]
fn a_name_is_as_good_as_an_address() {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    // A machine need not know its own name.
    let known = (own.trim(), 1u16).to_socket_addrs().is_ok();
    let names = ["localhost", own.trim()]
        .into_iter()
        .take(if known { 2 } else { 1 });
    for name in names {
        let members = group_at(name, 1, 3, 64, Options::default());
        let done = thread::scope(|scope| {
            let threads = members
                .into_iter()
                .map(|mut m| scope.spawn(move || m.barrier().is_ok()));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().all(|t| t.join().unwrap())
        });
        assert!(done, "{name}");
    }
}

#[test]
fn a_rank_out_of_reach_of_the_others_is_told() {
    let at = |text: &str| text.parse().unwrap();
    assert_eq!(
        join::same_reach(&[at("127.0.0.1:5"), at("127.0.1.1:6")]),
        Ok(())
    );
    assert_eq!(
        join::same_reach(&[at("10.0.0.1:5"), at("[fd00::1]:6")]),
        Ok(())
    );
    let error = join::same_reach(&[at("10.0.0.1:5"), at("127.0.1.1:6")]).unwrap_err();
    assert!(
        error.to_string().contains("rank 2 listens on 127.0.1.1"),
        "{error}"
    );
}
