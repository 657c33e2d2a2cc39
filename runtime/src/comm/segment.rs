//! The memory a group shares: a header, a control page and two mailboxes a rank, then a gradient area a rank.
#![allow(unsafe_code)]

use super::CommError;
use super::call::{Call, Op};
use crate::sys::futex;
use crate::sys::region::Memory;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

const PAGE: usize = 4096;
/// Elements of one mailbox.
pub(super) const MAILBOX: usize = PAGE / 8;
/// Top bit of [`Header::generation`]: the group has failed for good.
const POISON: u32 = 1 << 31;
/// Longest reason kept, in bytes.
const TEXT: usize = 1024;

/// States of a rank in its control page.
pub(super) const LEFT: u32 = 2;
const JOINED: u32 = 1;

#[repr(C, align(128))]
struct Header {
    /// Counts completed meetings in its low bits; the futex everybody waits on.
    generation: AtomicU32,
    /// Ranks inside `futex::wait`; a killed sleeper leaves it too high, which costs a needless wake.
    sleepers: AtomicU32,
    /// On a line of its own: every arrival writes it.
    count: Line<AtomicU32>,
    /// [`Cause`] in one word, so that nobody can be killed half-way through writing it; 0 is none.
    poison: AtomicU64,
}

#[repr(C, align(128))]
struct Line<T>(T);

/// One rank's control page; written by its rank only, read by all.
#[repr(C, align(128))]
pub(super) struct Control {
    /// Meetings this rank has arrived at.
    pub(super) arrived: AtomicU64,
    /// Signs of life.
    pub(super) ticks: AtomicU64,
    /// Microseconds of the longest operation between two ticks.
    pub(super) longest: AtomicU64,
    pub(super) state: AtomicU32,
    /// Operations by parity of their sequence number: a rank is never two ahead of one that still compares.
    pub(super) calls: [CallSlot; 2],
    text_len: AtomicU32,
    text: [AtomicU8; TEXT],
}

/// What a rank has called, as the others see it.
#[repr(C)]
pub(super) struct CallSlot {
    code: AtomicU64,
    sequence: AtomicU64,
    offset: AtomicU64,
    len: AtomicU64,
}

impl CallSlot {
    pub(super) fn store(&self, call: Call) {
        self.code.store(call.op as u64, Ordering::Relaxed);
        self.sequence.store(call.sequence, Ordering::Relaxed);
        self.offset.store(call.offset, Ordering::Relaxed);
        self.len.store(call.len, Ordering::Relaxed);
    }

    /// Valid after a meeting to which the writer came after [`CallSlot::store`].
    pub(super) fn load(&self) -> Call {
        let code = self.code.load(Ordering::Relaxed);
        Call {
            op: Op::of(code).unwrap_or(Op::Barrier),
            sequence: self.sequence.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
        }
    }
}

/// Why a group failed and which rank is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Died { rank: usize },
    Silent { rank: usize, millis: u64 },
    OutOfStep { rank: usize },
    Aborted { rank: usize },
}

impl Cause {
    fn pack(self) -> u64 {
        let (kind, rank, millis) = match self {
            Cause::Died { rank } => (1, rank, 0),
            Cause::Silent { rank, millis } => (2, rank, millis),
            Cause::OutOfStep { rank } => (3, rank, 0),
            Cause::Aborted { rank } => (4, rank, 0),
        };
        kind | (rank as u64 & 0xffff_ffff) << 8 | millis.min(0xff_ffff) << 40
    }

    fn unpack(word: u64) -> Option<Cause> {
        let rank = (word >> 8 & 0xffff_ffff) as usize;
        match word & 0xff {
            1 => Some(Cause::Died { rank }),
            2 => Some(Cause::Silent {
                rank,
                millis: word >> 40,
            }),
            3 => Some(Cause::OutOfStep { rank }),
            4 => Some(Cause::Aborted { rank }),
            _ => None,
        }
    }
}

/// What a look at the generation word tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The meeting is complete.
    Complete,
    Waiting,
    Poisoned,
}

/// A shared segment; clones refer to the same memory.
#[derive(Clone)]
pub(super) struct Segment {
    memory: Memory,
    size: usize,
    grads: usize,
}

impl Segment {
    /// Bytes of a segment of `size` ranks with `grads` bytes of gradients each.
    pub(super) fn bytes(size: usize, grads: usize) -> Option<usize> {
        let each = grads
            .checked_next_multiple_of(PAGE)?
            .checked_add(3 * PAGE)?;
        each.checked_mul(size)?.checked_add(PAGE)
    }

