//! A tiny GPT-2 against values that PyTorch computed in f64 (tests/golden/make_gpt2.py): gradients of step 1 by tensor,
//! losses, gradient norms and evaluation losses of 20 steps.
#![allow(clippy::unwrap_used)]

use haul_runtime::blueprint::Blueprint;
use haul_runtime::blueprint::params::ParamSpec;
use haul_runtime::blueprint::program::Region;
use haul_runtime::comm::local;
use haul_runtime::contract::config::{DataFormat, ScheduleKind};
use haul_runtime::contract::{
    Batch, Data, Mesh, Model, Optimizer, Precision, Schedule, Train, TrainConfig, Until,
};
use haul_runtime::data::DataError;
use haul_runtime::device::Device;
use haul_runtime::device::cpu::CpuDevice;
use haul_runtime::device::reference::Reference;
use haul_runtime::train::samples::Samples;
use haul_runtime::train::step::Observer;
use haul_runtime::train::{Trainer, weights};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
struct Golden {
    model: Shape,
    batch: Sizes,
    optimizer: Adam,
    schedule: Decay,
    eval_sequences: usize,
    tensors: Vec<Tensor>,
    losses: Vec<f64>,
    norms: Vec<f64>,
    evals: Vec<f64>,
}

#[derive(Deserialize)]
struct Shape {
    layers: usize,
    hidden: usize,
    heads: usize,
    ffn: usize,
    seq_len: usize,
    vocab: usize,
    norm_eps: f64,
}

#[derive(Deserialize)]
struct Sizes {
    micro: usize,
    accumulation: usize,
}

#[derive(Deserialize)]
struct Adam {
    lr: f64,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    clip: f64,
}

#[derive(Deserialize)]
struct Decay {
    warmup: u64,
    decay_steps: u64,
    min_lr: f64,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
}

/// The rule of `sequence` in make_gpt2.py.
struct Sequences(u64);

impl Sequences {
    fn fill(&self, n: u64, inputs: &mut [u32], targets: &mut [u32]) {
        let token = |i: usize| {
            let x = (n * 1000 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((x >> 40) % self.0 * ((x >> 20) % self.0) / self.0) as u32
        };
        for i in 0..inputs.len() {
            (inputs[i], targets[i]) = (token(i), token(i + 1));
        }
    }
}

impl Samples for Sequences {
    fn read_sample(
        &self,
        n: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        self.fill(n, inputs, targets);
        Ok(())
    }

    fn read_held_out(
        &self,
        i: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        self.fill((1 << 32) + i, inputs, targets);
        Ok(())
    }

