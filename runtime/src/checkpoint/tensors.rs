//! One safetensors file, written as a stream: the header is known before the first value is read.
//!
//! Format: 8 bytes of header length, a JSON header, then the values without gaps; <https://huggingface.co/docs/safetensors>.

use super::{CHUNK, Piece, StateKind};
use crate::contract::checkpoint::{CutOf, FileEntry, PieceEntry, SCHEMA};
use crate::device::{Device, Real};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Name of an element type in the files.
pub(super) fn dtype(real: Real) -> &'static str {
    match real {
        Real::F32 => "F32",
        Real::F64 => "F64",
    }
}

/// Name of a piece inside a file: that of the parameter, with `m.` or `v.` before it for its moments.
pub(super) fn tensor_name(name: &str, state: StateKind) -> String {
    match state {
        StateKind::Param => name.to_owned(),
        StateKind::M => format!("m.{name}"),
        StateKind::V => format!("v.{name}"),
    }
}

/// Length field and header of a file that holds `pieces` in this order.
fn header(pieces: &[&Piece], real: Real) -> io::Result<Vec<u8>> {
    let mut object = Map::new();
    let metadata = json!({ "format": "pt", "schema": SCHEMA });
    object.insert("__metadata__".into(), metadata);
    let mut at = 0;
    for piece in pieces {
        let end = at + piece.len * real.bytes();
        let entry =
            json!({ "dtype": dtype(real), "shape": piece.shape, "data_offsets": [at, end] });
        object.insert(tensor_name(&piece.name, piece.state), entry);
        at = end;
    }
    let mut text = serde_json::to_vec(&Value::Object(object))?;
    // Values start at a multiple of 8, whatever their type.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    Ok(bytes)
}

/// Writes `pieces` of `device` to `out` as the file `name`, through `buffer` of at least [`CHUNK`] bytes; `tick` is called after each chunk.
pub(super) fn write(
    out: &mut dyn Write,
    name: &str,
    pieces: &[&Piece],
    device: &dyn Device,
    buffer: &mut [u8],
    tick: &mut dyn FnMut(),
) -> io::Result<(FileEntry, Vec<PieceEntry>)> {
    let real = device.real();
    let head = header(pieces, real)?;
    let mut whole = blake3::Hasher::new();
    whole.update(&head);
    out.write_all(&head)?;
    let mut at = head.len();
    let mut entries = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let start = piece.offset * real.bytes();
        let bytes = piece.len * real.bytes();
        let mut own = blake3::Hasher::new();
        for done in (0..bytes).step_by(CHUNK) {
            let chunk = &mut buffer[..CHUNK.min(bytes - done)];
            device.read(piece.region, start + done, chunk);
            own.update(chunk);
            whole.update(chunk);
            out.write_all(chunk)?;
            tick();
        }
        entries.push(PieceEntry {
            name: piece.name.clone(),
            state: piece.state,
            shape: piece.shape.clone(),
            cut: CutOf::WHOLE,
            range: [0, piece.len],
            dtype: dtype(real).into(),
            file: name.into(),
            offset: at as u64,
            blake3: own.finalize().to_hex().to_string(),
        });
        at += bytes;
    }
    let file = FileEntry {
        path: name.into(),
        bytes: at as u64,
        blake3: Some(whole.finalize().to_hex().to_string()),
    };
    Ok((file, entries))
}
