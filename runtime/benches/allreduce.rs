//! All-reduce of 64 MB between 2 ranks in place: processes over `shm`, processes over `tcp` and loopback, threads over `local`.
//!
//! `cargo bench -p haul-runtime --bench allreduce`; the comparison is gloo, 45 ms on the machine of its measurement.

use haul_runtime::comm::{Comm, CommError, Options, Spec, local, shm, tcp};
use haul_runtime::device::Real;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::Instant;

const BYTES: usize = 64 << 20;
const ROUNDS: usize = 30;
const RANKS: usize = 2;
/// Set in the process that is rank 1: the secret, and the port of rank 0 where it is tcp.
const PEER: &str = "HAUL_BENCH_PEER";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options {
        spin: std::thread::available_parallelism()?.get() >= RANKS,
        ..Options::default()
    };
    if let Ok(text) = std::env::var(PEER) {
        measure(&mut *join(&text, 1, options)?)?;
        return Ok(());
    }
    let hex = blake3::hash(&std::process::id().to_le_bytes()).to_hex();
    let port = free_port()?;
    for (name, text) in [
        ("shm, 2 processes", hex.to_string()),
        ("tcp, 2 processes", format!("{hex} {port}")),
    ] {
        let mut peer = Command::new(std::env::current_exe()?)
            .env(PEER, &text)
            .spawn()?;
        report(name, measure(&mut *join(&text, 0, options)?)?);
        peer.wait()?;
    }

    let members = local::group_with(RANKS, BYTES, options)?;
    let times = std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .map(|mut member| scope.spawn(move || measure(&mut member)))
            .collect();
        let mut results = threads.into_iter().map(|thread| thread.join());
        results.next()
    });
    match times {
        Some(Ok(times)) => report("local, 2 threads", times?),
        _ => return Err("a rank panicked".into()),
    }
    Ok(())
}

/// Below the range from which the kernel takes ports by itself.
fn free_port() -> std::io::Result<u16> {
    (20_000..32_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| std::io::Error::other("no free port from 20000 to 31999"))
}

fn join(
    text: &str,
    rank: usize,
    options: Options,
) -> Result<Box<dyn Comm>, Box<dyn std::error::Error>> {
    let (hex, port) = match text.split_once(' ') {
        Some((hex, port)) => (hex, Some(port.parse()?)),
        None => (text, None),
    };
    let secret = blake3::Hash::from_hex(hex)?;
    let spec = Spec {
        secret: secret.as_bytes(),
        group: "bench",
        rank,
        size: RANKS,
        grads_bytes: BYTES,
    };
    Ok(match port {
        Some(port) => Box::new(tcp::join(
            &spec,
            ("127.0.0.1", port),
            rank..rank + 1,
            options,
        )?),
        None => Box::new(shm::join(&spec, options)?),
    })
}

/// Seconds of each round: all-reduces of the whole memory, then barriers alone.
fn measure(member: &mut dyn Comm) -> Result<(Vec<f64>, Vec<f64>), CommError> {
    let mut reduces = Vec::new();
    let mut barriers = Vec::new();
    for _ in 0..ROUNDS {
        member.barrier()?;
        let start = Instant::now();
        member.all_reduce(Real::F32, 0, BYTES / 4)?;
        reduces.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        for _ in 0..100 {
            member.barrier()?;
        }
        barriers.push(start.elapsed().as_secs_f64() / 100.0);
    }
    Ok((reduces, barriers))
}

fn report(name: &str, (reduces, barriers): (Vec<f64>, Vec<f64>)) {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        (values[values.len() / 2], values[0])
    };
    let (middle, least) = median(reduces);
    let (barrier, _) = median(barriers);
    println!(
        "{name}: 64 MB all-reduce median {:.2} ms, best {:.2} ms ({:.1} GB/s of bus), barrier {:.1} us",
        middle * 1e3,
        least * 1e3,
        BYTES as f64 / middle / 1e9,
        barrier * 1e6,
    );
}
