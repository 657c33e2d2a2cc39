//! Frozen bits: losses and norms of a short serial run by device and instruction-set path, in tests/golden/frozen.json.
//!
//! A change of bits is a decision, with a line in CHANGELOG.md: `HAUL_FREEZE=1 cargo test -p haul-runtime --test frozen`.
#![allow(clippy::unwrap_used)]

use haul_runtime::blueprint::Blueprint;
use haul_runtime::comm::local;
use haul_runtime::contract::TrainConfig;
use haul_runtime::contract::{Mesh, Precision};
use haul_runtime::data::DataError;
use haul_runtime::device::Device;
use haul_runtime::device::cpu::{CpuDevice, Isa, Waiting};
use haul_runtime::device::reference::Reference;
use haul_runtime::train::Trainer;
use haul_runtime::train::samples::Samples;
use haul_runtime::train::step::Unobserved;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

struct Sequences;

impl Samples for Sequences {
    fn read_sample(
        &self,
        n: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        let token = |i: usize| ((n * 31 + i as u64 * i as u64 * 7) % 97) as u32;
        for i in 0..inputs.len() {
            (inputs[i], targets[i]) = (token(i), token(i + 1));
        }
        Ok(())
    }

    fn read_held_out(
        &self,
        i: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        self.read_sample(1000 + i, inputs, targets)
    }

    fn held_out_sequences(&self) -> u64 {
        4
    }
}

fn config(precision: Precision) -> TrainConfig {
    let config = json!({
        // Odd sizes, so that edges of tiles are frozen too.
        "model": {"layers": 2, "hidden": 36, "heads": 3, "ffn": 100, "seq_len": 37, "vocab": 97,
                  "norm_eps": 1e-5, "init_std": 0.08},
        "batch": {"micro": 3, "accumulation": 2, "global": 6},
        "train": {"until": {"steps": 8}, "seed": 11, "precision": precision,
                  "optimizer": {"lr": 0.003, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 0.5},
                  "schedule": {"kind": "cosine", "warmup": 3, "decay_steps": 8, "min_lr": 0.0003},
                  "warmup_steps": 0, "eval_every": 4, "eval_sequences": 4},
        "data": {"path": "by rule", "format": "bytes", "validation": 0.1},
        "zero": 0
    });
    serde_json::from_value(config).unwrap()
}

/// Bits of loss and norm of each step, and of an evaluation at the end.
fn bits(device: &mut dyn Device, precision: Precision) -> Vec<String> {
    let blueprint = Blueprint::new(&config(precision), &Mesh::SERIAL, 0).unwrap();
    let mut comm = local::group(1, 0).unwrap().remove(0);
    let mut trainer = Trainer::new(&blueprint, device, &mut comm, &Sequences).unwrap();
    trainer.init_weights();
    let mut bits = Vec::new();
    for _ in 0..8 {
        let outcome = trainer.step(&mut Unobserved).unwrap();
        bits.push(format!(
            "{:016x} {:016x}",
            outcome.loss.to_bits(),
            outcome.grad_norm.to_bits()
        ));
    }
    bits.push(format!(
        "{:016x}",
        trainer.evaluate().unwrap().unwrap().to_bits()
    ));
    bits
}

#[test]
fn bits_are_those_of_the_last_decision() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/frozen.json");
    let mut found = BTreeMap::from([(
        "reference".to_owned(),
        bits(&mut Reference::new(), Precision::F64),
    )]);
    for isa in Isa::ALL {
        if isa.available() {
            let mut device = CpuDevice::with(1, isa, Waiting::Block).unwrap();
            found.insert(isa.name().to_owned(), bits(&mut device, Precision::F32));
        } else {
            println!("skipped: this CPU has no {}", isa.name());
        }
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
    let mut frozen: BTreeMap<String, Vec<String>> = serde_json::from_str(&text).unwrap();
    if std::env::var_os("HAUL_FREEZE").is_some() {
        frozen.extend(found);
        let text = serde_json::to_string_pretty(&frozen).unwrap();
        return std::fs::write(path, text + "\n").unwrap();
    }
    for (name, bits) in found {
        match frozen.get(&name) {
            Some(expected) => assert_eq!(&bits, expected, "bits of {name} changed"),
            None => println!("skipped: nothing is frozen for {name} yet"),
        }
    }
}
