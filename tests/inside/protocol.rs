//! The supervisor's port and claims: strangers do no harm, doubles leave.

use crate::bench::{Bench, trainer, wait};
use haul::control::auth::{Nonce, Secret, Side};
use haul::control::{Answer, Challenge, Decoder, Hello, PROTOCOL, Up, encode};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

fn port(bench: &Bench) -> SocketAddr {
    let script = bench.attempt(1).join("launch.sh");
    wait("launch.sh", || script.exists());
    let text = std::fs::read_to_string(script).unwrap();
    let (_, rest) = text.split_once("--supervisor ").unwrap();
    let address = rest.split_whitespace().next().unwrap();
    address.trim_matches('\'').parse().unwrap()
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// Whether the other side has closed the connection without a word more.
fn is_closed(mut stream: TcpStream) -> bool {
    matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_))
}

fn hello(attempt: u32, rank: usize) -> Hello {
    Hello {
        protocol: PROTOCOL,
        attempt,
        rank: Some(rank),
        node: "local0".into(),
        nonce: Nonce::new([1; 32]),
        pid: 1,
    }
}

fn challenge(stream: &mut TcpStream) -> Challenge {
    let mut decoder = Decoder::new(1024);
    loop {
        if let Some(challenge) = decoder.message().unwrap() {
            return challenge;
        }
        let mut chunk = [0; 256];
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0);
        decoder.push(&chunk[..n]);
    }
}

#[test]
fn garbage_wrong_secrets_and_second_shims_change_nothing() {
    let bench = Bench::new(&trainer(100_000, "0.02", 5));
    let mut supervisor = bench.supervise();
    bench.wait_for_step(1, 3);
    let at = port(&bench);

    let mut garbage = connect(at);
    garbage
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert!(is_closed(garbage));
    let mut oversize = connect(at);
    oversize.write_all(&u32::MAX.to_be_bytes()).unwrap();
    assert!(is_closed(oversize));
    let mut json = connect(at);
    json.write_all(&encode(&Up::Beat { lines: Vec::new() }).unwrap())
        .unwrap();
    assert!(is_closed(json));
    for (attempt, rank) in [(2, 0), (1, 2), (1, usize::MAX)] {
        let mut stranger = connect(at);
        stranger
            .write_all(&encode(&hello(attempt, rank)).unwrap())
            .unwrap();
        assert!(is_closed(stranger), "attempt {attempt} rank {rank}");
    }
    let hello = hello(1, 0);
    let prove = |secret: &Secret| {
        let mut stream = connect(at);
        stream.write_all(&encode(&hello).unwrap()).unwrap();
        let challenge = challenge(&mut stream);
        let proof = secret.proof(Side::Shim, &hello.nonce, &challenge.nonce);
        stream
            .write_all(&encode(&Answer { proof }).unwrap())
            .unwrap();
        stream
    };
    let mut wrong = prove(&Secret::new([0; 32]));
    let abort = encode(&Up::Exit(Default::default())).unwrap();
    // It may be closed already.
    let _ = wrong.write_all(&abort);
    assert!(is_closed(wrong));
    // A replay of the secret's holder: rank 0 has a shim already.
    let secret = std::fs::read(bench.attempt(1).join("secret")).unwrap();
    let mut second = prove(&Secret::parse(&secret).unwrap());
    let _ = second.write_all(&abort);
    assert!(is_closed(second));
    // Many that say nothing.
    let silent: Vec<TcpStream> = (0..80).map(|_| connect(at)).collect();

    let step = *bench.steps(1).last().unwrap();
    bench.wait_for_step(1, step + 3);
    assert!(bench.rank_event(1, 0, "exit").is_none());
    drop(silent);
    bench.ask("cancel");
    assert_eq!(supervisor.wait(), 4);
    bench.assert_clean();
}

#[test]
fn of_two_jobs_of_a_slot_one_launches() {
    let bench = Bench::new(&trainer(20, "0.02", 5));
    let mut supervisors: Vec<_> = (0..4)
        .map(|i| bench.supervise_as(&format!("twin-{i}")))
        .collect();
    for supervisor in &mut supervisors {
        assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    }
    assert_eq!(bench.events("claimed").len(), 1);
    assert_eq!(bench.events("double").len(), 3);
    assert_eq!(bench.events("attempt").len(), 1);
    let doubles = supervisors
        .iter()
        .filter(|s| s.output().contains("is a double of job twin-"));
    assert_eq!(doubles.count(), 3);
    bench.assert_clean();
}

#[test]
fn a_tombstone_closes_the_run_before_its_job_starts() {
    use haul::store::{
        RunDir,
        journal::{Event, Journal},
    };
    let bench = Bench::new(&trainer(5, "0.02", 5));
    let mut journal = Journal::open(&RunDir::new(&bench.run), "submitter").unwrap();
    journal
        .append(Event::Tombstone {
            reason: "not needed".into(),
        })
        .unwrap();
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 0);
    assert!(supervisor.output().contains("cancelled: not needed"));
    assert!(!bench.attempt(1).exists());
}
