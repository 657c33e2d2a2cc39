//! Ranks as processes: this test binary started again, told by the environment which rank to be.

use super::*;
use crate::comm::Comm;
use crate::device::Real;
use std::io::BufRead;
use std::process::{Child, Command, Stdio};

const CHILD: &str = "HAUL_TEST_COMM_CHILD";
const FAILED: i32 = 7;

fn secret(text: &str) -> [u8; 32] {
    *blake3::hash(format!("{text} {}", std::process::id()).as_bytes()).as_bytes()
}

fn options(silent: f64) -> Options {
    Options {
        spin: false,
        silent: Duration::from_secs_f64(silent),
        join: Duration::from_secs(30),
    }
}

/// Starts rank `rank` of `size`; `mode` says what it does.
fn spawn(secret: &[u8; 32], rank: usize, size: usize, mode: &str) -> Child {
    let hex: String = secret.iter().map(|b| format!("{b:02x}")).collect();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "comm::shm::tests::child", "--nocapture", "-q"])
        .env(CHILD, format!("{hex} {rank} {size} {mode}"))
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

/// Not a test of its own: a rank, when [`CHILD`] says so.
#[test]
fn child() {
    let Ok(text) = std::env::var(CHILD) else {
        return;
    };
    let words: Vec<&str> = text.split(' ').collect();
    let mut secret = [0; 32];
    for (i, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&words[0][2 * i..2 * i + 2], 16).unwrap();
    }
    let (rank, size) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let spec = Spec {
        secret: &secret,
        group: "data",
        rank,
        size,
        grads_bytes: 40_000,
    };
    let result = join(&spec, options(1.0)).and_then(|mut member| {
        println!("@joined");
        let rounds = if words[3] == "forever" { u64::MAX } else { 50 };
        rounds_of(&mut member, rounds)
    });
    match result {
        Ok(()) => println!("@done"),
        Err(error) => {
            println!("@{error}");
            std::process::exit(FAILED);
        }
    }
}

fn rounds_of(member: &mut Member, rounds: u64) -> Result<(), CommError> {
    let (rank, size) = (member.rank(), member.size());
    let memory = member.grads();
    let grads = crate::comm::tests::elements::<f32>(&memory);
    let mut all = vec![0.0; size * 3];
    for round in 0..rounds {
        let mine = (rank + 1) as f32 * (round % 1000) as f32;
        grads.fill(mine);
        member.all_reduce(Real::F32, 0, grads.len())?;
        let sum = (size * (size + 1) / 2) as f32 * (round % 1000) as f32;
        assert!(grads.iter().all(|g| *g == sum), "a wrong sum");
        member.tick();
        member.all_gather(&[rank as f64, round as f64, 1.0], &mut all)?;
        for (peer, part) in all.chunks(3).enumerate() {
            assert_eq!(part, [peer as f64, round as f64, 1.0]);
        }
        member.barrier()?;
    }
    Ok(())
}

fn signal(child: &Child, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, signal).unwrap();
}

#[test]
fn processes_agree_and_part_in_peace() {
    for size in [1, 2, 5] {
        let secret = secret("peace");
        // Rank 0 comes last: the others knock until it opens.
        let mut children: Vec<Child> = (0..size)
            .rev()
            .map(|rank| spawn(&secret, rank, size, "some"))
            .collect();
        for child in &mut children {
            assert_eq!(lines(child).last().as_deref(), Some("done"));
            assert!(child.wait().unwrap().success());
        }
    }
}

/// Kills one of several running ranks; returns it and what the others said last.
fn kill_one(round: u64, with: nix::sys::signal::Signal) -> (usize, Vec<(usize, String)>) {
    let size = 2 + (round % 3) as usize;
    let victim = (round / 3) as usize % size;
    let secret = secret(&format!("kill {round} {with}"));
    let mut children: Vec<Child> = (0..size)
        .map(|rank| spawn(&secret, rank, size, "forever"))
        .collect();
    let mut outputs: Vec<_> = children.iter_mut().map(lines).collect();
    for output in &mut outputs {
        assert_eq!(output.next().as_deref(), Some("joined"));
    }
    // Anywhere in the loop, which takes well under a millisecond a round.
    std::thread::sleep(Duration::from_micros(round * 7919 % 20_000));
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

/// 20 kills, or as many as `HAUL_TEST_KILLS` says.
#[test]
fn a_killed_rank_is_named_by_all_others() {
    let kills = std::env::var("HAUL_TEST_KILLS").map_or(20, |text| text.parse().unwrap());
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
    let left = std::fs::read_dir("/dev/shm").map_or(0, |entries| {
        let names = entries.map_while(Result::ok).map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().contains("haul"))
            .count()
    });
    assert_eq!(left, 0, "files left in /dev/shm");
}

#[test]
fn a_stopped_rank_is_named_by_all_others() {
    for round in [4, 7] {
        let (victim, said) = kill_one(round, nix::sys::signal::Signal::SIGSTOP);
        for (rank, text) in said {
            let want = format!("rank {victim} has shown no progress for ");
            assert!(text.starts_with(&want), "rank {rank}: {text}");
        }
    }
}

