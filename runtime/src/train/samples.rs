//! Where training takes its sequences from.

use crate::data::{DataError, Dataset};

/// Sequences by number: pure functions of the number.
pub trait Samples: Sync {
    /// Sample `n` of the run: T inputs and the T tokens that follow each of them.
    fn read_sample(&self, n: u64, inputs: &mut [u32], targets: &mut [u32])
    -> Result<(), DataError>;

    /// Sequence `i` of the held-out split.
    fn read_held_out(
        &self,
        i: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError>;

    /// Sequences of the held-out split.
    fn held_out_sequences(&self) -> u64;
}

impl Samples for Dataset {
    fn read_sample(
        &self,
        n: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        Dataset::read_sample(self, n, inputs, targets)
    }

    fn read_held_out(
        &self,
        i: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        Dataset::read_held_out(self, i, inputs, targets)
    }

    fn held_out_sequences(&self) -> u64 {
        Dataset::held_out_sequences(self)
    }
}
