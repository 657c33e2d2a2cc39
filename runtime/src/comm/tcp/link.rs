//! Two connections to one peer: one for words, which always get through, one for the bare bytes of values.

use super::super::call::Call;
use super::message::{Fault, HEADER, Message, TEXT};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Bytes read at a time; a message always fits.
const BUFFER: usize = HEADER + TEXT;
/// Words that wait to be sent to a peer that does not read; beats are left out long before.
const BACKLOG: usize = 2 * BUFFER;

/// Collectives a peer may have come to that this rank has not looked at: the one this rank is in, and the next, for
/// the end of which the peer needs this rank.
const AHEAD: usize = 2;

pub(super) struct Link {
    pub(super) rank: usize,
    pub(super) control: TcpStream,
    pub(super) data: TcpStream,
    out: Vec<u8>,
    /// What came and is no whole message yet: the first `filled` bytes.
    input: Box<[u8]>,
    filled: usize,
    /// Collectives the peer has come to and this rank has not looked at.
    calls: VecDeque<Call>,
    /// Number of the last collective of which the peer has all values.
    pub(super) done: u64,
    /// Microseconds of the longest operation of the peer's program.
    pub(super) longest: u64,
    pub(super) table: Option<Vec<u8>>,
    /// What the peer says has failed, and in which collective.
    pub(super) fault: Option<(Fault, u64)>,
    pub(super) left: bool,
    pub(super) closed: bool,
    /// Since when no values can pass.
    pub(super) broken: Option<Instant>,
    /// Something came since the peer was last looked after.
    heard: bool,
    silence: Duration,
    /// In the current collective: the peer called the same; bytes of values sent and got.
    pub(super) met: bool,
    pub(super) sent: usize,
    pub(super) got: usize,
}

impl Link {
    /// Neither connection blocks.
    pub(super) fn new(rank: usize, control: TcpStream, data: TcpStream) -> Link {
        Link {
            rank,
            control,
            data,
            out: Vec::with_capacity(BUFFER),
            input: vec![0; BUFFER].into(),
            filled: 0,
            calls: VecDeque::with_capacity(AHEAD),
            done: 0,
            longest: 0,
            table: None,
            fault: None,
            left: false,
            closed: false,
            broken: None,
            heard: false,
            silence: Duration::ZERO,
            met: false,
            sent: 0,
            got: 0,
        }
    }

    /// At the start of a collective.
    pub(super) fn begin(&mut self) {
        (self.met, self.sent, self.got) = (false, 0, 0);
        (self.heard, self.silence) = (false, Duration::ZERO);
    }

    pub(super) fn say(&mut self, message: &Message, longest: u64) {
        // The peer has not read for a long time: what it must know, it finds at the end of the stream.
        if self.out.len() < BACKLOG {
            message.write(longest, &mut self.out);
        }
        self.flush();
    }

    pub(super) fn beat(&mut self, longest: u64) {
        if self.out.is_empty() && !self.closed {
            self.say(&Message::Beat, longest);
        }
        self.flush();
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.out.is_empty()
    }

    /// Sends what may go of the words said.
    pub(super) fn flush(&mut self) {
        while !self.out.is_empty() {
            match self.control.write(&self.out) {
                Ok(count) => {
                    self.out.drain(..count);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // Reading tells what happened.
                Err(_) => self.out.clear(),
            }
        }
    }

    /// Takes in what the peer said; whether there was anything.
    pub(super) fn hear(&mut self) -> bool {
        let mut any = false;
        while !self.closed {
            match self.control.read(&mut self.input[self.filled..]) {
                Ok(0) => self.closed = true,
                Ok(count) => {
                    self.filled += count;
                    self.heard = true;
                    let more = self.filled == BUFFER;
                    self.understand();
                    if !more {
                        return true;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.closed = true,
            }
            any = true;
        }
        any
    }

    fn understand(&mut self) {
        let mut at = 0;
        while !self.closed {
            match Message::read(&self.input[at..self.filled]) {
                Ok(None) => break,
                Ok(Some((message, longest, len))) => {
                    at += len;
                    self.longest = longest;
                    self.take(message);
                }
                Err(()) => self.nonsense(),
            }
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Beat => {}
            Message::Call(_) if self.calls.len() == AHEAD => self.nonsense(),
            Message::Call(call) => self.calls.push_back(call),
            Message::Done(sequence) => self.done = sequence,
            Message::Failed(fault, sequence) => {
                self.fault.get_or_insert((fault, sequence));
            }
            Message::Leave => self.left = true,
            Message::Table(table) => self.table = Some(table),
        }
    }

    fn nonsense(&mut self) {
        self.closed = true;
        let fault = Fault::Aborted {
            rank: self.rank,
            reason: "it says what no rank says: the ranks' programs differ".into(),
        };
        self.fault.get_or_insert((fault, 0));
    }

    /// What the peer calls in the current collective, when that comes to be known.
    pub(super) fn meet(&mut self) -> Option<Call> {
        if self.met {
            return None;
        }
        let call = self.calls.pop_front()?;
        self.met = true;
        Some(call)
    }

    /// Sends some of `bytes`; whether any went.
    pub(super) fn put(&mut self, bytes: &[u8]) -> bool {
        let result = (&self.data).write(bytes);
        let count = self.passed(result);
        self.sent += count;
        count > 0
    }

    /// Gets some bytes; whether any came.
    pub(super) fn get(&mut self, room: &mut [u8]) -> bool {
        let result = (&self.data).read(room);
        let count = self.passed(result);
        self.got += count;
        self.heard |= count > 0;
        count > 0
    }

    fn passed(&mut self, result: io::Result<usize>) -> usize {
        match result {
            Ok(count) if count > 0 => return count,
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            // The other connection tells why, if anything does.
            Ok(_) | Err(_) => self.broken = self.broken.or(Some(Instant::now())),
        }
        0
    }

    /// Time without a sign of life, `waited` longer than when last asked.
    pub(super) fn silence(&mut self, waited: Duration) -> Duration {
        match std::mem::take(&mut self.heard) {
            true => self.silence = Duration::ZERO,
            false => self.silence += waited,
        }
        self.silence
    }

    /// Says that nothing more will be said.
    pub(super) fn finish(&self) {
        let _ = self.control.shutdown(Shutdown::Write);
    }
}
