//! A run: steps until the end, with evaluation, saving and stopping in between.

use super::report::Report;
use super::step::Observer;
use super::{TrainError, Trainer};
use crate::contract::Until;
use crate::contract::metrics::{Kind, Line};
use crate::sys::heap;
use std::time::Instant;

/// Steps in a row that may be skipped.
const MOST_SKIPS: u64 = 10;

/// When checkpoints are written.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Every {
    /// Only when asked for.
    #[default]
    Never,
    Steps(u64),
    Seconds(f64),
}

/// What a save left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Directory, relative to the attempt's.
    pub path: String,
    pub bytes: u64,
    /// What could not be tidied up afterwards.
    pub warning: Option<String>,
}

/// Keeps checkpoints. Called by all ranks at the same step.
pub trait Keeper {
    /// Writes a checkpoint of the trainer's state; returns when it is committed, on all ranks. After [`TrainError::Save`],
    /// which all ranks get alike, training may go on.
    fn save(&mut self, trainer: &mut Trainer<'_>) -> Result<Saved, TrainError>;

    /// Called when a save that was asked for is complete.
    fn answered(&mut self) {}
}

/// Keeps nothing.
pub struct Keepless;

impl Keeper for Keepless {
    fn save(&mut self, trainer: &mut Trainer<'_>) -> Result<Saved, TrainError> {
        Err(TrainError::Save {
            step: trainer.state.step,
            error: "this run has nowhere to save to".to_owned(),
        })
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At its end.
    Done,
    /// Asked to stop; state is saved.
    Stopped,
}

/// How to run.
pub struct Plan<'p> {
    pub every: Every,
    pub observer: &'p mut dyn Observer,
    pub keeper: &'p mut dyn Keeper,
    pub report: &'p mut Report,
}

/// Trains until the end that the configuration names, or until asked to stop.
pub fn run(trainer: &mut Trainer<'_>, plan: &mut Plan<'_>) -> Result<End, TrainError> {
    let mut skipped = 0;
    let mut saved_at = trainer.state.step;
    let mut saved_seconds = trainer.state.trained_seconds;
    trainer.comm.barrier()?;
    trainer.restart_clock();
    let mut first = true;
    while !finished(trainer) {
        let outcome = trainer.step(plan.observer)?;
        let config = &trainer.blueprint.config;
        let tokens = trainer.state.consumed * config.model.seq_len as u64;
        plan.report.step(&outcome, tokens)?;
        if std::mem::take(&mut first) {
            heap::mark();
        }
        skipped = match &outcome.bad {
            None => 0,
            Some(_) => skipped + 1,
        };
        if let (Some(parameter), true) = (&outcome.bad, skipped >= MOST_SKIPS) {
            return Err(TrainError::NotFinite {
                skipped,
                parameter: parameter.clone(),
                step: outcome.step,
            });
        }
        let last = finished(trainer);
        let every = config.train.eval_every;
        if every > 0 && (last || outcome.step.is_multiple_of(every)) {
            evaluate(trainer, plan.report)?;
        }
        let due = match plan.every {
            Every::Never => false,
            Every::Steps(n) => last || outcome.step.is_multiple_of(n.max(1)),
            Every::Seconds(s) => last || outcome.trained_seconds - saved_seconds >= s,
        };
        let asked = outcome.requests.save || outcome.requests.stop;
        if due || asked {
            if saved_at != outcome.step {
                let needed = last || outcome.requests.stop;
                save(trainer, plan, needed)?;
            }
            (saved_at, saved_seconds) = (outcome.step, outcome.trained_seconds);
            if outcome.requests.save {
                plan.keeper.answered();
            }
        }
        if outcome.requests.stop && !last {
            return Ok(End::Stopped);
        }
    }
    Ok(End::Done)
}

fn finished(trainer: &Trainer<'_>) -> bool {
    let state = &trainer.state;
    match trainer.blueprint.config.train.until {
        Until::Steps(n) => state.step >= n,
        Until::Tokens(n) => state.consumed * trainer.blueprint.config.model.seq_len as u64 >= n,
        Until::Seconds(s) => state.trained_seconds >= s,
    }
}

fn evaluate(trainer: &mut Trainer<'_>, report: &mut Report) -> Result<(), TrainError> {
    let start = Instant::now();
    if let Some(loss) = trainer.evaluate()? {
        let mut line = Line::new(Kind::Eval);
        line.step = Some(trainer.state.step);
        line.loss = Some(loss).filter(|x| x.is_finite());
        line.loss_bits = Some(Line::bits(loss));
        line.seconds = Some(start.elapsed().as_secs_f64());
        report.lead(line)?;
    }
    trainer.restart_clock();
    Ok(())
}

/// Saves; a failure is told and ends the run only where the checkpoint is `needed`, before leaving.
fn save(trainer: &mut Trainer<'_>, plan: &mut Plan<'_>, needed: bool) -> Result<(), TrainError> {
    let start = Instant::now();
    let mut line = match plan.keeper.save(trainer) {
        Ok(saved) => {
            let mut line = Line::new(Kind::Save);
            line.bytes = Some(saved.bytes);
            line.path = Some(saved.path);
            line.text = saved.warning;
            line
        }
        Err(error @ TrainError::Save { .. }) if !needed => {
            let mut line = Line::new(Kind::Note);
            line.text = Some(error.to_string());
            line
        }
        Err(error) => return Err(error),
    };
    // Nobody leaves before the checkpoint is committed.
    trainer.comm.barrier()?;
    line.step = Some(trainer.state.step);
    line.seconds = Some(start.elapsed().as_secs_f64());
    plan.report.lead(line)?;
    trainer.restart_clock();
    Ok(())
}
