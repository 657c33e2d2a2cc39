//! Two ranks of one thread against one rank of one thread, each with the same batch, taken in turns: ABAB.

use super::{Random, median, medium, processor_seconds};
use haul_runtime::blueprint::Blueprint;
use haul_runtime::comm::{Member, Options, Spec, local, shm};
use haul_runtime::contract::Mesh;
use haul_runtime::device::cpu::CpuDevice;
use haul_runtime::train::Trainer;
use haul_runtime::train::step::Unobserved;
use std::process::Command;
use std::time::Duration;

/// Set in the process that is rank 1: the secret and the number of steps.
const PEER: &str = "HAUL_BENCH_PEER";
const RANKS: usize = 2;
/// Sequences of a rank.
const LOCAL: usize = 8;

pub(crate) fn is_peer() -> bool {
    std::env::var_os(PEER).is_some()
}

fn blueprint(rank: usize) -> Blueprint {
    let mesh = Mesh {
        data: RANKS,
        ..Mesh::SERIAL
    };
    Blueprint::new(&medium(LOCAL, RANKS * LOCAL), &mesh, rank).unwrap()
}

fn join(hex: &str, rank: usize, grads: usize) -> Member {
    let secret = blake3::Hash::from_hex(hex).unwrap();
    let spec = Spec {
        secret: secret.as_bytes(),
        group: "bench",
        rank,
        size: RANKS,
        grads_bytes: grads * size_of::<f32>(),
    };
    // Rank 1 waits while rank 0 takes the steps of the single one.
    let options = Options {
        spin: true,
        silent: Duration::from_secs(600),
        ..Options::default()
    };
    shm::join(&spec, options).unwrap()
}

/// Rank 1.
pub(crate) fn peer() {
    let text = std::env::var(PEER).unwrap();
    let (hex, count) = text.split_once(' ').unwrap();
    let blueprint = blueprint(1);
    let mut comm = join(hex, 1, blueprint.sizes.grads);
    let mut device = CpuDevice::new(1).unwrap();
    let mut pair = Trainer::new(&blueprint, &mut device, &mut comm, &Random).unwrap();
    pair.init_weights();
    for _ in 0..count.parse::<usize>().unwrap() {
        pair.comm.barrier().unwrap();
        pair.restart_clock();
        pair.step(&mut Unobserved).unwrap();
    }
}

/// Prints the ratio of the rates, by the clock and by processor time.
pub(crate) fn compare(count: usize) {
    let hex = blake3::hash(&std::process::id().to_le_bytes()).to_hex();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .env(PEER, format!("{hex} {}", count + 1))
        .spawn()
        .unwrap();
    let both = blueprint(0);
    let mut comm = join(&hex, 0, both.sizes.grads);
    let mut device = CpuDevice::new(1).unwrap();
    let mut pair = Trainer::new(&both, &mut device, &mut comm, &Random).unwrap();
    pair.init_weights();

    let alone = Blueprint::new(&medium(LOCAL, LOCAL), &Mesh::SERIAL, 0).unwrap();
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let mut device = CpuDevice::new(1).unwrap();
    let mut single = Trainer::new(&alone, &mut device, &mut comm, &Random).unwrap();
    single.init_weights();

    println!(
        "\n30M model, one rank of 1 thread (A) and 2 ranks of 1 thread over shm (B), {LOCAL} sequences a rank"
    );
    let (mut ones, mut twos, mut ratios, mut cpu_ratios) = (vec![], vec![], vec![], vec![]);
    for round in 0..=count {
        let used = processor_seconds();
        single.restart_clock();
        let one = single.step(&mut Unobserved).unwrap();
        let one_cpu = processor_seconds() - used;
        pair.comm.barrier().unwrap();
        let used = processor_seconds();
        pair.restart_clock();
        let two = pair.step(&mut Unobserved).unwrap();
        let two_cpu = processor_seconds() - used;
        if round == 0 {
            continue;
        }
        println!(
            "A {:.3} s ({one_cpu:.3} processor s), B {:.3} s ({two_cpu:.3} processor s of rank 0), {:.3?}",
            one.seconds,
            two.seconds,
            two.phases.finish(two.seconds)
        );
        ones.push(one.seconds);
        twos.push(two.seconds);
        ratios.push(one.seconds / two.seconds);
        cpu_ratios.push(one_cpu / two_cpu);
    }
    other.wait().unwrap();
    println!(
        "efficiency of 2 ranks: {:.3} (medians {:.3} s and {:.3} s; median of the ratios {:.3}, by processor time {:.3})",
        median(&ones) / median(&twos),
        median(&ones),
        median(&twos),
        median(&ratios),
        median(&cpu_ratios)
    );
}
