//! The f32 device: near the reference, near serial on any layout, and equal to the bit on any number of threads.

use super::*;
use crate::device::cpu::{CpuDevice, Isa, Waiting};

fn fast(micro: usize, accumulation: usize, data: usize) -> TrainConfig {
    let mut cfg = config(micro, accumulation, data);
    cfg.train.precision = Precision::F32;
    cfg
}

fn cpu(threads: usize, isa: Isa) -> Box<dyn Device> {
    Box::new(CpuDevice::with(threads, isa, Waiting::Block).unwrap())
}

const F32: Bounds = Bounds {
    gradients: 5e-6,
    steps: 1,
    losses: 1e-6,
    norms: 1e-5,
    key: 1e-6,
};

#[test]
fn each_path_is_near_the_reference() {
    let reference = train(&config(8, 1, 1), 1, Sabotage::None, 20);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        let got = train_on(&fast(8, 1, 1), 1, Sabotage::None, 20, || cpu(1, isa));
        compare_within(F32, &reference, &got).unwrap_or_else(|e| panic!("{}: {e}", isa.name()));
    }
}

#[test]
fn every_split_of_a_batch_is_near_serial() {
    let device = || cpu(1, Isa::detect());
    let serial = train_on(&fast(8, 1, 1), 1, Sabotage::None, 20, device);
    for (micro, accumulation, data) in [(2, 4, 1), (4, 1, 2), (1, 4, 2), (2, 1, 4)] {
        let cfg = fast(micro, accumulation, data);
        let other = train_on(&cfg, data, Sabotage::None, 20, device);
        compare_within(F32, &serial, &other)
            .unwrap_or_else(|e| panic!("{micro} x {accumulation} x {data}: {e}"));
    }
}

#[test]
fn threads_change_no_bit() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        let run = |threads| {
            let record = train_on(&fast(2, 2, 2), 2, Sabotage::None, 6, || cpu(threads, isa));
            let bits = record
                .outcomes
                .iter()
                .map(|o| (o.loss.to_bits(), o.grad_norm.to_bits()));
            (bits.collect::<Vec<_>>(), record.weights)
        };
        let one = run(1);
        for threads in [2, 3] {
            assert!(one == run(threads), "{} on {threads} threads", isa.name());
        }
    }
}

#[test]
fn a_head_of_several_chunks_gives_the_gradients_of_one() {
    // 512 rows a chunk at this vocabulary: 2 chunks against 3 micro-batches of one.
    let run = |micro, accumulation| {
        let mut cfg = fast(micro, accumulation, 1);
        cfg.model = Model {
            layers: 1,
            hidden: 4,
            heads: 1,
            ffn: 4,
            seq_len: 256,
            vocab: 32768,
            ..cfg.model
        };
        (cfg.train.eval_every, cfg.train.eval_sequences) = (1, 3);
        train_on(&cfg, 1, Sabotage::None, 1, || cpu(2, Isa::detect()))
    };
    let (chunks, single) = (run(3, 1), run(1, 3));
    compare_within(F32, &single, &chunks).unwrap();
    assert!((chunks.evals[0] - single.evals[0]).abs() < 1e-6 * single.evals[0]);
}
