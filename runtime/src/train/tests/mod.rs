//! Training proven: gradients against differences, layouts against serial, mistakes noticed, fast against reference.

mod fast;
mod gradients;
mod layouts;
mod steps;

use super::samples::Samples;
use super::step::{Observer, Outcome};
use super::*;
use crate::blueprint::{Sabotage, params::ParamSpec};
use crate::comm::local;
use crate::contract::config::{DataFormat, Optimizer, Schedule, ScheduleKind};
use crate::contract::{Batch as Sizes, Data, Mesh, Model, Precision, Train, TrainConfig, Until};
use crate::device::reference::Reference;

/// Sequences that are pure functions of their number.
struct Synthetic {
    vocab: u32,
    /// Sample whose tokens are out of the vocabulary.
    broken: Option<u64>,
}

impl Synthetic {
    fn fill(&self, key: u64, inputs: &mut [u32], targets: &mut [u32]) {
        let token = |i: usize| {
            let x = (key * 1000 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as u32 % self.vocab
        };
        for i in 0..inputs.len() {
            (inputs[i], targets[i]) = (token(i), token(i + 1));
        }
    }
}

impl Samples for Synthetic {
    fn read_sample(
        &self,
        n: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        self.fill(n, inputs, targets);
        if self.broken == Some(n) {
            inputs[1] = self.vocab;
        }
        Ok(())
    }

    fn read_held_out(
        &self,
        i: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        self.fill(1 << 32 | i, inputs, targets);
        Ok(())
    }

