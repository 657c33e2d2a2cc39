//! Reading files that others append to: whole lines only, from where the last look ended, or the newest few.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// At most so much is read in one look, so that memory stays small behind a fast writer.
const LOOK: u64 = 1 << 20;

/// A file that is being followed; it need not exist yet.
#[derive(Debug, Clone)]
pub struct Tail {
    path: PathBuf,
    offset: u64,
    /// A line without its end yet.
    rest: Vec<u8>,
}

impl Tail {
    pub fn new(path: impl Into<PathBuf>) -> Tail {
        Tail {
            path: path.into(),
            offset: 0,
            rest: Vec::new(),
        }
    }

    /// Lines that are complete since the last look, without their ends. Bytes that are not UTF-8 are replaced.
    pub fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let Ok(mut file) = File::open(&self.path) else {
            return lines;
        };
        let mut fresh = Vec::new();
        let read = file
            .seek(SeekFrom::Start(self.offset))
            .and_then(|_| file.take(LOOK).read_to_end(&mut fresh));
        self.offset += read.unwrap_or(0) as u64;
        self.rest.extend_from_slice(&fresh);
        if let Some(end) = self.rest.iter().rposition(|b| *b == b'\n') {
            let whole: Vec<u8> = self.rest.drain(..=end).collect();
            lines.extend(String::from_utf8_lossy(&whole).lines().map(str::to_owned));
        }
        lines
    }
}

/// The last complete lines of a file, without their ends; see [`newest`]. None where it cannot be read.
pub fn newest_lines(path: &Path, bytes: u64) -> Vec<String> {
    let text = newest(path, bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::to_owned).collect()
}

/// The last complete lines of a file, from its newest `bytes`; the first may be cut and is left out then.
pub fn newest(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let from = size.saturating_sub(bytes);
    let mut text = vec![0; usize::try_from(size - from).unwrap_or_default()];
    file.read_exact_at(&mut text, from)?;
    let after = |end: Option<usize>| end.map_or(0, |at| at + 1);
    text.truncate(after(text.iter().rposition(|b| *b == b'\n')));
    if from > 0 {
        let cut = after(text.iter().position(|b| *b == b'\n'));
        text.drain(..cut);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_whole_lines_are_read_and_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = Tail::new(&path);
        assert!(tail.lines().is_empty());
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(tail.lines(), ["one"]);
        assert!(tail.lines().is_empty());
        file.write_all(b"o\n\xff\nthree").unwrap();
        assert_eq!(tail.lines(), ["two", "\u{fffd}"]);
        assert_eq!(newest_lines(&path, 1000), ["one", "two", "\u{fffd}"]);
        assert_eq!(newest_lines(&path, 9), ["\u{fffd}"]);
        assert!(newest_lines(&dir.path().join("none"), 9).is_empty());
    }
}
