//! Tensors of the device by name: initial weights, and reading them for tests, dumps and checkpoints.

use super::Trainer;
use crate::blueprint::params::ParamSpec;
use crate::blueprint::program::Region;
use crate::device::{Device, Real};
use crate::optim::init;

/// Elements converted at a time.
const PIECE: usize = 64 * 1024;

/// Writes `values` as elements of `region` from `offset` (in elements).
pub fn write(device: &mut dyn Device, region: Region, offset: usize, values: &[f64]) {
    let mut bytes = Vec::with_capacity(values.len().min(PIECE) * 8);
    for (i, piece) in values.chunks(PIECE).enumerate() {
        bytes.clear();
        match device.real() {
            Real::F32 => bytes.extend(piece.iter().flat_map(|x| (*x as f32).to_ne_bytes())),
            Real::F64 => bytes.extend(piece.iter().flat_map(|x| x.to_ne_bytes())),
        }
        let at = (offset + i * PIECE) * device.real().bytes();
        device.write(region, at, &bytes);
    }
}

/// Elements `offset .. offset + len` of `region`.
pub fn read(device: &dyn Device, region: Region, offset: usize, len: usize) -> Vec<f64> {
    let size = device.real().bytes();
    let mut bytes = vec![0; len * size];
    device.read(region, offset * size, &mut bytes);
    match device.real() {
        Real::F32 => {
            let (words, _) = bytes.as_chunks();
            words
                .iter()
                .map(|w| f64::from(f32::from_ne_bytes(*w)))
                .collect()
        }
        Real::F64 => {
            let (words, _) = bytes.as_chunks();
            words.iter().map(|w| f64::from_ne_bytes(*w)).collect()
        }
    }
}

/// A parameter's gradient.
pub fn gradient(device: &dyn Device, spec: &ParamSpec) -> Vec<f64> {
    read(device, Region::Grads, spec.offset, spec.len())
}

impl Trainer<'_> {
    /// Initial weights from the seed of the configuration.
    pub fn init_weights(&mut self) {
        let mut piece = vec![0.0; PIECE];
        for spec in &self.blueprint.params.specs {
            for start in (0..spec.len()).step_by(PIECE) {
                let n = PIECE.min(spec.len() - start);
                init::fill(
                    self.blueprint.config.train.seed,
                    spec,
                    start,
                    &mut piece[..n],
                );
                write(
                    self.device,
                    Region::Weights,
                    spec.offset + start,
                    &piece[..n],
                );
            }
        }
    }
}
