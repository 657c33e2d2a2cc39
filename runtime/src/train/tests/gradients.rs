//! The gradient of the whole model against central differences of the loss.

use super::*;
use crate::train::step::Unobserved;

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
