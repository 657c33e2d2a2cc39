//! A file of byte tokens, read by position; never mapped, so that a truncated file is an error and not a signal.

use super::DataError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes read at a time.
const CHUNK: usize = 64 * 1024;
/// Bytes read at a time where the buffer is on the stack.
const SMALL: usize = 4096;

/// An open file whose every byte is a token below the vocabulary.
#[derive(Debug)]
pub struct TokenFile {
    file: File,
    path: PathBuf,
    tokens: u64,
    vocab: usize,
    blake3: String,
}

impl TokenFile {
    /// Opens `path` and reads it once: its checksum is taken and its tokens are checked.
    pub fn open(path: &Path, vocab: usize) -> Result<TokenFile, DataError> {
        let io = |what| {
            move |error| DataError::Io {
                what,
                path: path.into(),
                error,
            }
        };
        // Looked at before it is opened: opening a pipe would wait for a writer.
        let kind = std::fs::metadata(path).map_err(io("find"))?.file_type();
        if !kind.is_file() {
            let kind = if kind.is_dir() {
                "a directory"
            } else {
                "a device, pipe or socket"
            };
            return Err(DataError::NotAFile {
                path: path.into(),
                kind,
            });
        }
        let mut opened = TokenFile {
            file: File::open(path).map_err(io("open"))?,
            path: path.into(),
            tokens: 0,
            vocab,
            blake3: String::new(),
        };
        opened.scan()?;
        if opened.tokens == 0 {
            return Err(DataError::Empty { path: path.into() });
        }
        Ok(opened)
    }

    fn scan(&mut self) -> Result<(), DataError> {
        let mut hasher = blake3::Hasher::new();
        let mut chunk = vec![0u8; CHUNK];
        loop {
            let got = match self.file.read_at(&mut chunk, self.tokens) {
                Ok(0) => break,
                Ok(got) => got,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(DataError::Io {
                        what: "read",
                        path: self.path.clone(),
                        error,
                    });
                }
            };
            self.check(self.tokens, &chunk[..got])?;
            hasher.update(&chunk[..got]);
            self.tokens += got as u64;
        }
        self.blake3 = hasher.finalize().to_hex().to_string();
        Ok(())
    }

    fn check(&self, offset: u64, bytes: &[u8]) -> Result<(), DataError> {
        if self.vocab > usize::from(u8::MAX) {
            return Ok(());
        }
        match bytes.iter().position(|&b| usize::from(b) >= self.vocab) {
            None => Ok(()),
            Some(at) => Err(DataError::TokenOutOfRange {
                path: self.path.clone(),
                offset: offset + at as u64,
                token: u32::from(bytes[at]),
                vocab: self.vocab,
            }),
        }
    }

    /// Number of tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Checksum of the content, hex.
    pub fn blake3(&self) -> &str {
        &self.blake3
    }

    /// Reads tokens from `start` on. Checks them again: the file may have changed since it was opened.
    pub fn read(&self, start: u64, out: &mut [u32]) -> Result<(), DataError> {
        let mut buffer = [0u8; SMALL];
        let mut at = start;
        for part in out.chunks_mut(SMALL) {
            let bytes = &mut buffer[..part.len()];
            self.file
                .read_exact_at(bytes, at)
                .map_err(|error| self.read_error(error))?;
            self.check(at, bytes)?;
            for (to, from) in part.iter_mut().zip(bytes.iter()) {
                *to = u32::from(*from);
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    fn read_error(&self, error: std::io::Error) -> DataError {
        let path = self.path.clone();
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            let now = self.file.metadata().map_or(0, |meta| meta.len());
            let was = self.tokens;
            let seen = format!("it had {was} bytes and has {now} now");
            return DataError::Changed { path, seen };
        }
        DataError::Io {
            what: "read",
            path,
            error,
        }
    }
}
