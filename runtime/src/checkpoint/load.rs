//! Loading: everything is checked on the way into the device, and any fault is told in words.

use super::{CHUNK, CheckpointError, Piece, StateKind, tensors};
use crate::contract::checkpoint::{CutOf, FileEntry, MANIFEST, Manifest, PieceEntry};
use crate::device::Device;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};
use std::time::Instant;

/// A checkpoint that is in the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub manifest: Manifest,
    pub bytes: u64,
    pub seconds: f64,
}

fn unreadable(path: &Path, reason: impl Into<String>) -> CheckpointError {
    CheckpointError::Unreadable {
        path: path.into(),
        reason: reason.into(),
    }
}

/// Reads and checks the manifest of the checkpoint in `dir`.
pub fn read_manifest(dir: &Path) -> Result<Manifest, CheckpointError> {
    let text = std::fs::read(dir.join(MANIFEST))
        .map_err(|error| unreadable(dir, format!("cannot read {MANIFEST}: {error}")))?;
    let text = String::from_utf8(text)
        .map_err(|_| unreadable(dir, format!("{MANIFEST} is not text: torn or altered")))?;
    Manifest::parse(&text).map_err(|reason| unreadable(dir, format!("{MANIFEST}: {reason}")))
}

/// Loads `table` from the checkpoint in `dir` into `device`. Kinds of state that the table lacks altogether are left
/// out, their files unread. After an error the device holds parts of the checkpoint. `tick` is called after each chunk.
///
/// All ranks load, agree on the outcome, and exit 76 when it is [`CheckpointError::Unreadable`] for any.
pub fn load(
    dir: &Path,
    table: &[Piece],
    device: &mut dyn Device,
    tick: &mut dyn FnMut(),
) -> Result<Loaded, CheckpointError> {
    let start = Instant::now();
    let manifest = read_manifest(dir)?;
    let wanted = Wanted::new(table);
    for file in &manifest.files {
        check_file(dir, file)?;
    }
    wanted.check(dir, &manifest, tensors::dtype(device.real()))?;
    let mut buffer = vec![0; CHUNK];
    let mut bytes = 0;
    for file in &manifest.files {
        let mut entries: Vec<(&PieceEntry, &Piece)> = manifest
            .pieces
            .iter()
            .filter(|entry| entry.file == file.path)
            .filter_map(|entry| Some((entry, wanted.get(entry)?)))
            .collect();
        if entries.is_empty() {
            continue;
        }
        entries.sort_by_key(|(entry, _)| entry.offset);
        let mut stream = Stream::open(dir, file, &mut buffer, tick)?;
        for (entry, piece) in entries {
            stream.piece(entry, piece, device)?;
        }
        stream.finish()?;
        bytes += file.bytes;
    }
    Ok(Loaded {
        manifest,
        bytes,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Size first: it tells torn files without reading them.
fn check_file(dir: &Path, file: &FileEntry) -> Result<(), CheckpointError> {
    let name = &file.path;
    let mut parts = Path::new(name).components();
    let plain = matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    );
    if !plain {
        return Err(unreadable(
            dir,
            format!("`{name}` is not a file beside the manifest"),
        ));
    }
    let found = match std::fs::metadata(dir.join(name)) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(unreadable(dir, format!("the file {name} is missing")));
        }
        Err(error) => return Err(unreadable(dir, format!("cannot look at {name}: {error}"))),
    };
    if found != file.bytes {
        let want = file.bytes;
        let reason = format!("{name} has {found} of {want} bytes: it is torn or altered");
        return Err(unreadable(dir, reason));
    }
    Ok(())
}

/// The table by name and state.
struct Wanted<'a> {
    pieces: HashMap<(&'a str, StateKind), &'a Piece>,
}

impl<'a> Wanted<'a> {
    fn new(table: &'a [Piece]) -> Self {
        let key = |piece: &'a Piece| ((piece.name.as_str(), piece.state), piece);
        Wanted {
            pieces: table.iter().map(key).collect(),
        }
    }

