//! Checkpoints of a trainer: writing them, and continuing from one.

use super::run::{Keeper, Saved};
use super::{State, TrainError, Trainer};
use crate::blueprint::params::Params;
use crate::blueprint::program::Region;
use crate::checkpoint::{CheckpointError, Order, Piece, Saver, StateKind, load};
use crate::contract::checkpoint::{Manifest, Point, TrainerState};
use std::path::{Path, PathBuf};

/// Where each tensor of the training state stands; `kinds` of them.
pub fn table(params: &Params, kinds: &[StateKind]) -> Vec<Piece> {
    let piece = |kind, i: usize| {
        let spec = &params.specs[i];
        let (region, base) = match kind {
            StateKind::Param => (Region::Weights, 0),
            StateKind::M => (Region::Moments, 0),
            StateKind::V => (Region::Moments, params.extent),
        };
        Piece {
            name: spec.name.clone(),
            state: kind,
            shape: spec.shape.clone(),
            region,
            offset: base + spec.offset,
            len: spec.len(),
        }
    };
    let all = kinds
        .iter()
        .flat_map(|kind| (0..params.specs.len()).map(move |i| piece(*kind, i)));
    all.collect()
}

/// All that a run continues from.
const ALL: [StateKind; 3] = [StateKind::Param, StateKind::M, StateKind::V];

/// Writes checkpoints of one attempt.
pub struct Checkpoints {
    saver: Saver,
    table: Vec<Piece>,
    about: About,
}

/// What stands in each manifest of an attempt.
#[derive(Debug, Clone)]
pub struct About {
    /// Directory of this attempt's checkpoints.
    pub dir: PathBuf,
    pub attempt: u32,
    /// Checkpoint this attempt started from.
    pub parent: Option<Point>,
    /// Fingerprint of the plan.
    pub fingerprint: String,
    /// Fingerprint of the data.
    pub data: String,
    /// Newest checkpoints that are kept.
    pub keep: usize,
    /// A file that asked for a save, removed when one is done.
    pub asked: Option<PathBuf>,
}

impl Checkpoints {
    /// For the parameters of a run.
    pub fn new(params: &Params, about: About) -> Self {
        Checkpoints {
            saver: Saver::new(),
            table: table(params, &ALL),
            about,
        }
    }
}

impl Keeper for Checkpoints {
    fn save(&mut self, trainer: &mut Trainer<'_>) -> Result<Saved, TrainError> {
        let (about, state) = (&self.about, trainer.state);
        let config = &trainer.blueprint.config;
        let order = Order {
            dir: &about.dir,
            attempt: about.attempt,
            step: state.step,
            parent: about.parent,
            fingerprint: &about.fingerprint,
            trainer: &TrainerState {
                config: config.clone(),
                mesh: trainer.blueprint.mesh,
                precision: config.train.precision,
                isa: trainer.device.isa().to_owned(),
                applied: state.applied,
                consumed: state.consumed,
                trained_seconds: state.trained_seconds,
                data: about.data.clone(),
            },
            keep: about.keep.max(1),
        };
        let saved = self
            .saver
            .save(&order, &self.table, trainer.device, trainer.comm);
        let saved = saved.map_err(|error| match error {
            CheckpointError::Comm(error) => TrainError::Comm(error),
            error => TrainError::Save {
                step: state.step,
                error: error.to_string(),
            },
        })?;
        Ok(Saved {
            path: format!("step-{}", state.step),
            bytes: saved.bytes,
            warning: saved.warning,
        })
    }

    fn answered(&mut self) {
        if let Some(asked) = &self.about.asked {
            // Where another rank was faster there is nothing to remove.
            let _ = std::fs::remove_file(asked);
        }
    }
}

impl Trainer<'_> {
    /// Loads the training state from the checkpoint in `dir`. This rank alone: ranks agree on the outcome afterwards.
    pub fn resume(&mut self, dir: &Path) -> Result<Manifest, CheckpointError> {
        let table = table(&self.blueprint.params, &ALL);
        let comm = &mut *self.comm;
        let loaded = load(dir, &table, self.device, &mut || comm.tick())?;
        let manifest = loaded.manifest;
        let Some(trainer) = &manifest.trainer else {
            return Err(CheckpointError::Differs {
                path: dir.to_owned(),
                reason: "another program wrote it".to_owned(),
            });
        };
        self.state = State {
            step: manifest.step,
            applied: trainer.applied,
            consumed: trainer.consumed,
            trained_seconds: trainer.trained_seconds,
        };
        Ok(manifest)
    }
}
