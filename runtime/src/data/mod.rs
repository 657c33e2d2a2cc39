//! Tokens from files, sample order, and the state that is a number of consumed samples.
//!
//! A file of N tokens holds (N - 1) / T sequences of T + 1 tokens at stride T; the tail that fills no sequence is
//! dropped and counted. The last ones are held out for evaluation, the others are training samples. Sample n of a
//! run is sequence `permutation(seed, n / count)[n % count]`: a pure function, so the whole state is the number of
//! samples consumed, a batch may straddle an epoch, and any layout of ranks sees the same samples.

mod file;
mod order;

pub use file::TokenFile;
pub use order::{Permutation, offset_in_batch};

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("cannot {what} the data file {}: {error}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("the data {} is not a regular file (it is {kind}): set `data.path` to a file", path.display())]
    NotAFile { path: PathBuf, kind: &'static str },
    #[error("the data file {} is empty", path.display())]
    Empty { path: PathBuf },
    #[error(
        "the data file {} has {tokens} tokens, too few: {need} are needed for one training sequence{} of {seq_len} tokens",
        path.display(), if *held_out { " and one held out" } else { "" }
    )]
    TooShort {
        path: PathBuf,
        tokens: u64,
        need: u64,
        seq_len: usize,
        held_out: bool,
    },
    #[error("token {token} at byte {offset} of {} is not below the vocabulary of {vocab}", path.display())]
    TokenOutOfRange {
        path: PathBuf,
        offset: u64,
        token: u32,
        vocab: usize,
    },
    #[error("the data file {} changed while it was used: {seen}", path.display())]
    Changed { path: PathBuf, seen: String },
    #[error("{what} of the data is {value}: it must be {range}")]
    Parameter {
        what: &'static str,
        value: String,
        range: &'static str,
    },
}

/// Which sequences of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    /// Sequence length T.
    pub seq_len: usize,
    /// Share of the sequences held out, in 0..1; at least one sequence where it is not 0.
    pub validation: f64,
    /// Seed of the sample order.
    pub seed: u64,
    /// Tokens must be below this.
    pub vocab: usize,
}

/// A tokenised file, cut into sequences.
#[derive(Debug)]
pub struct Dataset {
    file: TokenFile,
    split: Split,
    train: u64,
    held_out: u64,
}

impl Dataset {
    /// Opens a file of bytes, reads it once for its checksum and checks every token.
    pub fn open(path: &Path, split: Split) -> Result<Dataset, DataError> {
        let bad = |what, value: String, range| DataError::Parameter { what, value, range };
        if split.seq_len == 0 {
            return Err(bad("the sequence length", "0".into(), "at least 1"));
        }
        if !(0.0..1.0).contains(&split.validation) {
            let value = split.validation.to_string();
            return Err(bad("the held-out share", value, "0 or more and below 1"));
        }
        let file = TokenFile::open(path, split.vocab)?;
        let length = split.seq_len as u64;
        let sequences = (file.tokens() - 1) / length;
        let held_out = if split.validation > 0.0 {
            ((sequences as f64 * split.validation).round() as u64).max(1)
        } else {
            0
        };
        // A short file with a large share: one training sequence comes before a second held-out one.
        let held_out = held_out
            .min(sequences.saturating_sub(1))
            .max(held_out.min(1));
        if sequences <= held_out {
            return Err(DataError::TooShort {
                path: path.into(),
                tokens: file.tokens(),
                need: (1 + held_out) * length + 1,
                seq_len: split.seq_len,
                held_out: held_out > 0,
            });
        }
        Ok(Dataset {
            train: sequences - held_out,
            file,
            split,
            held_out,
        })
    }

    /// Training sequences: samples of one epoch.
    pub fn train_sequences(&self) -> u64 {
        self.train
    }

    /// Sequences held out for evaluation.
    pub fn held_out_sequences(&self) -> u64 {
        self.held_out
    }

    /// Tokens at the end of the file that fill no sequence.
    pub fn dropped_tokens(&self) -> u64 {
        self.file.tokens() - 1 - (self.train + self.held_out) * self.split.seq_len as u64
    }

    /// What must be equal for a run to continue: content, size, format, sequence length, seed, split; readable, in fixed order.
    pub fn fingerprint(&self) -> String {
        format!(
            "blake3={} bytes={} format=bytes seq_len={} seed={} validation={}",
            self.file.blake3(),
            self.file.tokens(),
            self.split.seq_len,
            self.split.seed,
            self.split.validation
        )
    }

    /// Sequence that sample `n` of the run is, counted from 0 over all epochs.
    pub fn sample(&self, n: u64) -> u64 {
        Permutation::new(self.train, self.split.seed, n / self.train).at(n % self.train)
    }

    /// Reads sample `n` of the run: T inputs and the T tokens that follow each of them. Allocates nothing.
    pub fn read_sample(
        &self,
        n: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        self.read_sequence(self.sample(n), inputs, targets)
    }

    /// Reads held-out sequence `i`, below [`Dataset::held_out_sequences`].
    pub fn read_held_out(
        &self,
        i: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        if i >= self.held_out {
            return Err(DataError::Parameter {
                what: "the held-out sequence",
                value: i.to_string(),
                range: "below their number",
            });
        }
        self.read_sequence(self.train + i, inputs, targets)
    }

    fn read_sequence(
        &self,
        sequence: u64,
        inputs: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        let length = self.split.seq_len;
        if inputs.len() != length || targets.len() != length {
            return Err(DataError::Parameter {
                what: "the room for a sequence",
                value: format!("{} and {} tokens", inputs.len(), targets.len()),
                range: "one sequence length each",
            });
        }
        let start = sequence * length as u64;
        self.file.read(start, inputs)?;
        targets[..length - 1].copy_from_slice(&inputs[1..]);
        self.file
            .read(start + length as u64, &mut targets[length - 1..])
    }
}

#[cfg(test)]
mod tests;
