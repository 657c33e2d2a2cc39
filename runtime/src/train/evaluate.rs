//! Evaluation on the held-out split; changes nothing that training reads.

use super::{TrainError, Trainer};
use crate::device::Frame;

impl Trainer<'_> {
    /// Sequences that an evaluation covers.
    pub fn eval_sequences(&self) -> u64 {
        let asked = self.blueprint.config.train.eval_sequences as u64;
        asked.min(self.samples.held_out_sequences())
    }

    /// Mean token loss over the first sequences of the held-out split, those of number r, r + D, ... on replica r of D; None when there are none.
    pub fn evaluate(&mut self) -> Result<Option<f64>, TrainError> {
        let blueprint = self.blueprint;
        let sequences = self.eval_sequences();
        if sequences == 0 {
            return Ok(None);
        }
        let loss = blueprint.host.eval_loss.offset;
        self.write_sums(loss, &[0.0]);
        let data = blueprint.mesh.data as u64;
        let mut next = blueprint.coord.data as u64;
        for evaluation in &blueprint.evaluations {
            let n = evaluation.sequences as u64;
            while next + (n - 1) * data < sequences {
                for j in 0..evaluation.sequences {
                    self.batch.held_out(self.samples, next, j)?;
                    next += data;
                }
                self.batch.load(blueprint, self.device, Frame::default());
                self.run(&evaluation.program, 0)?;
            }
        }
        let mine = [self.read_sum(loss)];
        let ranks = self.comm.size();
        self.comm.all_gather(&mine, &mut self.gathered[..ranks])?;
        let sum: f64 = self.gathered[..ranks].iter().sum();
        let tokens = sequences * blueprint.config.model.seq_len as u64;
        Ok(Some(sum / tokens as f64))
    }
}
