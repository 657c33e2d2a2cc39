//! Gradients of one step by canonical name, so that layouts can be compared from outside, tensor by tensor.

use super::surroundings::Surroundings;
use super::train::{Parts, begin};
use super::{WorkerArgs, WorkerError};
use crate::blueprint::params::ParamSpec;
use crate::contract::config::WorkerPlan;
use crate::contract::exit;
use crate::device::Device;
use crate::train::step::Observer;
use crate::train::{Trainer, weights};
use safetensors::{Dtype, View};
use std::borrow::Cow;
use std::path::Path;

/// Trains up to `step` (counted from where the run begins) and writes the gradients there, as f64, to `out`.
pub(super) fn run(
    args: &WorkerArgs,
    plan: &WorkerPlan,
    surroundings: &Surroundings,
    step: u64,
    out: &Path,
) -> Result<i32, WorkerError> {
    let mut parts = Parts::new(args, plan, surroundings)?;
    let fingerprint = parts.data.fingerprint();
    let device = parts.device.device();
    let mut trainer = Trainer::new(&parts.blueprint, device, &mut *parts.comm, &parts.data)?;
    begin(&mut trainer, surroundings, &fingerprint)?;
    let mut dump = Dump {
        specs: &parts.blueprint.params.specs,
        wanted: trainer.state.step + step.max(1),
        found: Vec::new(),
    };
    for _ in 0..step.max(1) {
        trainer.step(&mut dump)?;
    }
    if surroundings.rank == 0 {
        safetensors::serialize_to_file(dump.found, None, out).map_err(|error| {
            WorkerError::Output {
                path: out.to_owned(),
                error: error.to_string(),
            }
        })?;
    }
    Ok(exit::DONE)
}

struct Dump<'a> {
    specs: &'a [ParamSpec],
    wanted: u64,
    found: Vec<(String, Gradient)>,
}

impl Observer for Dump<'_> {
    fn gradients(&mut self, step: u64, device: &dyn Device) {
        if step == self.wanted {
            let gradient = |spec: &ParamSpec| Gradient {
                shape: spec.shape.clone(),
                bytes: weights::gradient(device, spec)
                    .iter()
                    .flat_map(|x| x.to_le_bytes())
                    .collect(),
            };
            let named = self
                .specs
                .iter()
                .map(|spec| (spec.name.clone(), gradient(spec)));
            self.found = named.collect();
        }
    }
}

struct Gradient {
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for Gradient {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
