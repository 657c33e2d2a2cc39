//! A training step of the 30M model in f32: seconds, share of the multiply-add peak, where the time goes, two ranks against one.
//!
//! `cargo bench -p haul-runtime --bench step [-- STEPS] [plan | step | parallel | turns]`. Shares by processor time (`cpu`) bear other
//! work on the machine better than those by the clock, but count no idle thread.
//! `turns` takes a step for each line of the standard input: for comparisons in turns with another program (tests/peers).

#![allow(clippy::unwrap_used)]

mod parallel;
mod profile;

use haul_runtime::blueprint::Blueprint;
use haul_runtime::comm::local;
use haul_runtime::contract::config::{DataFormat, ScheduleKind};
use haul_runtime::contract::{
    Batch, Data, Mesh, Model, Optimizer, Precision, Schedule, Train, TrainConfig, Until,
};
use haul_runtime::data::DataError;
use haul_runtime::device::cpu::{CpuDevice, peak};
use haul_runtime::train::Trainer;
use haul_runtime::train::samples::Samples;
use haul_runtime::train::step::Unobserved;
use nix::time::{ClockId, clock_gettime};
use profile::Profiled;
use std::time::Instant;

const THREADS: usize = 2;

struct Random;

impl Samples for Random {
    fn read_sample(
        &self,
        n: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        for i in 0..inputs.len() as u64 {
            let token =
                |i: u64| ((n * 4096 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32 % 50304;
            (inputs[i as usize], targets[i as usize]) = (token(i), token(i + 1));
        }
        Ok(())
    }

    fn read_held_out(
        &self,
        i: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        self.read_sample(i, inputs, targets)
    }

    fn held_out_sequences(&self) -> u64 {
        0
    }
}

fn config(
    layers: usize,
    hidden: usize,
    heads: usize,
    seq_len: usize,
    vocab: usize,
    micro: usize,
) -> TrainConfig {
    TrainConfig {
        model: Model {
            layers,
            hidden,
            heads,
            ffn: 4 * hidden,
            seq_len,
            vocab,
            norm_eps: 1e-5,
            init_std: 0.02,
        },
        batch: Batch {
            micro,
            accumulation: 1,
            global: micro,
        },
        train: Train {
            until: Until::Steps(1000),
            seed: 1,
            precision: Precision::F32,
            optimizer: Optimizer {
                lr: 3e-4,
                betas: [0.9, 0.95],
                eps: 1e-8,
                weight_decay: 0.1,
                clip: 1.0,
            },
            schedule: Schedule {
                kind: ScheduleKind::Constant,
                warmup: 10,
                decay_steps: 1000,
                min_lr: 0.0,
            },
            warmup_steps: 0,
            eval_every: 0,
            eval_sequences: 0,
        },
        data: Data {
            path: "random".into(),
            format: DataFormat::Bytes,
            validation: 0.0,
        },
        zero: 0,
    }
}

fn medium(micro: usize, global: usize) -> TrainConfig {
    let mut cfg = config(6, 384, 6, 256, 50304, micro);
    cfg.batch.global = global;
    cfg
}

/// Seconds of processor time that all threads of this process have used.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
    now.tv_sec() as f64 + now.tv_nsec() as f64 * 1e-9
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Multiply-add rate in GFLOP/s: by the clock, and by processor second of one thread.
fn peak_rates() -> (f64, f64) {
    const SECONDS: f64 = 0.3;
    let start = processor_seconds();
    let rate = peak::fma_gflops(THREADS, SECONDS);
    (rate, rate * SECONDS / (processor_seconds() - start))
}

fn plans() {
    for (name, cfg) in [
        ("quickstart", config(4, 192, 4, 128, 256, 16)),
        ("30M", medium(8, 8)),
        ("175B", config(96, 12288, 96, 2048, 51200, 1)),
    ] {
        let start = Instant::now();
        let blueprint = Blueprint::new(&cfg, &Mesh::SERIAL, 0).unwrap();
        let ms = start.elapsed().as_secs_f64() * 1e3;
        println!(
            "plan {name}: {ms:.2} ms, arena {:.3} GB",
            blueprint.bytes.total() as f64 / 1e9
        );
    }
}

fn steps(count: usize) {
    let cfg = medium(8, 8);
    let blueprint = Blueprint::new(&cfg, &Mesh::SERIAL, 0).unwrap();
    let flops = blueprint.flops.causal * cfg.tokens_per_step() as f64;
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let mut device = Profiled::new(CpuDevice::new(THREADS).unwrap());
    let table = device.table.clone();
    let mut trainer = Trainer::new(&blueprint, &mut device, &mut comm, &Random).unwrap();
    let start = Instant::now();
    trainer.init_weights();
    println!(
        "\n30M model, f32, {THREADS} threads, {:.1} GFLOP a step; initial weights in {:.2} s",
        flops / 1e9,
        start.elapsed().as_secs_f64()
    );
    trainer.step(&mut Unobserved).unwrap();
    table.borrow_mut().clear();
    let (mut shares, mut cpu_shares, mut seconds, mut ones) = (vec![], vec![], vec![], vec![]);
    for _ in 0..count {
        let before = peak_rates();
        let used = processor_seconds();
        trainer.restart_clock();
        let outcome = trainer.step(&mut Unobserved).unwrap();
        let used = processor_seconds() - used;
        let after = peak_rates();
        let one = (before.1 + after.1) / 2.0;
        let share = flops / outcome.seconds / (before.0 + after.0) * 2.0 / 1e9;
        let by_cpu = flops / used / one / 1e9;
        println!(
            "step {:.3} s, {used:.3} processor s; share of peak {share:.3} ({:.0}, {:.0} GFLOP/s), cpu {by_cpu:.3} ({one:.1} GFLOP/s); {:.3?}",
            outcome.seconds,
            before.0,
            after.0,
            outcome.phases.finish(outcome.seconds)
        );
        shares.push(share);
        cpu_shares.push(by_cpu);
        seconds.push(outcome.seconds);
        ones.push(one);
    }
    println!(
        "median: step {:.3} s, share of peak {:.3}, cpu {:.3}",
        median(&seconds),
        median(&shares),
        median(&cpu_shares)
    );
    profile::print(&table.borrow(), count, median(&ones));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("most resident memory: {}", most.unwrap_or("unknown"));
}

/// A step for each line read; prints its seconds and processor seconds.
fn turns() {
    let cfg = medium(8, 8);
    let blueprint = Blueprint::new(&cfg, &Mesh::SERIAL, 0).unwrap();
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let mut device = CpuDevice::new(THREADS).unwrap();
    let mut trainer = Trainer::new(&blueprint, &mut device, &mut comm, &Random).unwrap();
    trainer.init_weights();
    for line in std::io::stdin().lines() {
        line.unwrap();
        let used = processor_seconds();
        trainer.restart_clock();
        let outcome = trainer.step(&mut Unobserved).unwrap();
        println!("{} {}", outcome.seconds, processor_seconds() - used);
    }
}

fn main() {
    if parallel::is_peer() {
        return parallel::peer();
    }
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let count = words.iter().find_map(|a| a.parse().ok()).unwrap_or(5);
    let chosen = |name: &str| {
        words.iter().all(|a| a.parse::<usize>().is_ok()) || words.iter().any(|a| a == name)
    };
    if words.iter().any(|a| a == "turns") {
        return turns();
    }
    if chosen("plan") {
        plans();
    }
    if chosen("step") {
        steps(count);
    }
    if chosen("parallel") {
        parallel::compare(count);
    }
}