    /// Lays a segment over `memory`, zeroed when its first user gets it, of [`Segment::bytes`].
    pub(super) fn over(memory: Memory, size: usize, grads: usize) -> Segment {
        const { assert!(size_of::<Header>() <= PAGE && size_of::<Control>() <= PAGE) };
        assert_eq!(Some(memory.len()), Self::bytes(size, grads));
        Segment {
            memory,
            size,
            grads,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    fn header(&self) -> &Header {
        // SAFETY: the first page of the segment is a header for all its life; all fields are atomics, valid for any bits.
        unsafe { &*self.memory.as_ptr().cast::<Header>() }
    }

    /// The control page of `rank`.
    pub(super) fn control(&self, rank: usize) -> &Control {
        assert!(rank < self.size);
        // SAFETY: page 1 + rank is a control page, as above.
        unsafe {
            &*self
                .memory
                .as_ptr()
                .add(PAGE * (1 + rank))
                .cast::<Control>()
        }
    }

    /// Mailbox of `rank` for rounds of one parity: [`MAILBOX`] elements.
    pub(super) fn mailbox(&self, rank: usize, parity: usize) -> *mut f64 {
        assert!(rank < self.size && parity < 2);
        let page = 1 + self.size + 2 * rank + parity;
        // SAFETY: inside the segment by the layout of `bytes`.
        unsafe { self.memory.as_ptr().add(PAGE * page).cast() }
    }

    /// Gradient area of `rank`, page-aligned.
    pub(super) fn grads(&self, rank: usize) -> Memory {
        assert!(rank < self.size);
        let start = PAGE * (1 + 3 * self.size) + rank * self.grads.next_multiple_of(PAGE);
        self.memory.part(start, self.grads)
    }

    pub(super) fn join(&self, rank: usize) {
        self.control(rank).state.store(JOINED, Ordering::Release);
    }

    /// Says that `rank` will call no more collectives, and lets waiters see it.
    pub(super) fn leave(&self, rank: usize) {
        self.control(rank).state.store(LEFT, Ordering::Release);
        futex::wake_all(&self.header().generation);
    }

    /// Comes to a meeting; the returned generation is for [`Segment::look`].
    pub(super) fn arrive(&self) -> u32 {
        let header = self.header();
        // It can't advance before this rank is counted.
        let seen = header.generation.load(Ordering::Acquire) & !POISON;
        let before = header.count.0.fetch_add(1, Ordering::AcqRel);
        if before as usize + 1 == self.size {
            header.count.0.store(0, Ordering::Relaxed);
            let mut now = header.generation.load(Ordering::Relaxed);
            while let Err(other) = header.generation.compare_exchange_weak(
                now,
                now & POISON | now.wrapping_add(1) & !POISON,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                now = other;
            }
            if header.sleepers.load(Ordering::SeqCst) > 0 {
                futex::wake_all(&header.generation);
            }
        }
        seen
    }

    /// Completion counts before poison: a meeting all came to has happened.
    pub(super) fn look(&self, seen: u32) -> Look {
        let now = self.header().generation.load(Ordering::Acquire);
        if now & !POISON != seen {
            Look::Complete
        } else if now & POISON != 0 {
            Look::Poisoned
        } else {
            Look::Waiting
        }
    }

    /// Sleeps until the meeting may be complete or poisoned, at most `limit`.
    pub(super) fn sleep(&self, seen: u32, limit: std::time::Duration) {
        let header = self.header();
        header.sleepers.fetch_add(1, Ordering::SeqCst);
        futex::wait(&header.generation, seen, limit);
        header.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Fails the group for good; the first cause stays.
    pub(super) fn poison(&self, cause: Cause) {
        let header = self.header();
        let _ =
            header
                .poison
                .compare_exchange(0, cause.pack(), Ordering::AcqRel, Ordering::Relaxed);
        header.generation.fetch_or(POISON, Ordering::SeqCst);
        futex::wake_all(&header.generation);
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        Cause::unpack(self.header().poison.load(Ordering::Acquire))
    }

    /// Keeps the reason `rank` aborts for; called by that rank only, before [`Segment::poison`].
    pub(super) fn set_text(&self, rank: usize, reason: &str) {
        let control = self.control(rank);
        let mut end = reason.len().min(TEXT);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        for (to, from) in control.text.iter().zip(&reason.as_bytes()[..end]) {
            to.store(*from, Ordering::Relaxed);
        }
        control.text_len.store(end as u32, Ordering::Release);
    }

    fn text(&self, rank: usize) -> String {
        if rank >= self.size {
            return String::new();
        }
        let control = self.control(rank);
        let len = control.text_len.load(Ordering::Acquire) as usize;
        let bytes: Vec<u8> = control.text[..len.min(TEXT)]
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The group's failure as a rank in `call` sees it.
    pub(super) fn error(&self, call: Call) -> CommError {
        let (operation, sequence) = (call.op.name(), call.sequence);
        match self.cause() {
            Some(Cause::Died { rank }) => CommError::PeerDied {
                rank,
                operation,
                sequence,
            },
            Some(Cause::Silent { rank, millis }) => CommError::PeerSilent {
                rank,
                seconds: millis as f64 / 1e3,
                operation,
                sequence,
            },
            Some(Cause::OutOfStep { rank }) => CommError::Aborted {
                rank,
                reason: "its program differs from the other ranks'".into(),
            },
            Some(Cause::Aborted { rank }) => CommError::Aborted {
                rank,
                reason: self.text(rank),
            },
            None => CommError::System {
                what: format!("take part in {operation}"),
                error: "the group has failed for an unknown reason".into(),
            },
        }
    }
}