/// Garbage, silence, a wrong secret and a replayed reply come first; then the group forms as if nothing had been.
#[test]
fn strangers_at_the_socket_do_no_harm() {
    let secret = secret("strangers");
    let spec = |rank| Spec {
        secret: &secret,
        group: "data",
        rank,
        size: 2,
        grads_bytes: 64,
    };
    std::thread::scope(|scope| {
        let leader = scope.spawn(move || join(&spec(0), options(30.0)).unwrap());
        let address = SocketAddr::from_abstract_name(handshake::socket_name(&spec(1))).unwrap();
        let connect = || loop {
            match UnixStream::connect_addr(&address) {
                Ok(stream) => break stream,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let silent = connect();
        let mut garbage = connect();
        let _ = garbage.write_all(&[0xa5; 4096]);
        let mut short = connect();
        short.write_all(b"rank 1").unwrap();
        drop(short);
        let flood: Vec<UnixStream> = (0..2 * PENDING).map(|_| connect()).collect();
        let wrong = [1; 32];
        let liar = Spec {
            secret: &wrong,
            ..spec(1)
        };
        assert!(!matches!(enter(&liar, &connect()), Ok(Some(_))));
        // A reply to another hello proves nothing.
        let replay = |stream: &mut UnixStream| {
            let mut hello = [0; HELLO];
            stream.read_exact(&mut hello).unwrap();
            let reply = Reply::new(&spec(1), Way::default()).unwrap();
            reply.to_bytes(&spec(1), &Hello::new().unwrap())
        };
        let mut stream = connect();
        let reply = replay(&mut stream);
        stream.write_all(&reply).unwrap();
        assert_eq!(stream.read(&mut [0; 64]).unwrap_or(0), 0, "no grant");

        let mut follower = join(&spec(1), options(30.0)).unwrap();
        let mut leader = leader.join().unwrap();
        let one = scope.spawn(move || leader.barrier().map(|_| leader));
        follower.barrier().unwrap();
        let _leader = one.join().unwrap().unwrap();
        drop((silent, garbage, flood));
    });
}

#[test]
fn a_rank_that_joins_and_ends_before_the_group_is_complete_is_named() {
    let secret = secret("early");
    let spec = |rank| Spec {
        secret: &secret,
        group: "data",
        rank,
        // Rank 3 never comes.
        size: 4,
        grads_bytes: 64,
    };
    let (error, other) = std::thread::scope(|scope| {
        let leader = scope.spawn(move || join(&spec(0), options(30.0)).err().unwrap());
        let mut waiting = join(&spec(2), options(30.0)).unwrap();
        let address = SocketAddr::from_abstract_name(handshake::socket_name(&spec(1))).unwrap();
        let stream = UnixStream::connect_addr(&address).unwrap();
        assert!(enter(&spec(1), &stream).unwrap().is_some());
        drop(stream);
        let other = waiting.barrier().unwrap_err();
        (leader.join().unwrap(), other)
    });
    for error in [error, other] {
        assert!(
            matches!(error, CommError::PeerDied { rank: 1, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_server_without_the_secret_gets_nobody() {
    let secret = secret("impostor");
    let spec = Spec {
        secret: &secret,
        group: "data",
        rank: 1,
        size: 2,
        grads_bytes: 64,
    };
    let address = SocketAddr::from_abstract_name(handshake::socket_name(&spec)).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&Hello::new().unwrap().to_bytes()).unwrap();
        let memory = memfd::create(4096).unwrap();
        fd::send_fd(&stream, &[7; 32], memory.as_fd()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let short = Options {
        join: Duration::from_millis(300),
        ..Options::default()
    };
    let error = join(&spec, short).err().unwrap();
    assert!(
        matches!(error, CommError::PeerSilent { rank: 0, .. }),
        "{error}"
    );
    impostor.join().unwrap();
}

#[test]
fn ranks_with_other_plans_missing_ranks_and_too_much_memory_are_errors() {
    let secret = secret("plans");
    let spec = |rank, size, grads_bytes| Spec {
        secret: &secret,
        group: "data",
        rank,
        size,
        grads_bytes,
    };
    let short = Options {
        join: Duration::from_millis(500),
        ..Options::default()
    };
    let other = std::thread::spawn(move || {
        let spec = Spec {
            secret: &secret,
            group: "data",
            rank: 1,
            size: 2,
            grads_bytes: 128,
        };
        join(&spec, short).err().unwrap()
    });
    let error = join(&spec(0, 2, 64), short).err().unwrap().to_string();
    assert!(
        error.contains("admit rank 1") && error.contains("2 ranks with 128"),
        "{error}"
    );
    other.join().unwrap();
    let error = join(&spec(0, 3, 64), short).err().unwrap();
    assert!(
        matches!(error, CommError::PeerSilent { rank: 1, .. }),
        "{error}"
    );
    let error = join(&spec(0, 2, 1 << 50), short).err().unwrap().to_string();
    assert!(error.contains("MiB of shared memory"), "{error}");
    assert!(join(&spec(2, 2, 64), short).is_err());
}
