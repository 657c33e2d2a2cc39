//! Which checkpoints of an attempt stay. Only the attempt's own directory is touched.

use super::save::receipt_name;
use crate::contract::checkpoint::MANIFEST;
use crate::sys::publish::sync_directory;
use std::fs;
use std::io;
use std::path::Path;

const PREFIX: &str = "step-";

/// Name of the directory of a step's checkpoint.
pub(super) fn step_name(step: u64) -> String {
    format!("{PREFIX}{step}")
}

/// After the commit of `step`: removes its receipts, all but the newest `keep` checkpoints, and older failed saves.
pub(super) fn tidy(dir: &Path, step: u64, keep: usize, ranks: usize) -> io::Result<()> {
    for rank in 0..ranks {
        fs::remove_file(dir.join(step_name(step)).join(receipt_name(rank)))?;
    }
    let mut steps: Vec<u64> = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        steps.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    // A later step can only be of another process: not ours to judge.
    steps.retain(|&other| other < step);
    steps.sort_unstable_by(|a, b| b.cmp(a));
    let mut kept = 1;
    for old in steps {
        let path = dir.join(step_name(old));
        let manifest = path.join(MANIFEST);
        if manifest.try_exists()? {
            if kept < keep {
                kept += 1;
                continue;
            }
            // First, and for good: what has no manifest is no checkpoint, whatever happens next.
            fs::remove_file(&manifest)?;
            sync_directory(&path)?;
        }
        fs::remove_dir_all(&path)?;
    }
    Ok(())
}
