//! Saving: each rank its share and a receipt, then the manifest by rank 0.

use super::{CHUNK, CheckpointError, Piece, StateKind, retain, tensors};
use crate::comm::Comm;
use crate::contract::checkpoint::{
    FileEntry, MANIFEST, Manifest, PieceEntry, Point, SCHEMA, TrainerState,
};
use crate::device::Device;
use crate::sys::publish;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A receipt written on another node may take this long to be seen.
const RECEIPT: Duration = Duration::from_secs(30);

/// What to save besides the tensors, and where.
pub struct Order<'a> {
    /// Directory of this attempt's checkpoints; the checkpoint is `step-<s>` in it.
    pub dir: &'a Path,
    pub attempt: u32,
    pub step: u64,
    /// Checkpoint this attempt started from.
    pub parent: Option<Point>,
    /// Fingerprint of the plan.
    pub fingerprint: &'a str,
    pub trainer: &'a TrainerState,
    /// Newest checkpoints of this attempt to keep, at least one.
    pub keep: usize,
}

/// A committed checkpoint. Bytes are those of all ranks' files on rank 0, of its own files on the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    pub path: PathBuf,
    pub bytes: u64,
    pub seconds: f64,
    /// Rank 0 only: what could not be tidied up afterwards. The checkpoint itself is whole.
    pub warning: Option<String>,
}

/// Where a file's bytes go.
pub(super) trait Output: Write {
    /// Returns when they are durable.
    fn sync(&mut self) -> io::Result<()>;
}

impl Output for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

pub(super) type Open = Box<dyn Fn(&Path) -> io::Result<Box<dyn Output>> + Send>;

/// Saves checkpoints through one buffer, made at the start.
pub struct Saver {
    buffer: Vec<u8>,
    open: Open,
}

impl Default for Saver {
    fn default() -> Self {
        Saver::new()
    }
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    files: Vec<FileEntry>,
    pieces: Vec<PieceEntry>,
}

impl Saver {
    pub fn new() -> Saver {
        Self::with_output(Box::new(|path| Ok(Box::new(File::create(path)?))))
    }

    pub(super) fn with_output(open: Open) -> Saver {
        Saver {
            buffer: vec![0; CHUNK],
            open,
        }
    }

    /// Saves `table`, the same on all ranks of `comm`, whose devices hold equal values. Called by all; returns when
    /// the manifest is committed. After an error other than [`CheckpointError::Comm`] the group stands and training may go on.
    pub fn save(
        &mut self,
        order: &Order<'_>,
        table: &[Piece],
        device: &dyn Device,
        comm: &mut dyn Comm,
    ) -> Result<Saved, CheckpointError> {
        let start = Instant::now();
        let path = directory(order);
        let free = match comm.rank() {
            0 => claim(&path),
            _ => Ok(()),
        };
        agree(comm, free, &path)?;
        let written = self.write_share(order, table, device, comm);
        agree(comm, written, &path)
            .and_then(|mut bytes| {
                let committed = if comm.rank() == 0 {
                    commit(order, table, comm).map(|all| bytes = all)
                } else {
                    Ok(())
                };
                agree(comm, committed, &path)?;
                let warning = match comm.rank() {
                    0 => retain::tidy(order.dir, order.step, order.keep, comm.size()).err(),
                    _ => None,
                };
                Ok(Saved {
                    path: path.clone(),
                    bytes,
                    seconds: start.elapsed().as_secs_f64(),
                    warning: warning.map(|error| error.to_string()),
                })
            })
            .inspect_err(|error| {
                // Where the group failed, the manifest may stand already: those files are not ours to judge.
                if !matches!(error, CheckpointError::Comm(_)) {
                    discard(&path, comm.rank());
                }
            })
    }

    /// Writes this rank's share of the tensors and the receipt of it; its bytes.
    pub(super) fn write_share(
        &mut self,
        order: &Order<'_>,
        table: &[Piece],
        device: &dyn Device,
        comm: &mut dyn Comm,
    ) -> Result<u64, CheckpointError> {
        let dir = directory(order);
        let rank = comm.rank();
        fs::create_dir_all(&dir).map_err(failed("create the directory", &dir))?;
        let share = share(table, rank, comm.size());
        let (model, optimizer): (Vec<_>, Vec<_>) = share
            .into_iter()
            .partition(|piece| piece.state == StateKind::Param);
        let mut receipt = Receipt {
            files: Vec::new(),
            pieces: Vec::new(),
        };
        for (name, pieces) in file_names(rank).into_iter().zip([model, optimizer]) {
            if pieces.is_empty() {
                continue;
            }
            let path = dir.join(&name);
            let mut out = (self.open)(&path).map_err(failed("create", &path))?;
            let (file, entries) = tensors::write(
                &mut *out,
                &name,
                &pieces,
                device,
                &mut self.buffer,
                &mut || comm.tick(),
            )
            .map_err(failed("write", &path))?;
            out.sync().map_err(failed("make durable", &path))?;
            receipt.files.push(file);
            receipt.pieces.extend(entries);
        }
        let path = dir.join(receipt_name(rank));
        serde_json::to_vec(&receipt)
            .map_err(io::Error::from)
            .and_then(|text| publish::replace(&path, &text))
            .map_err(failed("write", &path))?;
        comm.tick();
        Ok(receipt.files.iter().map(|file| file.bytes).sum())
    }
}

/// A committed checkpoint is never written over.
fn claim(dir: &Path) -> Result<(), CheckpointError> {
    fs::create_dir_all(dir).map_err(failed("create the directory", dir))?;
    let manifest = dir.join(MANIFEST);
    if manifest
        .try_exists()
        .map_err(failed("look for", &manifest))?
    {
        return Err(CheckpointError::Taken { path: dir.into() });
    }
    Ok(())
}