    fn held_out_sequences(&self) -> u64 {
        11
    }
}

const SAMPLES: Synthetic = Synthetic {
    vocab: 67,
    broken: None,
};

fn config(micro: usize, accumulation: usize, data: usize) -> TrainConfig {
    TrainConfig {
        model: Model {
            layers: 2,
            hidden: 32,
            heads: 4,
            ffn: 128,
            seq_len: 16,
            vocab: 67,
            norm_eps: 1e-5,
            init_std: 0.1,
        },
        batch: Sizes {
            micro,
            accumulation,
            global: micro * accumulation * data,
        },
        train: Train {
            until: Until::Steps(20),
            seed: 1,
            precision: Precision::F64,
            optimizer: Optimizer {
                lr: 1e-3,
                betas: [0.9, 0.95],
                eps: 1e-8,
                weight_decay: 0.1,
                clip: 1.0,
            },
            schedule: Schedule {
                kind: ScheduleKind::Cosine,
                warmup: 5,
                decay_steps: 20,
                min_lr: 1e-4,
            },
            warmup_steps: 0,
            eval_every: 0,
            eval_sequences: 0,
        },
        data: Data {
            path: "synthetic".into(),
            format: DataFormat::Bytes,
            validation: 0.1,
        },
        zero: 0,
    }
}

/// Gradients by parameter at the first steps.
#[derive(Default)]
struct Recorder {
    specs: Vec<ParamSpec>,
    gradients: Vec<Vec<Vec<f64>>>,
    most: u64,
}

impl Observer for Recorder {
    fn gradients(&mut self, step: u64, device: &dyn Device) {
        if step <= self.most {
            let all = self
                .specs
                .iter()
                .map(|spec| weights::gradient(device, spec));
            self.gradients.push(all.collect());
        }
    }
}

/// What a run left behind.
struct Record {
    names: Vec<String>,
    hidden: usize,
    /// By step and parameter.
    gradients: Vec<Vec<Vec<f64>>>,
    outcomes: Vec<Outcome>,
    weights: Vec<f64>,
    evals: Vec<f64>,
}

/// Trains `steps` steps on `data` ranks as threads on the reference device; see [`train_on`].
fn train(cfg: &TrainConfig, data: usize, sabotage: Sabotage, steps: u64) -> Record {
    train_on(cfg, data, sabotage, steps, || Box::new(Reference::new()))
}

/// Trains on devices of choice; rank 0's record, after checking that all ranks have its bits.
fn train_on(
    cfg: &TrainConfig,
    data: usize,
    sabotage: Sabotage,
    steps: u64,
    device: impl Fn() -> Box<dyn Device> + Sync,
) -> Record {
    let mesh = Mesh {
        data,
        ..Mesh::SERIAL
    };
    let plan = |rank| Blueprint::with_sabotage(cfg, &mesh, rank, sabotage).unwrap();
    let bytes = plan(0).bytes.gradients as usize;
    let (plan, device) = (&plan, &device);
    let members = local::group(data, bytes).unwrap();
    let mut records: Vec<Record> = std::thread::scope(|scope| {
        let ranks = members.into_iter().enumerate().map(|(rank, mut comm)| {
            scope.spawn(move || {
                let blueprint = plan(rank);
                let mut device = device();
                let mut trainer =
                    Trainer::new(&blueprint, &mut *device, &mut comm, &SAMPLES).unwrap();
                trainer.init_weights();
                record(&mut trainer, steps)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let first = records.remove(0);
    for other in &records {
        assert!(sabotage != Sabotage::None || other.weights == first.weights);
    }
    first
}

fn record(trainer: &mut Trainer<'_>, steps: u64) -> Record {
    let blueprint = trainer.blueprint;
    let mut recorder = Recorder {
        specs: blueprint.params.specs.clone(),
        most: 3,
        ..Recorder::default()
    };
    let every = blueprint.config.train.eval_every;
    let (mut outcomes, mut evals) = (Vec::new(), Vec::new());
    for step in 1..=steps {
        outcomes.push(trainer.step(&mut recorder).unwrap());
        if every > 0 && step.is_multiple_of(every) {
            evals.extend(trainer.evaluate().unwrap());
        }
    }
    Record {
        names: recorder.specs.iter().map(|s| s.name.clone()).collect(),
        hidden: blueprint.config.model.hidden,
        gradients: recorder.gradients,
        outcomes,
        weights: weights::read(trainer.device, Region::Weights, 0, blueprint.sizes.weights),
        evals,
    }
}

fn norm<'x>(x: impl IntoIterator<Item = &'x f64>) -> f64 {
    x.into_iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// How near a run is to another, relative: gradients to each tensor's norm.
#[derive(Clone, Copy)]
struct Bounds {
    gradients: f64,
    /// First steps whose gradients are compared.
    steps: usize,
    losses: f64,
    norms: f64,
    /// Absolute, for the gradient that is zero in exact arithmetic.
    key: f64,
}

const F64: Bounds = Bounds {
    gradients: 1e-11,
    steps: 3,
    losses: 1e-11,
    norms: 1e-11,
    key: 1e-13,
};

/// [`compare_within`] of two f64 runs.
fn compare(serial: &Record, other: &Record) -> Result<(), String> {
    compare_within(F64, serial, other)
}

/// The first difference of a run from the serial one: a parameter's gradient at the first steps, a loss or a norm.
fn compare_within(bounds: Bounds, serial: &Record, other: &Record) -> Result<(), String> {
    let steps = serial.gradients.iter().zip(&other.gradients);
    for (step, (expected, got)) in steps.take(bounds.steps).enumerate() {
        for (i, name) in serial.names.iter().enumerate() {
            let (expected, got) = (&expected[i], &got[i]);
            // Softmax does not feel a shift of all scores of a row: the key part of this bias has a gradient of zero.
            let key = if name.ends_with("c_attn.bias") {
                serial.hidden..2 * serial.hidden
            } else {
                0..0
            };
            if norm(&got[key.clone()]) > bounds.key {
                return Err(format!(
                    "step {}: {name}: key part is {}",
                    step + 1,
                    norm(&got[key])
                ));
            }
            let rest = |x: &[f64]| -> Vec<f64> {
                x.iter()
                    .enumerate()
                    .filter(|(j, _)| !key.contains(j))
                    .map(|(_, v)| *v)
                    .collect()
            };
            let (expected, got) = (rest(expected), rest(got));
            let difference: Vec<f64> = expected.iter().zip(&got).map(|(a, b)| a - b).collect();
            let relative = norm(&difference) / norm(&expected);
            if relative.is_nan() || relative > bounds.gradients {
                return Err(format!("step {}: {name}: off by {relative:e}", step + 1));
            }
        }
    }
    for (a, b) in serial.outcomes.iter().zip(&other.outcomes) {
        let loss = ("loss", a.loss, b.loss, bounds.losses);
        let norm = ("norm", a.grad_norm, b.grad_norm, bounds.norms);
        for (what, a, b, bound) in [loss, norm] {
            let relative = (a - b).abs() / a.abs();
            if relative.is_nan() || relative > bound {
                return Err(format!("{what}: off by {relative:e}"));
            }
        }
    }
    Ok(())
}
