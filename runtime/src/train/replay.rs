//! Where a gradient that is not finite came from: the skipped step again, with a look at every value an operation writes.
//!
//! The step left weights and moments untouched and everything is deterministic, so the same values appear again; where none
//! does on any rank, the fault was the machine's.

use super::{TrainError, Trainer, weights};
use crate::blueprint::operands::{Access, Kind};
use crate::blueprint::program::{Op, Program, Region, Val};
use crate::device::Frame;

/// The first value that is not finite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Such as `h.3.mlp.c_fc.forward`.
    pub operation: String,
    pub value: String,
    pub micro: usize,
}

impl Trainer<'_> {
    /// Replays the step just skipped. This rank's finding, and whether any rank found something.
    pub fn replay(&mut self) -> Result<(Option<Origin>, bool), TrainError> {
        let blueprint = self.blueprint;
        let batch = &blueprint.config.batch;
        self.state.consumed -= batch.global as u64;
        self.batch.begin();
        let mut origin = None;
        for micro in 0..batch.accumulation {
            self.load(micro, 0)?;
            for chunk in &blueprint.chunks {
                for program in [&chunk.forward, &chunk.backward] {
                    for step in &program.ops {
                        self.device.launch(program, &step.op, Frame::default())?;
                        self.comm.tick();
                        if origin.is_none() {
                            origin = self.not_finite(program, &step.op).map(|value| Origin {
                                operation: step.name.clone(),
                                value,
                                micro,
                            });
                        }
                    }
                }
            }
        }
        // Leaves gradients, compact rows included, as the skipped step did.
        self.batch.load_ids(blueprint, self.device);
        self.run(&blueprint.tie, 0)?;
        self.run(&blueprint.clear, 0)?;
        self.state.consumed += batch.global as u64;
        let ranks = self.comm.size();
        let mine = [if origin.is_some() { 1.0 } else { 0.0 }];
        self.comm.all_gather(&mine, &mut self.gathered[..ranks])?;
        let any = self.gathered[..ranks].contains(&1.0);
        Ok((origin, any))
    }

    /// The name of a value that `op` wrote and that is not finite.
    fn not_finite(&self, program: &Program, op: &Op) -> Option<String> {
        let mut written: Vec<Val> = Vec::new();
        op.operands(|operand| {
            if operand.access != Access::Read && operand.kind == Kind::Real {
                written.push(operand.val);
            }
        });
        let bad = |val: &Val| {
            let info = program.val(*val);
            // Slot 0, where the replay runs.
            debug_assert!(info.region != Region::Tokens);
            (0..info.len).step_by(weights::PIECE).any(|start| {
                let len = weights::PIECE.min(info.len - start);
                let values = weights::read(self.device, info.region, info.offset + start, len);
                values.iter().any(|x| !x.is_finite())
            })
        };
        written
            .into_iter()
            .find(bad)
            .map(|val| program.val(val).name.clone())
    }
}