fn directory(order: &Order<'_>) -> PathBuf {
    order.dir.join(retain::step_name(order.step))
}

fn file_names(rank: usize) -> [String; 2] {
    ["model", "optimizer"].map(|kind| format!("{kind}-{rank}.safetensors"))
}

pub(super) fn receipt_name(rank: usize) -> String {
    format!("receipt-{rank}.json")
}

fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> CheckpointError + use<'a> {
    move |error| CheckpointError::Write {
        what,
        path: path.into(),
        error,
    }
}

/// The pieces rank `rank` of `size` writes: whole tensors, in order, about as many elements for each.
fn share(table: &[Piece], rank: usize, size: usize) -> Vec<&Piece> {
    let total: usize = table.iter().map(|piece| piece.len).sum();
    let mut before = 0;
    let mut mine = Vec::new();
    for piece in table {
        let middle = before + piece.len / 2;
        before += piece.len;
        // In u128: the product of counts may pass 64 bits.
        let writer = middle as u128 * size as u128 / total.max(1) as u128;
        if writer.min(size as u128 - 1) == rank as u128 {
            mine.push(piece);
        }
    }
    mine
}

/// Tells all ranks whether each has succeeded: the own value when all have.
fn agree<T>(
    comm: &mut dyn Comm,
    mine: Result<T, CheckpointError>,
    path: &Path,
) -> Result<T, CheckpointError> {
    // A broken group says more than what it broke.
    if let Err(CheckpointError::Comm(error)) = mine {
        return Err(error.into());
    }
    let mut all = vec![0.0; comm.size()];
    comm.all_gather(&[f64::from(u8::from(mine.is_err()))], &mut all)?;
    let value = mine?;
    match all.iter().position(|&failed| failed != 0.0) {
        None => Ok(value),
        Some(rank) => Err(CheckpointError::Peer {
            rank,
            path: path.into(),
        }),
    }
}

/// Rank 0: checks every receipt against the files and commits the manifest; the bytes of all files.
fn commit(order: &Order<'_>, table: &[Piece], comm: &mut dyn Comm) -> Result<u64, CheckpointError> {
    let dir = directory(order);
    let (mut files, mut pieces) = (Vec::new(), Vec::new());
    for rank in 0..comm.size() {
        let receipt = read_receipt(&dir.join(receipt_name(rank)), comm)?;
        for file in &receipt.files {
            check_size(&dir.join(&file.path), file.bytes)?;
        }
        files.extend(receipt.files);
        pieces.extend(receipt.pieces);
        comm.tick();
    }
    check_complete(table, &pieces, &dir)?;
    let bytes = files.iter().map(|file| file.bytes).sum();
    let manifest = Manifest {
        schema: SCHEMA.into(),
        attempt: order.attempt,
        step: order.step,
        parent: order.parent,
        fingerprint: order.fingerprint.into(),
        files,
        trainer: Some(order.trainer.clone()),
        pieces,
    };
    let path = dir.join(MANIFEST);
    publish::sync_directory(&dir)
        .and_then(|()| publish::sync_directory(order.dir))
        .map_err(failed("make durable", &dir))?;
    // No manifest from a step that some rank did not finish.
    comm.check()?;
    manifest
        .to_text()
        .map_err(io::Error::from)
        .and_then(|text| publish::publish(&path, text.as_bytes()))
        .inspect_err(|error| {
            // It may stand although it is not known to be durable: this save then counts as failed, and takes it back.
            if error.kind() != io::ErrorKind::AlreadyExists {
                let _ = fs::remove_file(&path);
            }
        })
        .map_err(failed("commit", &path))?;
    Ok(bytes)
}

fn read_receipt(path: &Path, comm: &mut dyn Comm) -> Result<Receipt, CheckpointError> {
    let start = Instant::now();
    loop {
        let reason = match fs::read(path) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(receipt) => return Ok(receipt),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        if start.elapsed() > RECEIPT {
            return Err(CheckpointError::Receipt {
                path: path.into(),
                reason,
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        comm.tick();
        comm.check()?;
    }
}

fn check_size(path: &Path, bytes: u64) -> Result<(), CheckpointError> {
    let found = fs::metadata(path).map_err(failed("look at", path))?.len();
    if found == bytes {
        return Ok(());
    }
    Err(CheckpointError::Receipt {
        path: path.into(),
        reason: format!("the file has {found} bytes, its writer counted {bytes}"),
    })
}

/// Every tensor of the table has been written once.
fn check_complete(
    table: &[Piece],
    pieces: &[PieceEntry],
    dir: &Path,
) -> Result<(), CheckpointError> {
    let mut left: HashMap<(&str, StateKind), usize> = table
        .iter()
        .map(|piece| ((piece.name.as_str(), piece.state), piece.len))
        .collect();
    let wrong = pieces.iter().find(|piece| {
        let len = left.remove(&(piece.name.as_str(), piece.state));
        len.map(|len| [0, len]) != Some(piece.range)
    });
    let missing = left.keys().next().map(|(name, _)| *name);
    match wrong.map(|piece| piece.name.as_str()).or(missing) {
        None => Ok(()),
        Some(name) => Err(CheckpointError::Receipt {
            path: dir.into(),
            reason: format!("tensor {name} is not written exactly once: the ranks' tables differ"),
        }),
    }
}

/// Removes this rank's files of a failed save, to free the space they take; what can't be removed is harmless.
fn discard(dir: &Path, rank: usize) {
    let names = file_names(rank).into_iter().chain([receipt_name(rank)]);
    for name in names {
        let _ = fs::remove_file(dir.join(name));
    }
    // Succeeds for the last rank only.
    let _ = fs::remove_dir(dir);
}
