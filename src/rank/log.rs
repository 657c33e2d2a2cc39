//! The node's log: lines of the ranks with time and `node:rank`, appended whole, one write each.
//!
//! A line is at most [`LIMIT`] bytes with its head; longer ones are split, and every part after the first is
//! marked by `+` behind the rank. A carriage return ends a line as well, so that progress bars become lines.

use std::fs::File;
use std::io::{self, Read, Write};

/// Bytes of one write, within what the kernel appends whole.
pub const LIMIT: usize = 4096;

/// Appends lines of one rank.
#[derive(Debug)]
pub struct Log {
    file: File,
    /// `local0:3`.
    who: String,
}

impl Log {
    /// `file` must have been opened for appending.
    pub fn new(file: File, node: &str, rank: usize) -> Log {
        Log {
            file,
            who: format!("{node}:{rank}"),
        }
    }

    pub fn try_clone(&self) -> io::Result<Log> {
        Ok(Log {
            file: self.file.try_clone()?,
            who: self.who.clone(),
        })
    }

    /// Appends one line; a failure is dropped, since there is no other place to tell it.
    pub fn line(&mut self, text: &[u8], part: Part) {
        let time = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let mark = match part {
            Part::Start => "",
            Part::Continued => "+",
        };
        let mut line = format!("{time} {}{mark} ", self.who).into_bytes();
        line.extend_from_slice(text);
        line.push(b'\n');
        let _ = self.file.write_all(&line);
    }

    /// Bytes of text that fit in one write.
    fn room(&self) -> usize {
        LIMIT - "2026-01-01T00:00:00.000Z ".len() - self.who.len() - "+ \n".len()
    }

    /// Copies all of `source`, until it ends.
    pub fn copy(&mut self, mut source: impl Read) {
        let mut splitter = Splitter::new(self.room());
        let mut chunk = [0; 16 * 1024];
        loop {
            match source.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => splitter.push(&chunk[..n], |text, part| self.line(text, part)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        splitter.finish(|text, part| self.line(text, part));
    }
}

/// Whether a text begins a line of the program or continues one that was too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Start,
    Continued,
}

/// Cuts a stream into lines of at most `room` bytes.
#[derive(Debug)]
struct Splitter {
    room: usize,
    line: Vec<u8>,
    part: Part,
    /// The last byte was a carriage return, so a newline that follows ends nothing.
    returned: bool,
}

impl Splitter {
    fn new(room: usize) -> Splitter {
        Splitter {
            room,
            line: Vec::new(),
            part: Part::Start,
            returned: false,
        }
    }

    fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(&[u8], Part)) {
        for &byte in bytes {
            let returned = std::mem::replace(&mut self.returned, byte == b'\r');
            match byte {
                b'\n' if returned => {}
                b'\n' | b'\r' => {
                    if !(self.line.is_empty() && self.part == Part::Continued) {
                        emit(&self.line, self.part);
                    }
                    self.line.clear();
                    self.part = Part::Start;
                }
                byte => {
                    if self.line.len() == self.room {
                        emit(&self.line, self.part);
                        self.line.clear();
                        self.part = Part::Continued;
                    }
                    self.line.push(byte);
                }
            }
        }
    }

    fn finish(&mut self, mut emit: impl FnMut(&[u8], Part)) {
        if !self.line.is_empty() {
            emit(&self.line, self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(room: usize, chunks: &[&[u8]]) -> Vec<(String, Part)> {
        let mut splitter = Splitter::new(room);
        let mut lines = Vec::new();
        let mut emit = |text: &[u8], part| {
            lines.push((String::from_utf8_lossy(text).into_owned(), part));
        };
        for chunk in chunks {
            splitter.push(chunk, &mut emit);
        }
        splitter.finish(&mut emit);
        lines
    }

    #[test]
    fn lines_are_cut_and_marked_whatever_the_chunks() {
        let start = |s: &str| (s.to_owned(), Part::Start);
        let more = |s: &str| (s.to_owned(), Part::Continued);
        assert_eq!(
            split(9, &[b"a", b"b\nc\n", b"\nd"]),
            [start("ab"), start("c"), start(""), start("d")]
        );
        assert_eq!(
            split(9, &[b"10%\r20%\r", b"\nx\r\n"]),
            [start("10%"), start("20%"), start("x")]
        );
        assert_eq!(
            split(3, &[b"abcdefgh\nxyz\n"]),
            [start("abc"), more("def"), more("gh"), start("xyz")]
        );
        assert_eq!(
            split(3, &[b"abcdef\nx"]),
            [start("abc"), more("def"), start("x")]
        );
    }

    #[test]
    fn every_line_is_one_write_within_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("local0.log");
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let mut log = Log::new(file.try_clone().unwrap(), "local0", rank);
                scope.spawn(move || {
                    let text = format!("{}\n", rank.to_string().repeat(10_000)).repeat(5);
                    log.copy(text.as_bytes());
                });
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        let mut bytes = [0; 3];
        for line in text.lines() {
            assert!(line.len() < LIMIT);
            let (_, rest) = line.split_once(" local0:").unwrap();
            let rank: usize = rest[..1].parse().unwrap();
            let body = rest[1..].trim_start_matches('+').trim_start();
            assert!(body.bytes().all(|b| b == b'0' + rank as u8));
            bytes[rank] += body.len();
        }
        assert_eq!(bytes, [50_000; 3]);
    }
}
