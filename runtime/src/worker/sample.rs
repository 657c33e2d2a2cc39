//! Text from a checkpoint.

use super::WorkerError;
use crate::blueprint::Decoder;
use crate::checkpoint::{CheckpointError, StateKind, load, read_manifest};
use crate::contract::{Precision, exit};
use crate::device::Device;
use crate::device::cpu::CpuDevice;
use crate::device::reference::Reference;
use crate::train::generate::{Choice, Generator};
use crate::train::keep::table;
use std::io::Write;
use std::path::PathBuf;

/// What to continue, and how.
#[derive(Debug, Clone)]
pub struct SampleArgs {
    /// Directory of a checkpoint.
    pub checkpoint: PathBuf,
    /// Empty stands for a new line.
    pub prompt: String,
    /// Tokens to add.
    pub tokens: usize,
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// Only the likeliest so many tokens; 0 is all.
    pub top_k: usize,
    pub seed: u64,
    pub threads: usize,
}

/// Prints the prompt and its continuation.
pub(super) fn run(args: &SampleArgs, out: &mut dyn Write) -> Result<i32, WorkerError> {
    let differs = |reason: String| CheckpointError::Differs {
        path: args.checkpoint.clone(),
        reason,
    };
    let manifest = read_manifest(&args.checkpoint)?;
    let Some(trained) = manifest.trainer else {
        return Err(differs("another program wrote it".to_owned()).into());
    };
    let decoder = Decoder::new(&trained.config, 1).map_err(WorkerError::Problems)?;
    let mut device: Box<dyn Device> = match trained.precision {
        Precision::F32 => Box::new(CpuDevice::new(args.threads.max(1))?),
        Precision::F64 => Box::new(Reference::new()),
    };
    device.reserve(&decoder.sizes, None)?;
    let table = table(&decoder.params, &[StateKind::Param]);
    load(&args.checkpoint, &table, &mut *device, &mut || {})?;
    let prompt = match args.prompt.is_empty() {
        true => "\n",
        false => &args.prompt,
    };
    let tokens: Vec<u32> = prompt.bytes().map(u32::from).collect();
    let vocab = trained.config.model.vocab;
    if let Some(token) = tokens.iter().find(|t| **t as usize >= vocab) {
        let reason = format!("the prompt has byte {token}, its vocabulary ends at {vocab}");
        return Err(differs(reason).into());
    }
    let choice = Choice {
        temperature: args.temperature,
        top_k: args.top_k,
        seed: args.seed,
    };
    let mut text: Vec<u8> = prompt.bytes().collect();
    let mut generator = Generator::new(&decoder, &mut *device, trained.config.model.seq_len);
    generator.generate(&tokens, args.tokens, &choice, |token| {
        // Tokens past the bytes have no text.
        text.push(u8::try_from(token).unwrap_or(b'?'));
    })?;
    writeln!(out, "{}", printable(&text)).map_err(|error| WorkerError::Output {
        path: PathBuf::from("standard output"),
        error: error.to_string(),
    })?;
    Ok(exit::DONE)
}

/// Text fit for a terminal: what a model makes up must not control it.
fn printable(bytes: &[u8]) -> String {
    let fit = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    String::from_utf8_lossy(bytes).chars().map(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_control_a_terminal() {
        assert_eq!(
            printable(b"a\n\tb\x1b[2J\xff\x7f"),
            "a\n\tb\u{fffd}[2J\u{fffd}\u{fffd}"
        );
    }
}