    fn held_out_sequences(&self) -> u64 {
        1000
    }
}

struct FirstGradients {
    specs: Vec<ParamSpec>,
    found: Vec<Vec<f64>>,
}

impl Observer for FirstGradients {
    fn gradients(&mut self, step: u64, device: &dyn Device) {
        if step == 1 {
            self.found = self
                .specs
                .iter()
                .map(|spec| weights::gradient(device, spec))
                .collect();
        }
    }
}

fn read() -> (Golden, Vec<f64>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let text = std::fs::read_to_string(folder.join("gpt2.json")).unwrap();
    let bytes = std::fs::read(folder.join("gpt2.bin")).unwrap();
    let (words, _) = bytes.as_chunks();
    let values = words.iter().map(|w| f64::from_le_bytes(*w)).collect();
    (serde_json::from_str(&text).unwrap(), values)
}

fn config(golden: &Golden, precision: Precision) -> TrainConfig {
    let (m, b, o, s) = (
        &golden.model,
        &golden.batch,
        &golden.optimizer,
        &golden.schedule,
    );
    TrainConfig {
        model: Model {
            layers: m.layers,
            hidden: m.hidden,
            heads: m.heads,
            ffn: m.ffn,
            seq_len: m.seq_len,
            vocab: m.vocab,
            norm_eps: m.norm_eps,
            init_std: 0.02,
        },
        batch: Batch {
            micro: b.micro,
            accumulation: b.accumulation,
            global: b.micro * b.accumulation,
        },
        train: Train {
            until: Until::Steps(golden.losses.len() as u64),
            seed: 0,
            precision,
            optimizer: Optimizer {
                lr: o.lr,
                betas: o.betas,
                eps: o.eps,
                weight_decay: o.weight_decay,
                clip: o.clip,
            },
            schedule: Schedule {
                kind: ScheduleKind::Cosine,
                warmup: s.warmup,
                decay_steps: s.decay_steps,
                min_lr: s.min_lr,
            },
            warmup_steps: 0,
            eval_every: 1,
            eval_sequences: golden.eval_sequences,
        },
        data: Data {
            path: "by rule".into(),
            format: DataFormat::Bytes,
            validation: 0.1,
        },
        zero: 0,
    }
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Trains on `device` from PyTorch's weights and compares within a relative `tolerance`.
fn compare(device: &mut dyn Device, precision: Precision, tolerance: f64) {
    let (golden, values) = read();
    let blueprint = Blueprint::new(&config(&golden, precision), &Mesh::SERIAL, 0).unwrap();
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let samples = Sequences(golden.model.vocab as u64);
    let mut trainer = Trainer::new(&blueprint, device, &mut comm, &samples).unwrap();
    let specs = &blueprint.params.specs;
    assert_eq!(specs.len(), golden.tensors.len());
    let mut placed = Vec::new();
    let mut at = 0;
    for tensor in &golden.tensors {
        let spec = specs.iter().find(|s| s.name == tensor.name);
        let spec = spec.unwrap_or_else(|| panic!("{} is not a parameter", tensor.name));
        assert_eq!(spec.shape, tensor.shape, "{}", spec.name);
        weights::write(
            trainer.device,
            Region::Weights,
            spec.offset,
            &values[at..at + spec.len()],
        );
        placed.push(at);
        at += spec.len();
    }
    assert_eq!(values.len(), 2 * at);
    let mut first = FirstGradients {
        specs: specs.clone(),
        found: Vec::new(),
    };
    let near = |what: &str, step: usize, got: f64, expected: f64| {
        let relative = (got - expected).abs() / expected.abs();
        assert!(
            relative < tolerance,
            "{what} of step {}: {got} for {expected}",
            step + 1
        );
    };
    for (i, expected) in golden.losses.iter().enumerate() {
        let outcome = trainer.step(&mut first).unwrap();
        near("loss", i, outcome.loss, *expected);
        near("norm", i, outcome.grad_norm, golden.norms[i]);
        let eval = trainer.evaluate().unwrap().unwrap();
        near("evaluation", i, eval, golden.evals[i]);
    }
    let hidden = golden.model.hidden;
    for (tensor, start) in golden.tensors.iter().zip(placed) {
        let index = specs.iter().position(|s| s.name == tensor.name).unwrap();
        let mut got = first.found[index].clone();
        let mut expected = values[at + start..][..got.len()].to_vec();
        if tensor.name.ends_with("c_attn.bias") {
            // The key part's true gradient is zero; what is computed is noise.
            assert!(
                norm(&got[hidden..2 * hidden]) < tolerance * norm(&got),
                "{}",
                tensor.name
            );
            got[hidden..2 * hidden].fill(0.0);
            expected[hidden..2 * hidden].fill(0.0);
        }
        let difference: Vec<f64> = got.iter().zip(&expected).map(|(a, b)| a - b).collect();
        let relative = norm(&difference) / norm(&expected);
        assert!(
            relative < tolerance,
            "gradient of {}: off by {relative:e}",
            tensor.name
        );
    }
}

#[test]
fn the_reference_device_trains_as_pytorch_does() {
    compare(&mut Reference::new(), Precision::F64, 1e-10);
}

#[test]
fn the_cpu_device_trains_as_pytorch_does() {
    compare(&mut CpuDevice::new(2).unwrap(), Precision::F32, 1e-5);
}
