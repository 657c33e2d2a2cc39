//! What ranks say to each other beside their values: fixed words, then a bounded text.

use super::super::call::{Call, Op};
use super::super::{CommError, JOINING};

const WORDS: usize = 7;
pub(super) const HEADER: usize = WORDS * 8;
/// Longest text: the table of addresses of the largest group.
pub(super) const TEXT: usize = 8 << 10;
/// Longest reason a rank gives up for, in bytes; the same as in a segment.
const REASON: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// The rank is alive; all messages are signs of life, this one says nothing else.
    Beat,
    /// It has come to a collective.
    Call(Call),
    /// It has all values of the collective of this number.
    Done(u64),
    /// Its group has failed, in the collective of this number or before it.
    Failed(Fault, u64),
    /// It will call no more collectives.
    Leave,
    /// Where each rank listens.
    Table(Vec<u8>),
}

/// Why a group failed, as one rank tells another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    Died {
        rank: usize,
    },
    Silent {
        rank: usize,
        millis: u64,
    },
    OutOfStep {
        rank: usize,
        theirs: String,
        ours: String,
    },
    Aborted {
        rank: usize,
        reason: String,
    },
}

/// Where a rank notices that its group failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) operation: &'static str,
    pub(super) sequence: u64,
}

impl At {
    pub(super) const JOINING: At = At {
        operation: JOINING,
        sequence: 0,
    };

    pub(super) fn died(self, rank: usize) -> CommError {
        CommError::PeerDied {
            rank,
            operation: self.operation,
            sequence: self.sequence,
        }
    }

    pub(super) fn silent(self, rank: usize, seconds: f64) -> CommError {
        CommError::PeerSilent {
            rank,
            seconds,
            operation: self.operation,
            sequence: self.sequence,
        }
    }
}

impl From<Call> for At {
    fn from(call: Call) -> At {
        At {
            operation: call.op.name(),
            sequence: call.sequence,
        }
    }
}

impl Fault {
    /// What rank `me`, which failed with `error`, tells the others.
    pub(super) fn of(error: &CommError, me: usize) -> Fault {
        match error.clone() {
            CommError::PeerDied { rank, .. } => Fault::Died { rank },
            CommError::PeerSilent { rank, seconds, .. } => Fault::Silent {
                rank,
                millis: (seconds * 1e3) as u64,
            },
            CommError::OutOfStep { rank, theirs, ours } => Fault::OutOfStep { rank, theirs, ours },
            CommError::Aborted { rank, reason } => Fault::Aborted { rank, reason },
            CommError::System { .. } => Fault::Aborted {
                rank: me,
                reason: clip(error.to_string()),
            },
        }
    }

    /// The error of rank `me`, told by rank `teller`.
    pub(super) fn error(self, teller: usize, me: usize, at: At) -> CommError {
        match self {
            Fault::Died { rank } => at.died(rank),
            Fault::Silent { rank, millis } => at.silent(rank, millis as f64 / 1e3),
            // This rank's program differs from the teller's.
            Fault::OutOfStep { rank, theirs, ours } if rank == me => CommError::OutOfStep {
                rank: teller,
                theirs: ours,
                ours: theirs,
            },
            Fault::OutOfStep { rank, theirs, ours } => CommError::OutOfStep { rank, theirs, ours },
            Fault::Aborted { rank, reason } => CommError::Aborted { rank, reason },
        }
    }
}

/// At most [`REASON`] bytes of a reason.
pub(super) fn clip(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(REASON));
    reason
}

