//! All-reduce of 64 MB between 2 ranks in place: processes over `shm`, threads over `local`.
//!
//! `cargo bench -p haul-runtime --bench allreduce`; the comparison is gloo, 45 ms on the machine of its measurement.

use haul_runtime::comm::{Comm, CommError, Member, Options, local, shm};
use haul_runtime::device::Real;
use std::process::Command;
use std::time::Instant;

const BYTES: usize = 64 << 20;
const ROUNDS: usize = 30;
const RANKS: usize = 2;
/// Set in the process that is rank 1.
const PEER: &str = "HAUL_BENCH_SECRET";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options {
        spin: std::thread::available_parallelism()?.get() >= RANKS,
        ..Options::default()
    };
    if let Ok(hex) = std::env::var(PEER) {
        measure(&mut join(&hex, 1, options)?)?;
        return Ok(());
    }
    let hex = blake3::hash(&std::process::id().to_le_bytes()).to_hex();
    let mut peer = Command::new(std::env::current_exe()?)
        .env(PEER, hex.as_str())
        .spawn()?;
    report("shm, 2 processes", measure(&mut join(&hex, 0, options)?)?);
    peer.wait()?;

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

fn join(hex: &str, rank: usize, options: Options) -> Result<Member, Box<dyn std::error::Error>> {
    let secret = blake3::Hash::from_hex(hex)?;
    let spec = shm::Spec {
        secret: secret.as_bytes(),
        group: "bench",
        rank,
        size: RANKS,
        grads_bytes: BYTES,
    };
    Ok(shm::join(&spec, options)?)
}

/// Seconds of each round: all-reduces of the whole memory, then barriers alone.
fn measure(member: &mut Member) -> Result<(Vec<f64>, Vec<f64>), CommError> {
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
