//! Every split of a batch against serial, in f64, and mistakes that must be noticed.

use super::*;

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