impl Message {
    /// Appends the message to `out`; `longest` is the longest operation of the sender's program in microseconds.
    pub(super) fn write(&self, longest: u64, out: &mut Vec<u8>) {
        let mut text: &[u8] = &[];
        let both;
        let [kind, a, b, c, d] = match self {
            Message::Beat => [0; 5],
            Message::Call(call) => [1, call.op as u64, call.sequence, call.offset, call.len],
            Message::Done(sequence) => [2, *sequence, 0, 0, 0],
            Message::Leave => [3, 0, 0, 0, 0],
            Message::Table(table) => {
                text = table;
                [4, 0, 0, 0, 0]
            }
            Message::Failed(fault, sequence) => match fault {
                Fault::Died { rank } => [5, *rank as u64, 0, *sequence, 0],
                Fault::Silent { rank, millis } => [6, *rank as u64, *millis, *sequence, 0],
                Fault::OutOfStep { rank, theirs, ours } => {
                    both = format!("{theirs}\n{ours}");
                    text = both.as_bytes();
                    [7, *rank as u64, 0, *sequence, 0]
                }
                Fault::Aborted { rank, reason } => {
                    text = reason.as_bytes();
                    [8, *rank as u64, 0, *sequence, 0]
                }
            },
        };
        for word in [kind, a, b, c, d, longest, text.len() as u64] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(text);
    }

    /// The first message of `bytes` with its sender's longest operation and its length. `Ok(None)` when it is not all
    /// there yet, `Err` when this is no message.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Message, u64, usize)>, ()> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(header.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [kind, a, b, c, d, longest, len] = words;
        let len = usize::try_from(len).map_err(|_| ())?;
        if len > TEXT {
            return Err(());
        }
        let Some(text) = rest.get(..len) else {
            return Ok(None);
        };
        let rank = a as usize;
        let words = || String::from_utf8_lossy(text).into_owned();
        let failed = |fault| Message::Failed(fault, c);
        let message = match kind {
            0 => Message::Beat,
            1 => Message::Call(Call {
                op: Op::of(a).ok_or(())?,
                sequence: b,
                offset: c,
                len: d,
            }),
            2 => Message::Done(a),
            3 => Message::Leave,
            4 => Message::Table(text.to_vec()),
            5 => failed(Fault::Died { rank }),
            6 => failed(Fault::Silent { rank, millis: b }),
            7 => {
                let words = words();
                let (theirs, ours) = words.split_once('\n').ok_or(())?;
                let (theirs, ours) = (theirs.into(), ours.into());
                failed(Fault::OutOfStep { rank, theirs, ours })
            }
            8 => failed(Fault::Aborted {
                rank,
                reason: words(),
            }),
            _ => return Err(()),
        };
        Ok(Some((message, longest, HEADER + len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire_in_any_pieces_and_nonsense_is_none() {
        let call = Call {
            op: Op::ReduceF64,
            sequence: 7,
            offset: 3,
            len: 1 << 40,
        };
        let all = [
            Message::Beat,
            Message::Call(call),
            Message::Done(9),
            Message::Leave,
            Message::Table(vec![1, 2, 3]),
            Message::Failed(Fault::Died { rank: 3 }, 1),
            Message::Failed(
                Fault::Silent {
                    rank: 1,
                    millis: 2500,
                },
                2,
            ),
            Message::Failed(
                Fault::OutOfStep {
                    rank: 2,
                    theirs: call.to_string(),
                    ours: "barrier, operation 7".into(),
                },
                7,
            ),
            Message::Failed(
                Fault::Aborted {
                    rank: 0,
                    reason: "not finite: ∞".into(),
                },
                u64::MAX,
            ),
        ];
        let mut bytes = Vec::new();
        for message in &all {
            message.write(42, &mut bytes);
        }
        let mut at = 0;
        for message in &all {
            let (read, longest, len) = Message::read(&bytes[at..]).unwrap().unwrap();
            assert_eq!((&read, longest), (message, 42));
            for short in 0..len {
                assert_eq!(Message::read(&bytes[at..at + short]), Ok(None));
            }
            at += len;
        }
        assert_eq!(at, bytes.len());
        assert!(Message::read(&[0xa5; HEADER]).is_err());
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(clip("∞".repeat(400)), "∞".repeat(341));
        assert_eq!(clip("short".into()), "short");
    }
}
