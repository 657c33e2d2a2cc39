//! Training in f64: gradients against differences of the loss, layouts against serial, and mistakes that must be noticed.

use super::run::{Every, Keepless, Plan, run};
use super::samples::Samples;
use super::step::{Observer, Outcome, Unobserved};
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

/// Trains `steps` steps on `data` ranks as threads; rank 0's record, after checking that all ranks have its bits.
fn train(cfg: &TrainConfig, data: usize, sabotage: Sabotage, steps: u64) -> Record {
    let mesh = Mesh {
        data,
        ..Mesh::SERIAL
    };
    let plan = |rank| Blueprint::with_sabotage(cfg, &mesh, rank, sabotage).unwrap();
    let bytes = plan(0).bytes.gradients as usize;
    let members = local::group(data, bytes).unwrap();
    let mut records: Vec<Record> = std::thread::scope(|scope| {
        let ranks = members.into_iter().enumerate().map(|(rank, mut comm)| {
            scope.spawn(move || {
                let blueprint = plan(rank);
                let mut device = Reference::new();
                let mut trainer =
                    Trainer::new(&blueprint, &mut device, &mut comm, &SAMPLES).unwrap();
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

/// The first difference of a run from the serial one: a parameter's gradient at steps 1 to 3, a loss or a norm.
fn compare(serial: &Record, other: &Record) -> Result<(), String> {
    for (step, (expected, got)) in serial.gradients.iter().zip(&other.gradients).enumerate() {
        for (i, name) in serial.names.iter().enumerate() {
            let (expected, got) = (&expected[i], &got[i]);
            // Softmax does not feel a shift of all scores of a row: the key part of this bias has a gradient of zero.
            let key = if name.ends_with("c_attn.bias") {
                serial.hidden..2 * serial.hidden
            } else {
                0..0
            };
            if norm(&got[key.clone()]) > 1e-13 {
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
            if relative.is_nan() || relative > 1e-11 {
                return Err(format!("step {}: {name}: off by {relative:e}", step + 1));
            }
        }
    }
    for (a, b) in serial.outcomes.iter().zip(&other.outcomes) {
        for (what, a, b) in [("loss", a.loss, b.loss), ("norm", a.grad_norm, b.grad_norm)] {
            let relative = (a - b).abs() / a.abs();
            if relative.is_nan() || relative > 1e-11 {
                return Err(format!("{what}: off by {relative:e}"));
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_of_the_whole_model_are_those_of_the_loss() {
    let mut cfg = config(2, 2, 1);
    cfg.model = Model {
        layers: 2,
        hidden: 8,
        heads: 2,
        ffn: 12,
        seq_len: 5,
        vocab: 67,
        norm_eps: 1e-5,
        init_std: 0.3,
    };
    // A learning rate of 0 leaves weights as they are.
    cfg.train.optimizer = Optimizer {
        lr: 0.0,
        clip: 0.0,
        ..cfg.train.optimizer
    };
    cfg.train.schedule.min_lr = 0.0;
    let blueprint = Blueprint::new(&cfg, &Mesh::SERIAL, 0).unwrap();
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let mut device = Reference::new();
    let mut trainer = Trainer::new(&blueprint, &mut device, &mut comm, &SAMPLES).unwrap();
    trainer.init_weights();
    let specs = &blueprint.params.specs;
    for spec in specs {
        // Gains and biases away from 1 and 0, so that each matters.
        let mut values = weights::read(trainer.device, Region::Weights, spec.offset, spec.len());
        let wave = |i: usize| 0.2 * ((7 * i + spec.offset) as f64).sin();
        values
            .iter_mut()
            .enumerate()
            .for_each(|(i, v)| *v += wave(i));
        weights::write(trainer.device, Region::Weights, spec.offset, &values);
    }
    let mut recorder = Recorder {
        specs: specs.clone(),
        most: 1,
        ..Recorder::default()
    };
    trainer.step(&mut recorder).unwrap();
    let mut loss_with = |offset: usize, value: f64| {
        weights::write(trainer.device, Region::Weights, offset, &[value]);
        trainer.state = State::default();
        trainer.step(&mut Unobserved).unwrap().loss
    };
    let mut device_value = vec![0.0; blueprint.sizes.weights];
    let mut checked = 0;
    for (spec, gradient) in specs.iter().zip(&recorder.gradients[0]) {
        let scale = norm(gradient) / (gradient.len() as f64).sqrt();
        for i in (0..spec.len()).step_by(spec.len().div_ceil(24)) {
            let at = spec.offset + i;
            let base = &mut device_value[at];
            let h = 1e-5;
            let wave = 0.2 * ((7 * i + spec.offset) as f64).sin();
            let mut initial = [0.0];
            crate::optim::init::fill(1, spec, i, &mut initial);
            *base = initial[0] + wave;
            let (up, down) = (loss_with(at, *base + h), loss_with(at, *base - h));
            loss_with(at, *base);
            let numeric = (up - down) / (2.0 * h);
            let error = (numeric - gradient[i]).abs();
            assert!(
                error < 1e-5 * scale + 2e-10,
                "{}[{i}]: {numeric:e} by differences, {:e} computed",
                spec.name,
                gradient[i]
            );
            checked += 1;
        }
    }
    assert!(checked > 300);
}

#[test]
fn every_split_of_a_batch_gives_the_serial_gradients_losses_and_norms() {
    let serial = train(&config(8, 1, 1), 1, Sabotage::None, 20);
    assert!(serial.outcomes[19].loss < serial.outcomes[0].loss - 0.05);
    for (micro, accumulation, data) in [
        (2, 4, 1),
        (1, 8, 1),
        (4, 1, 2),
        (1, 4, 2),
        (2, 1, 4),
        (1, 2, 4),
    ] {
        let cfg = config(micro, accumulation, data);
        let other = train(&cfg, data, Sabotage::None, 20);
        assert_eq!(other.gradients.len(), 3);
        compare(&serial, &other)
            .unwrap_or_else(|e| panic!("{micro} x {accumulation} x {data}: {e}"));
    }
}

#[test]
fn each_mistake_is_noticed_and_named() {
    let steps = 3;
    let serial = train(&config(8, 1, 1), 1, Sabotage::None, steps);
    for sabotage in Sabotage::ALL {
        let other = train(&config(2, 2, 2), 2, sabotage, steps);
        let told = compare(&serial, &other).expect_err(&format!("{sabotage:?}"));
        let named = match sabotage {
            Sabotage::None => unreachable!("not in the list"),
            Sabotage::NormGradient => "step 1: h.0.ln_1.weight: off by 5",
            Sabotage::MissingReduce => "step 1: ln_f.weight:",
            Sabotage::LateLearningRate => "step 2: wte.weight:",
            // Every gradient is wrong, or the first one is the mistake's own.
            Sabotage::LossScale
            | Sabotage::EmbedTwice
            | Sabotage::SameSamples
            | Sabotage::TieAfterReduce => "step 1: wte.weight:",
        };
        // A dropped part is a large one, whatever its exact share.
        let named = named.trim_end_matches(" off by 5");
        assert!(told.starts_with(named), "{sabotage:?}: {told}");
    }
}

#[test]
fn evaluation_changes_no_bit_and_is_equal_on_any_number_of_ranks() {
    let plain = train(&config(2, 2, 2), 2, Sabotage::None, 6);
    let mut cfg = config(2, 2, 2);
    (cfg.train.eval_every, cfg.train.eval_sequences) = (2, 7);
    let evaluated = train(&cfg, 2, Sabotage::None, 6);
    let bits = |r: &Record| {
        r.outcomes
            .iter()
            .map(|o| o.loss.to_bits())
            .collect::<Vec<_>>()
    };
    assert_eq!(bits(&plain), bits(&evaluated));
    assert!(plain.weights == evaluated.weights);
    assert_eq!(evaluated.evals.len(), 3);
    let mut serial = config(8, 1, 1);
    (serial.train.eval_every, serial.train.eval_sequences) = (2, 7);
    let serial = train(&serial, 1, Sabotage::None, 6);
    for (a, b) in serial.evals.iter().zip(&evaluated.evals) {
        assert!((a - b).abs() < 1e-11 * a, "{a} {b}");
    }
    // Near ln 67 before anything is learnt.
    assert!((serial.evals[0] - 67f64.ln()).abs() < 0.5);
}

#[test]
fn a_step_without_finite_gradients_is_skipped_and_named() {
    let cfg = config(2, 1, 1);
    let blueprint = Blueprint::new(&cfg, &Mesh::SERIAL, 0).unwrap();
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let mut device = Reference::new();
    let mut trainer = Trainer::new(&blueprint, &mut device, &mut comm, &SAMPLES).unwrap();
    trainer.init_weights();
    trainer.step(&mut Unobserved).unwrap();
    let good = weights::read(trainer.device, Region::Weights, 0, blueprint.sizes.weights);
    let spec = blueprint.params.get(blueprint.params.ln_f.1);
    weights::write(trainer.device, Region::Weights, spec.offset, &[f64::NAN]);
    let outcome = trainer.step(&mut Unobserved).unwrap();
    assert_eq!(outcome.bad.as_deref(), Some("wte.weight"));
    assert_eq!(
        (
            trainer.state.step,
            trainer.state.applied,
            trainer.state.consumed
        ),
        (2, 1, 4)
    );
    weights::write(
        trainer.device,
        Region::Weights,
        spec.offset,
        &good[spec.offset..][..1],
    );
    assert!(weights::read(trainer.device, Region::Weights, 0, good.len()) == good);
    let third = trainer.step(&mut Unobserved).unwrap();
    assert_eq!(third.bad, None);
    // The rate of the second applied update, not of the third step.
    assert!((third.lr - 1e-3 * 2.0 / 5.0).abs() < 1e-18);
    // Many in a row end the run.
    weights::write(
        trainer.device,
        Region::Weights,
        spec.offset,
        &[f64::INFINITY],
    );
    let mut report = report::Report::new(None, None, 0).unwrap();
    let mut plan = Plan {
        every: Every::Never,
        observer: &mut Unobserved,
        keeper: &mut Keepless,
        report: &mut report,
    };
    let error = run(&mut trainer, &mut plan).unwrap_err().to_string();
    assert!(
        error.contains("10 steps in a row") && error.contains("`wte.weight`"),
        "{error}"
    );
}

#[test]
fn tokens_out_of_the_vocabulary_are_an_error() {
    let cfg = config(2, 1, 1);
    let blueprint = Blueprint::new(&cfg, &Mesh::SERIAL, 0).unwrap();
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let mut device = Reference::new();
    let samples = Synthetic {
        vocab: 67,
        broken: Some(3),
    };
    let mut trainer = Trainer::new(&blueprint, &mut device, &mut comm, &samples).unwrap();
    trainer.step(&mut Unobserved).unwrap();
    let error = trainer.step(&mut Unobserved).unwrap_err();
    assert!(
        matches!(
            error,
            TrainError::Token {
                token: 67,
                vocab: 67
            }
        ),
        "{error}"
    );
}

#[test]
fn decoding_with_a_cache_gives_the_losses_of_an_evaluation() {
    let mut cfg = config(2, 1, 1);
    (cfg.train.eval_every, cfg.train.eval_sequences) = (1, 3);
    let blueprint = Blueprint::new(&cfg, &Mesh::SERIAL, 0).unwrap();
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let mut device = Reference::new();
    let mut trainer = Trainer::new(&blueprint, &mut device, &mut comm, &SAMPLES).unwrap();
    trainer.init_weights();
    trainer.step(&mut Unobserved).unwrap();
    let expected = trainer.evaluate().unwrap().unwrap();
    let learnt = weights::read(trainer.device, Region::Weights, 0, blueprint.sizes.weights);

    let decoder = crate::blueprint::Decoder::new(&cfg, 1).unwrap();
    let mut loss = 0.0;
    let seq = cfg.model.seq_len;
    let mut device = Reference::new();
    for i in 0..3 {
        device.reserve(&decoder.sizes, None).unwrap();
        weights::write(&mut device, Region::Weights, 0, &learnt);
        let mut generator = generate::Generator::new(&decoder, &mut device, seq);
        let (mut inputs, mut targets) = (vec![0; seq], vec![0; seq]);
        SAMPLES.read_held_out(i, &mut inputs, &mut targets).unwrap();
        for (token, target) in inputs.iter().zip(&targets) {
            let logits = generator.feed(*token).unwrap();
            let sum: f64 = logits.iter().map(|x| x.exp()).sum();
            loss += sum.ln() - logits[*target as usize];
        }
        // Past the context the newer half is fed again: the same as a fresh start with it.
        let past = generator.feed(5).unwrap().to_vec();
        device.reserve(&decoder.sizes, None).unwrap();
        weights::write(&mut device, Region::Weights, 0, &learnt);
        let mut fresh = generate::Generator::new(&decoder, &mut device, seq);
        for token in &inputs[seq / 2..] {
            fresh.feed(*token).unwrap();
        }
        assert_eq!(fresh.feed(5).unwrap(), past);
    }
    let got = loss / (3 * seq) as f64;
    assert!(
        (got - expected).abs() < 1e-12 * expected,
        "{got} {expected}"
    );
}
