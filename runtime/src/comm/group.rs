//! One rank's end of a group: the one algorithm for all collectives, over a shared segment.
#![allow(unsafe_code)]

use super::call::{Call, Op};
use super::segment::{Cause, LEFT, Look, MAILBOX, Segment};
use super::watch::Watch;
use super::{BEAT, Comm, CommError, MAX_RANKS, Options, Timing, slice};
use crate::device::Real;
use crate::sys::region::Memory;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Spinning this long costs less than waking an idle core.
const SPIN: Duration = Duration::from_micros(20);

/// A rank of a group. Owned by its compute thread; dropped, it leaves the group.
pub struct Member {
    segment: Segment,
    rank: usize,
    options: Options,
    /// Meetings arrived at.
    meetings: u64,
    /// Collectives called.
    sequence: u64,
    /// Rounds of gathering, whose parity chooses the mailbox.
    rounds: usize,
    last_tick: Instant,
    longest: Duration,
    /// By peer: ticks last seen and how long they have stood still while this rank looked.
    silence: Vec<(u64, Duration)>,
    /// First failure: every later collective ends with it.
    failed: Option<CommError>,
    /// Watches the processes of a `shm` group.
    _watch: Option<Watch>,
}

impl Member {
    pub(super) fn new(
        segment: Segment,
        rank: usize,
        options: Options,
        watch: Option<Watch>,
    ) -> Member {
        segment.join(rank);
        Member {
            silence: vec![(0, Duration::ZERO); segment.size()],
            segment,
            rank,
            options,
            meetings: 0,
            sequence: 0,
            rounds: 0,
            last_tick: Instant::now(),
            longest: Duration::ZERO,
            failed: None,
            _watch: watch,
        }
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Runs a collective: `body` after all ranks have met and called the same.
    fn collective(
        &mut self,
        op: Op,
        offset: usize,
        len: usize,
        body: impl FnOnce(&mut Member, Call) -> Result<(), CommError>,
    ) -> Result<Timing, CommError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.tick();
        self.sequence += 1;
        let call = Call {
            op,
            sequence: self.sequence,
            offset: offset as u64,
            len: len as u64,
        };
        let start = Instant::now();
        let mut met = start;
        self.control().calls[call.sequence as usize % 2].store(call);
        let result = self.meet(call).and_then(|()| {
            met = Instant::now();
            self.compare(call)?;
            body(self, call)
        });
        let end = Instant::now();
        // Time in a collective is not an operation of this rank's program.
        self.last_tick = end;
        match result {
            Ok(()) => Ok(Timing {
                wait: (met - start).as_secs_f64(),
                transfer: (end - met).as_secs_f64(),
            }),
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn control(&self) -> &super::segment::Control {
        self.segment.control(self.rank)
    }

    /// Waits until every rank of the group has come here.
    fn meet(&mut self, call: Call) -> Result<(), CommError> {
        if self.segment.cause().is_some() {
            return Err(self.segment.error(call));
        }
        self.meetings += 1;
        self.control()
            .arrived
            .store(self.meetings, Ordering::Release);
        let seen = self.segment.arrive();
        if self.options.spin {
            let start = Instant::now();
            while start.elapsed() < SPIN {
                for _ in 0..32 {
                    match self.segment.look(seen) {
                        Look::Complete => return Ok(()),
                        Look::Poisoned => return Err(self.segment.error(call)),
                        Look::Waiting => std::hint::spin_loop(),
                    }
                }
            }
        }
        self.silence.fill((0, Duration::ZERO));
        loop {
            match self.segment.look(seen) {
                Look::Complete => return Ok(()),
                Look::Poisoned => return Err(self.segment.error(call)),
                Look::Waiting => {}
            }
            let before = Instant::now();
            self.segment.sleep(seen, BEAT);
            self.control().ticks.fetch_add(1, Ordering::Relaxed);
            // Not more than two beats: the time this process itself was stopped says nothing about its peers.
            self.look_after_peers(before.elapsed().min(2 * BEAT), call);
        }
    }

    /// Poisons the group when a peer that has not come to the meeting has left or stands still.
    fn look_after_peers(&mut self, waited: Duration, call: Call) {
        let size = self.segment.size();
        let longest = (0..size)
            .map(|rank| self.segment.control(rank).longest.load(Ordering::Relaxed))
            .max()
            .unwrap_or(0);
        let deadline = self.options.deadline(longest);
        let mut worst = None;
        for rank in 0..size {
            let peer = self.segment.control(rank);
            // The state first: a rank that comes and then leaves has come.
            let left = peer.state.load(Ordering::Acquire) == LEFT;
            if peer.arrived.load(Ordering::Acquire) >= self.meetings {
                continue;
            }
            if left {
                self.segment.poison(Cause::Died { rank });
                return;
            }
            let ticks = peer.ticks.load(Ordering::Relaxed);
            let (seen, still) = &mut self.silence[rank];
            if *seen != ticks {
                *seen = ticks;
                *still = Duration::ZERO;
                continue;
            }
            *still += waited;
            if *still > deadline && worst.is_none_or(|(_, most)| *still > most) {
                worst = Some((rank, *still));
            }
        }
        if let Some((rank, still)) = worst {
            debug_assert!(rank != self.rank, "{call}");
            self.segment.poison(Cause::Silent {
                rank,
                millis: still.as_millis() as u64,
            });
        }
    }

    /// All ranks must have called the same.
    fn compare(&mut self, ours: Call) -> Result<(), CommError> {
        for rank in 0..self.segment.size() {
            let theirs = self.segment.control(rank).calls[ours.sequence as usize % 2].load();
            if theirs != ours {
                self.segment.poison(Cause::OutOfStep { rank });
                return Err(CommError::OutOfStep {
                    rank,
                    theirs: theirs.to_string(),
                    ours: ours.to_string(),
                });
            }
        }
        Ok(())
    }

    fn refuse(&mut self, what: &str, error: String) -> CommError {
        self.abort(&error);
        let error = CommError::System {
            what: what.into(),
            error,
        };
        self.failed = Some(error.clone());
        error
    }

    /// Sums this rank's slice of all ranks' elements `offset..offset + len`.
    fn reduce_slice<T: Copy + Default + std::ops::AddAssign>(&self, offset: usize, len: usize) {
        let size = self.segment.size();
        let Range { start, end } = slice(len, self.rank, size);
        // On the stack: collectives allocate nothing.
        let mut buffers = [std::ptr::null_mut::<T>(); MAX_RANKS];
        for (rank, buffer) in buffers.iter_mut().enumerate().take(size) {
            // SAFETY: offset + len is inside the area (checked by the caller), hence start too.
            *buffer = unsafe {
                self.segment
                    .grads(rank)
                    .as_ptr()
                    .cast::<T>()
                    .add(offset + start)
            };
        }
        // SAFETY: areas are page-aligned and apart; between the two meetings of a reduce the slice belongs to this rank alone.
        unsafe { super::reduce::sum_into_all(&buffers[..size], end - start) };
    }
}

impl Comm for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.segment.size()
    }