    fn get(&self, entry: &PieceEntry) -> Option<&'a Piece> {
        self.pieces
            .get(&(entry.name.as_str(), entry.state))
            .copied()
    }

    /// The manifest's pieces cover every wanted tensor, once, and are of this model and precision.
    fn check(&self, dir: &Path, manifest: &Manifest, dtype: &str) -> Result<(), CheckpointError> {
        let differs = |reason: String| CheckpointError::Differs {
            path: dir.into(),
            reason,
        };
        let mut ranges: HashMap<(&str, StateKind), Vec<[usize; 2]>> = HashMap::new();
        for entry in &manifest.pieces {
            let name = tensors::tensor_name(&entry.name, entry.state);
            let Some(piece) = self.get(entry) else {
                if self.pieces.keys().any(|(_, state)| *state == entry.state) {
                    return Err(differs(format!(
                        "it has a tensor {name}, the model has none"
                    )));
                }
                continue;
            };
            if entry.shape != piece.shape {
                let (theirs, ours) = (&entry.shape, &piece.shape);
                return Err(differs(format!(
                    "{name} is {theirs:?}, the model's is {ours:?}"
                )));
            }
            if entry.dtype != dtype {
                let theirs = &entry.dtype;
                return Err(differs(format!(
                    "{name} is of {theirs}, the device's reals are {dtype}"
                )));
            }
            if entry.cut != CutOf::WHOLE {
                return Err(differs(format!("{name} is cut for tensor parallel ranks")));
            }
            if !manifest.files.iter().any(|file| file.path == entry.file) {
                let file = &entry.file;
                return Err(unreadable(
                    dir,
                    format!("{name} is in {file}, which is not listed"),
                ));
            }
            let of = (entry.name.as_str(), entry.state);
            ranges.entry(of).or_default().push(entry.range);
        }
        for (key, piece) in &self.pieces {
            let name = tensors::tensor_name(&piece.name, piece.state);
            let Some(mut found) = ranges.remove(key) else {
                return Err(differs(format!("it has no tensor {name}")));
            };
            found.sort_unstable();
            let end = found.iter().try_fold(0, |at, range| {
                (range[0] == at && range[1] >= at).then_some(range[1])
            });
            if end != Some(piece.len) {
                return Err(unreadable(
                    dir,
                    format!("the pieces of {name} do not make it whole"),
                ));
            }
        }
        Ok(())
    }
}

/// A file read from its start to its end, with its checksum.
struct Stream<'a> {
    dir: &'a Path,
    entry: &'a FileEntry,
    file: File,
    at: u64,
    whole: blake3::Hasher,
    buffer: &'a mut [u8],
    tick: &'a mut dyn FnMut(),
}

impl<'a> Stream<'a> {
    fn open(
        dir: &'a Path,
        entry: &'a FileEntry,
        buffer: &'a mut [u8],
        tick: &'a mut dyn FnMut(),
    ) -> Result<Self, CheckpointError> {
        let name = &entry.path;
        let file = File::open(dir.join(name))
            .map_err(|error| unreadable(dir, format!("cannot open {name}: {error}")))?;
        Ok(Stream {
            dir,
            entry,
            file,
            at: 0,
            whole: blake3::Hasher::new(),
            buffer,
            tick,
        })
    }

    fn fault(&self, reason: impl std::fmt::Display) -> CheckpointError {
        unreadable(self.dir, format!("{}: {reason}", self.entry.path))
    }

    /// Reads up to `end` in chunks and shows each, with its place from where reading began.
    fn read_to(
        &mut self,
        end: u64,
        mut show: impl FnMut(usize, &[u8]),
    ) -> Result<(), CheckpointError> {
        let start = self.at;
        while self.at < end {
            let count = CHUNK.min((end - self.at) as usize);
            let read = self.file.read_exact(&mut self.buffer[..count]);
            read.map_err(|error| self.fault(format!("cannot read at byte {}: {error}", self.at)))?;
            let chunk = &self.buffer[..count];
            self.whole.update(chunk);
            show((self.at - start) as usize, chunk);
            self.at += count as u64;
            (self.tick)();
        }
        Ok(())
    }

    fn piece(
        &mut self,
        entry: &PieceEntry,
        piece: &Piece,
        device: &mut dyn Device,
    ) -> Result<(), CheckpointError> {
        let name = tensors::tensor_name(&entry.name, entry.state);
        let width = device.real().bytes();
        let bytes = ((entry.range[1] - entry.range[0]) * width) as u64;
        let end = entry.offset.checked_add(bytes);
        let Some(end) = end.filter(|&end| entry.offset >= self.at && end <= self.entry.bytes)
        else {
            return Err(self.fault(format!("the place of {name} is outside of it or taken")));
        };
        self.read_to(entry.offset, |_, _| ())?;
        let to = (piece.offset + entry.range[0]) * width;
        let mut own = blake3::Hasher::new();
        self.read_to(end, |at, chunk| {
            own.update(chunk);
            device.write(piece.region, to + at, chunk);
        })?;
        if own.finalize().to_hex().as_str() != entry.blake3 {
            return Err(self.fault(format!(
                "the checksum of {name} does not match: it is altered"
            )));
        }
        Ok(())
    }

    /// The rest of the file, then its checksum: header and gaps count too.
    fn finish(mut self) -> Result<(), CheckpointError> {
        self.read_to(self.entry.bytes, |_, _| ())?;
        let found = self.whole.finalize().to_hex();
        match &self.entry.blake3 {
            Some(want) if want != found.as_str() => {
                Err(self.fault("its checksum does not match: it is altered"))
            }
            _ => Ok(()),
        }
    }
}
