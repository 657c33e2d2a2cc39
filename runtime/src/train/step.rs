//! One optimizer step: the blueprint's list, entry by entry.

use super::phases::{Phase, Phases};
use super::{TrainError, Trainer};
use crate::blueprint::Sabotage;
use crate::blueprint::program::Region;
use crate::blueprint::schedule::Do;
use crate::comm::Timing;
use crate::device::{Device, Frame};
use crate::optim::schedule::learning_rate;
use crate::optim::{adam, clip_factor};
use std::time::Instant;

/// Numbers of one rank in the agreement at the end of a step.
pub(super) const AGREED: usize = 4;

/// What somebody outside asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    pub stop: bool,
    pub save: bool,
}

/// Looks into a step while it runs.
pub trait Observer {
    /// What is asked for now; ranks agree on it at the end of the step.
    fn requests(&mut self) -> Requests {
        Requests::default()
    }

    /// Called when gradients are complete and measured, before the update.
    fn gradients(&mut self, _step: u64, _device: &dyn Device) {}
}

/// Observes nothing.
pub struct Unobserved;

impl Observer for Unobserved {}

/// What a step was.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Number of the step, from 1.
    pub step: u64,
    /// Mean token loss over the global batch, in nats.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    pub lr: f64,
    /// The first parameter whose gradient is not finite: the step was skipped.
    pub bad: Option<String>,
    /// Barrier to barrier.
    pub seconds: f64,
    pub phases: Phases,
    /// Agreed by all ranks.
    pub requests: Requests,
    /// Rank 0's seconds of training, agreed.
    pub trained_seconds: f64,
}

/// What [`Do::Norm`] decides.
#[derive(Default)]
struct Verdict {
    norm: f64,
    lr: f64,
    bad: Option<String>,
}

impl Trainer<'_> {
    /// Takes one optimizer step.
    pub fn step(&mut self, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
        let blueprint = self.blueprint;
        let mut phases = Phases::default();
        let mut verdict = Verdict::default();
        self.batch.begin();
        self.write_sums(blueprint.host.loss.offset, &[0.0]);
        for entry in &blueprint.steps {
            let start = Instant::now();
            match entry {
                Do::Load { micro, slot } => {
                    self.load(*micro, *slot)?;
                    phases.since(Phase::Data, start);
                }
                Do::Forward { chunk, slot, .. } => {
                    self.run(&blueprint.chunks[*chunk].forward, *slot)?;
                    phases.since(Phase::Compute, start);
                }
                Do::Backward { chunk, slot, .. } => {
                    self.run(&blueprint.chunks[*chunk].backward, *slot)?;
                    phases.since(Phase::Compute, start);
                }
                Do::TieEmbeddings => {
                    self.batch.load_ids(blueprint, self.device);
                    self.run(&blueprint.tie, 0)?;
                    phases.since(Phase::Compute, start);
                }
                Do::Reduce { units } => {
                    let units = &blueprint.params.units[units.clone()];
                    if let (Some(first), Some(last)) = (units.first(), units.last()) {
                        let (from, to) = (first.span.start, last.span.end);
                        let timing = self.comm.all_reduce(blueprint.real, from, to - from)?;
                        waited(&mut phases, timing);
                    }
                }
                Do::Norm => {
                    verdict = self.norm()?;
                    phases.since(Phase::Update, start);
                    observer.gradients(self.state.step + 1, self.device);
                }
                Do::Update { units } => {
                    let units = &blueprint.params.units[units.clone()];
                    let program = match verdict.bad {
                        None => &blueprint.update,
                        Some(_) => &blueprint.clear,
                    };
                    for op in units
                        .iter()
                        .flat_map(|unit| &program.ops[unit.params.clone()])
                    {
                        self.device.launch(program, &op.op, Frame::default())?;
                        self.comm.tick();
                    }
                    phases.since(Phase::Update, start);
                }
                Do::Log => {}
            }
        }
        self.agree(observer.requests(), verdict, phases)
    }

    fn load(&mut self, micro: usize, slot: usize) -> Result<(), TrainError> {
        let blueprint = self.blueprint;
        for j in 0..blueprint.config.batch.micro {
            let n = self.state.consumed + blueprint.sequence(micro, j) as u64;
            self.batch.sample(self.samples, n, j)?;
        }
        self.batch.place_tokens();
        self.batch.load(blueprint, self.device, Frame { slot });
        Ok(())
    }

    /// Measures the gradient and prepares the update.
    fn norm(&mut self) -> Result<Verdict, TrainError> {
        let blueprint = self.blueprint;
        self.run(&blueprint.norm, 0)?;
        let host = &blueprint.host;
        self.device
            .read(Region::Scalars, 8 * host.squares.offset, &mut self.bytes);
        self.squares.clear();
        let (words, _) = self.bytes.as_chunks();
        self.squares
            .extend(words.iter().map(|w| f64::from_ne_bytes(*w)));
        let mut total = 0.0;
        let mut bad = None;
        for (i, spec) in blueprint.params.specs.iter().enumerate() {
            let end = host
                .block_starts
                .get(i + 1)
                .copied()
                .unwrap_or(self.squares.len());
            let sum: f64 = self.squares[host.block_starts[i]..end].iter().sum();
            if !sum.is_finite() && bad.is_none() {
                bad = Some(spec.name.clone());
            }
            total += sum;
        }
        let train = &blueprint.config.train;
        let norm = total.sqrt();
        let t = self.state.applied + 1;
        let at = match blueprint.sabotage {
            Sabotage::LateLearningRate => t - 1,
            _ => t,
        };
        let lr = learning_rate(&train.schedule, train.optimizer.lr, at);
        let scalars = adam(
            &train.optimizer,
            lr,
            clip_factor(train.optimizer.clip, norm),
            t,
        );
        self.write_sums(host.adam.offset, &scalars.to_array());
        Ok(Verdict { norm, lr, bad })
    }

    /// Sums the loss over ranks in rank order, agrees on requests and counts the step.
    fn agree(
        &mut self,
        requests: Requests,
        verdict: Verdict,
        mut phases: Phases,
    ) -> Result<Outcome, TrainError> {
        let flag = |on| if on { 1.0 } else { 0.0 };
        let mine = [
            self.read_sum(self.blueprint.host.loss.offset),
            flag(requests.stop),
            flag(requests.save),
            self.since.elapsed().as_secs_f64(),
        ];
        let timing = self.comm.all_gather(&mine, &mut self.gathered)?;
        waited(&mut phases, timing);
        let end = Instant::now();
        let seconds = end.duration_since(self.since).as_secs_f64();
        self.since = end;
        let column = |i: usize| self.gathered.iter().skip(i).step_by(AGREED);
        let batch = &self.blueprint.config.batch;
        let tokens = self.blueprint.config.tokens_per_step() as f64;
        let requests = Requests {
            stop: column(1).any(|v| *v > 0.0),
            save: column(2).any(|v| *v > 0.0),
        };
        let loss = column(0).sum::<f64>() / tokens;
        self.state.trained_seconds += self.gathered[3];
        self.state.step += 1;
        self.state.consumed += batch.global as u64;
        self.state.applied += u64::from(verdict.bad.is_none());
        Ok(Outcome {
            step: self.state.step,
            loss,
            grad_norm: verdict.norm,
            lr: verdict.lr,
            bad: verdict.bad,
            seconds,
            phases,
            requests,
            trained_seconds: self.state.trained_seconds,
        })
    }
}

fn waited(phases: &mut Phases, timing: Timing) {
    phases.add(Phase::DataWait, timing.wait);
    phases.add(Phase::DataTransfer, timing.transfer);
}
