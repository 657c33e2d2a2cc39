//! A training step of the 30M model in f32 on two threads: seconds, phases, and the share of the multiply-add peak measured
//! before and after. Also what planning costs, up to the size of GPT-3.
//!
//! `cargo bench -p haul-runtime --bench step [-- STEPS]`

#![allow(clippy::unwrap_used)]

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

fn main() {
    let steps = std::env::args()
        .filter_map(|a| a.parse().ok())
        .next()
        .unwrap_or(5);
    for (name, cfg) in [
        ("quickstart", config(4, 192, 4, 128, 256, 16)),
        ("30M", config(6, 384, 6, 256, 50304, 8)),
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
    let cfg = config(6, 384, 6, 256, 50304, 8);
    let blueprint = Blueprint::new(&cfg, &Mesh::SERIAL, 0).unwrap();
    let flops = blueprint.flops.causal * cfg.tokens_per_step() as f64;
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let mut device = CpuDevice::new(THREADS).unwrap();
    let mut trainer = Trainer::new(&blueprint, &mut device, &mut comm, &Random).unwrap();
    let start = Instant::now();
    trainer.init_weights();
    println!("init {:.2} s", start.elapsed().as_secs_f64());
    trainer.step(&mut Unobserved).unwrap();
    for _ in 0..steps {
        let before = peak::fma_gflops(THREADS, 0.2);
        trainer.restart_clock();
        let outcome = trainer.step(&mut Unobserved).unwrap();
        let after = peak::fma_gflops(THREADS, 0.2);
        let share = flops / outcome.seconds / (before + after) * 2.0 / 1e9;
        let phases = outcome.phases.finish(outcome.seconds);
        println!(
            "step {:.3} s, share of peak {share:.3} ({before:.0}, {after:.0} GFLOP/s), {phases:.3?}",
            outcome.seconds
        );
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!(
        "{}",
        status
            .lines()
            .find(|line| line.starts_with("VmHWM"))
            .unwrap()
    );
}
