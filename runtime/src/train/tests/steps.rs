//! Skipped steps, bad tokens, decoding.

use super::*;
use crate::train::run::{Every, Keepless, Plan, run};
use crate::train::step::Unobserved;

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
