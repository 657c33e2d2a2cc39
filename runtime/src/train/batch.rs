//! One micro-batch on the host: tokens, positions, and which row of the compact embedding gradient each token has.

use super::TrainError;
use super::samples::Samples;
use crate::blueprint::Blueprint;
use crate::blueprint::program::{Region, ValInfo};
use crate::device::{Device, Frame};

/// Buffers of a micro-batch, allocated once.
pub(super) struct Batch {
    seq: usize,
    tokens: Vec<u32>,
    targets: Vec<u32>,
    at: Vec<u32>,
    slots: Vec<u32>,
    /// Distinct tokens of the rank's step so far, in order of appearance.
    ids: Vec<u32>,
    /// For each token of the vocabulary its place in `ids`, or [`NONE`].
    places: Vec<u32>,
    bytes: Vec<u8>,
}

const NONE: u32 = u32::MAX;

impl Batch {
    /// Buffers for the micro-batches of `blueprint`.
    pub(super) fn new(blueprint: &Blueprint) -> Batch {
        let (rows, seq) = (blueprint.host.tokens.len, blueprint.config.model.seq_len);
        Batch {
            seq,
            tokens: vec![0; rows],
            targets: vec![0; rows],
            at: (0..rows).map(|r| (r % seq) as u32).collect(),
            slots: vec![0; rows],
            ids: Vec::with_capacity(blueprint.host.ids.len),
            places: vec![NONE; blueprint.config.model.vocab],
            bytes: Vec::with_capacity(4 * rows.max(blueprint.host.ids.len)),
        }
    }

    /// Forgets the distinct tokens: a new step begins.
    pub(super) fn begin(&mut self) {
        for id in self.ids.drain(..) {
            self.places[id as usize] = NONE;
        }
    }

    /// Reads one training sample as sequence `j`.
    pub(super) fn sample(
        &mut self,
        samples: &dyn Samples,
        n: u64,
        j: usize,
    ) -> Result<(), TrainError> {
        let range = j * self.seq..(j + 1) * self.seq;
        let (inputs, targets) = (&mut self.tokens[range.clone()], &mut self.targets[range]);
        samples.read_sample(n, inputs, targets)?;
        self.refuse_unknown_tokens(j)
    }

    /// Reads one held-out sequence as sequence `j`.
    pub(super) fn held_out(
        &mut self,
        samples: &dyn Samples,
        i: u64,
        j: usize,
    ) -> Result<(), TrainError> {
        let range = j * self.seq..(j + 1) * self.seq;
        let (inputs, targets) = (&mut self.tokens[range.clone()], &mut self.targets[range]);
        samples.read_held_out(i, inputs, targets)?;
        self.refuse_unknown_tokens(j)
    }

    fn refuse_unknown_tokens(&self, j: usize) -> Result<(), TrainError> {
        let range = j * self.seq..(j + 1) * self.seq;
        let mut all = self.tokens[range.clone()]
            .iter()
            .chain(&self.targets[range]);
        let vocab = self.places.len();
        match all.find(|t| **t as usize >= vocab) {
            Some(&token) => Err(TrainError::Token { token, vocab }),
            None => Ok(()),
        }
    }

    /// Gives each token its row of the compact embedding gradient.
    pub(super) fn place_tokens(&mut self) {
        for (slot, token) in self.slots.iter_mut().zip(&self.tokens) {
            let place = &mut self.places[*token as usize];
            if *place == NONE {
                *place = self.ids.len() as u32;
                self.ids.push(*token);
            }
            *slot = *place;
        }
    }

    /// Writes tokens, targets, positions and rows to `frame` of the device.
    pub(super) fn load(&mut self, blueprint: &Blueprint, device: &mut dyn Device, frame: Frame) {
        let host = &blueprint.host;
        let base = frame.slot * blueprint.sizes.tokens;
        for (info, data) in [
            (&host.tokens, &self.tokens),
            (&host.targets, &self.targets),
            (&host.at, &self.at),
            (&host.slots, &self.slots),
        ] {
            write(&mut self.bytes, device, base, info, data);
        }
    }

    /// Writes the distinct tokens of the step.
    pub(super) fn load_ids(&mut self, blueprint: &Blueprint, device: &mut dyn Device) {
        let host = &blueprint.host;
        let count = [self.ids.len() as u32];
        write(&mut self.bytes, device, 0, &host.ids, &self.ids);
        write(&mut self.bytes, device, 0, &host.count, &count);
    }
}

fn write(bytes: &mut Vec<u8>, device: &mut dyn Device, base: usize, info: &ValInfo, data: &[u32]) {
    bytes.clear();
    bytes.extend(data.iter().flat_map(|x| x.to_ne_bytes()));
    device.write(Region::Tokens, 4 * (base + info.offset), bytes);
}