    fn grads(&self) -> Memory {
        self.segment.grads(self.rank)
    }

    fn barrier(&mut self) -> Result<Timing, CommError> {
        self.collective(Op::Barrier, 0, 0, |_, _| Ok(()))
    }

    fn all_reduce(&mut self, real: Real, offset: usize, len: usize) -> Result<Timing, CommError> {
        let have = self.segment.grads(self.rank).len() / real.bytes();
        if offset.checked_add(len).is_none_or(|end| end > have) {
            let error = format!("{len} elements from {offset} are not within {have}");
            return Err(self.refuse("all-reduce", error));
        }
        let op = match real {
            Real::F32 => Op::ReduceF32,
            Real::F64 => Op::ReduceF64,
        };
        self.collective(op, offset, len, |member, call| {
            match real {
                Real::F32 => member.reduce_slice::<f32>(offset, len),
                Real::F64 => member.reduce_slice::<f64>(offset, len),
            }
            member.meet(call)
        })
    }

    fn all_gather(&mut self, mine: &[f64], out: &mut [f64]) -> Result<Timing, CommError> {
        let size = self.segment.size();
        let len = mine.len();
        if out.len() != size * len {
            let error = format!("{} elements of room for {size} x {len}", out.len());
            return Err(self.refuse("all-gather", error));
        }
        let post = |member: &Member, at: usize| {
            let part = &mine[at..len.min(at + MAILBOX)];
            let to = member.segment.mailbox(member.rank, member.rounds % 2);
            // SAFETY: at most MAILBOX elements; peers read this parity's last content before the meeting this rank came from.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) };
        };
        post(self, 0);
        self.collective(Op::Gather, 0, len, |member, call| {
            for at in (0..len).step_by(MAILBOX) {
                if at > 0 {
                    post(member, at);
                    member.meet(call)?;
                }
                let count = MAILBOX.min(len - at);
                for rank in 0..size {
                    let from = member.segment.mailbox(rank, member.rounds % 2);
                    let to = &mut out[rank * len + at..][..count];
                    // SAFETY: the writer filled `count` elements before the meeting and next touches this parity after another one.
                    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), count) };
                }
                member.rounds += 1;
            }
            // Nobody goes on from values that some rank has not got.
            member.meet(call)
        })
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let gap = now - self.last_tick;
        self.last_tick = now;
        self.control().ticks.fetch_add(1, Ordering::Relaxed);
        if gap > self.longest {
            self.longest = gap;
            self.control()
                .longest
                .store(gap.as_micros() as u64, Ordering::Relaxed);
        }
    }

    fn check(&mut self) -> Result<(), CommError> {
        if self.failed.is_none() && self.segment.cause().is_some() {
            let call = Call {
                op: Op::Barrier,
                sequence: self.sequence,
                offset: 0,
                len: 0,
            };
            self.failed = Some(self.segment.error(call));
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn abort(&mut self, reason: &str) {
        self.segment.set_text(self.rank, reason);
        self.segment.poison(Cause::Aborted { rank: self.rank });
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("it stopped by a bug (panic)");
        }
        self.segment.leave(self.rank);
    }
}
