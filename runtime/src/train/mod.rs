//! The training loop: one interpreter of the blueprint's step, and around it evaluation, saving and reports.

mod batch;
pub mod evaluate;
pub mod generate;
pub mod keep;
pub mod phases;
pub mod report;
pub mod run;
pub mod samples;
pub mod step;
#[cfg(test)]
mod tests;
pub mod weights;

use crate::blueprint::Blueprint;
use crate::blueprint::program::{Program, Region};
use crate::comm::{Comm, CommError};
use crate::data::DataError;
use crate::device::{Device, DeviceError, Frame};
use batch::Batch;
use samples::Samples;
use std::time::Instant;

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Comm(#[from] CommError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(
        "the data has token {token}, but the vocabulary ends at {vocab}: raise `model.vocab` or choose another file"
    )]
    Token { token: u32, vocab: usize },
    #[error("the {device} device computes in {found:?}, but the plan asks for {wanted:?}")]
    Precision {
        device: &'static str,
        found: crate::device::Real,
        wanted: crate::device::Real,
    },
    #[error(
        "{skipped} steps in a row had gradients that are not finite, first in `{parameter}` (step {step}): lower the learning rate, or look at the data from there on"
    )]
    NotFinite {
        skipped: u64,
        parameter: String,
        step: u64,
    },
    #[error("cannot save step {step}: {error}")]
    Save { step: u64, error: String },
    #[error("cannot write progress to {path}: {error}")]
    Progress { path: String, error: std::io::Error },
}

/// Counters of a run; all that training needs besides tensors.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct State {
    /// Steps taken, skipped ones included.
    pub step: u64,
    /// Updates applied: Adam's t, and what the learning rate goes by.
    pub applied: u64,
    /// Samples consumed: the whole data state.
    pub consumed: u64,
    /// Seconds of training in all attempts so far.
    pub trained_seconds: f64,
}

/// A rank in training.
pub struct Trainer<'a> {
    pub blueprint: &'a Blueprint,
    pub device: &'a mut dyn Device,
    pub comm: &'a mut dyn Comm,
    pub samples: &'a dyn Samples,
    pub state: State,
    batch: Batch,
    /// Sums of squares by block.
    squares: Vec<f64>,
    bytes: Vec<u8>,
    /// Two values a rank and more, gathered.
    gathered: Vec<f64>,
    /// End of the last step's agreement.
    since: Instant,
}

impl<'a> Trainer<'a> {
    /// Reserves the arena; gradients stand in the group's memory where ranks are several. Weights are zero.
    pub fn new(
        blueprint: &'a Blueprint,
        device: &'a mut dyn Device,
        comm: &'a mut dyn Comm,
        samples: &'a dyn Samples,
    ) -> Result<Self, TrainError> {
        if device.real() != blueprint.real {
            return Err(TrainError::Precision {
                device: device.isa(),
                found: device.real(),
                wanted: blueprint.real,
            });
        }
        let grads = (comm.size() > 1).then(|| comm.grads());
        device.reserve(&blueprint.sizes, grads)?;
        let blocks = blueprint.host.squares.len;
        Ok(Trainer {
            batch: Batch::new(blueprint),
            squares: Vec::with_capacity(blocks),
            bytes: vec![0; 8 * blocks],
            gathered: vec![0.0; step::AGREED * comm.size()],
            since: Instant::now(),
            state: State::default(),
            blueprint,
            device,
            comm,
            samples,
        })
    }

    /// Restarts the clock of the next step.
    pub fn restart_clock(&mut self) {
        self.since = Instant::now();
    }

    /// Carries out a program on `slot`.
    fn run(&mut self, program: &Program, slot: usize) -> Result<(), TrainError> {
        for step in &program.ops {
            self.device.launch(program, &step.op, Frame { slot })?;
            self.comm.tick();
        }
        Ok(())
    }

    fn read_sum(&self, offset: usize) -> f64 {
        let mut bytes = [0; 8];
        self.device.read(Region::Scalars, 8 * offset, &mut bytes);
        f64::from_ne_bytes(bytes)
    }

    fn write_sums(&mut self, offset: usize, values: &[f64]) {
        for (i, value) in values.iter().enumerate() {
            let at = 8 * (offset + i);
            self.device.write(Region::Scalars, at, &value.to_ne_bytes());
        }
    }
}
