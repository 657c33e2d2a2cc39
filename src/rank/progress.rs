//! The progress file of a rank: whole lines as they are appended, in batches that fit in a frame.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of one batch.
const BATCH: usize = 16 * 1024;
/// A longer line is not sent.
pub const LINE_LIMIT: usize = 8 * 1024;

/// Reads where it stopped.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: Option<File>,
    offset: u64,
    partial: Vec<u8>,
    /// Bytes of a line that is too long, until its end.
    dropped: usize,
}

impl Tail {
    /// The tail of the file at `path`, which may come later.
    pub fn new(path: &Path) -> Tail {
        Tail {
            path: path.to_path_buf(),
            file: None,
            offset: 0,
            partial: Vec::new(),
            dropped: 0,
        }
    }

    /// The next lines, empty when there are none at the moment. Call again until it is.
    pub fn lines(&mut self) -> Vec<String> {
        self.read().unwrap_or_default()
    }

    fn read(&mut self) -> io::Result<Vec<String>> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(File::open(&self.path)?),
        };
        let mut chunk = vec![0; BATCH];
        let mut lines = Vec::new();
        // A chunk may hold no end of a line, so go on until there is one or nothing is left.
        while lines.is_empty() {
            let n = file.read_at(&mut chunk, self.offset)?;
            if n == 0 {
                if file.metadata()?.len() < self.offset {
                    // It was cut short by the program, which begins again.
                    self.offset = 0;
                    self.partial.clear();
                }
                break;
            }
            self.offset += n as u64;
            for piece in chunk[..n].split_inclusive(|b| *b == b'\n') {
                let (text, ends) = match piece.strip_suffix(b"\n") {
                    Some(text) => (text, true),
                    None => (piece, false),
                };
                if self.dropped > 0 || self.partial.len() + text.len() > LINE_LIMIT {
                    self.dropped += self.partial.len() + text.len();
                    self.partial.clear();
                } else {
                    self.partial.extend_from_slice(text);
                }
                if !ends {
                    continue;
                }
                if self.dropped > 0 {
                    lines.push(format!(
                        r#"{{"kind":"note","text":"a progress line of {} bytes was dropped, the limit is {LINE_LIMIT}"}}"#,
                        self.dropped
                    ));
                } else if !self.partial.is_empty() {
                    lines.push(String::from_utf8_lossy(&self.partial).into_owned());
                }
                self.partial.clear();
                self.dropped = 0;
            }
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_come_whole_once_and_long_ones_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress");
        let mut tail = Tail::new(&path);
        assert!(tail.lines().is_empty());
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(tail.lines(), ["one"]);
        assert!(tail.lines().is_empty());
        file.write_all(b"o\n\nthree\n").unwrap();
        assert_eq!(tail.lines(), ["two", "three"]);
        file.write_all(&[b'x'; 3 * BATCH]).unwrap();
        file.write_all(b"\nfour\n").unwrap();
        let mut lines = Vec::new();
        loop {
            let next = tail.lines();
            if next.is_empty() {
                break;
            }
            lines.extend(next);
        }
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("49152 bytes"), "{lines:?}");
        assert_eq!(lines[1], "four");
        file.set_len(0).unwrap();
        assert!(tail.lines().is_empty());
        let mut file = File::create(&path).unwrap();
        file.write_all(b"again\n").unwrap();
        assert_eq!(tail.lines(), ["again"]);
    }
}
