//! A group whose ranks may be on several machines: every pair has connections of its own, values go directly. Ranks of
//! one node share memory for what they reduce.
//!
//! One thread does all: sockets do not block, and whoever waits in a collective listens to all peers, says that it
//! lives, and sends and gets whatever can go, so that nobody waits for somebody who waits for him.

mod job;
mod join;
mod link;
mod message;

pub use join::join;

use super::call::{Call, Op};
use super::{BEAT, Comm, CommError, Options, Spec, Timing, system};
use crate::device::Real;
use crate::sys::region::Memory;
use job::{Gather, Job, Nothing, Reduce, Values};
use link::Link;
use message::{At, Fault, Message, clip};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Values can no longer pass, and the peer says nothing for so long: it is gone.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// A rank that leaves stays so long for its last words to be read, at most.
const LEAVING: Duration = Duration::from_millis(200);

/// A rank of a tcp group.
pub struct Tcp {
    rank: usize,
    size: usize,
    options: Options,
    values: Values,
    /// In rank order, without this rank.
    links: Vec<Link>,
    /// Collectives called.
    sequence: u64,
    last_tick: Instant,
    last_beat: Instant,
    longest: Duration,
    /// First failure: every later collective ends with it.
    failed: Option<CommError>,
}

impl Tcp {
    /// Without links yet.
    fn new(spec: &Spec<'_>, values: Values, options: Options) -> Tcp {
        let now = Instant::now();
        Tcp {
            rank: spec.rank,
            size: spec.size,
            options,
            values,
            links: Vec::with_capacity(spec.size),
            sequence: 0,
            last_tick: now,
            last_beat: now,
            longest: Duration::ZERO,
            failed: None,
        }
    }

    /// Runs a collective: `job` with all ranks, which must have called the same.
    fn collective(
        &mut self,
        op: Op,
        offset: usize,
        len: usize,
        job: &mut dyn Job,
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
        let result = self.carry_out(call, job);
        let end = Instant::now();
        // Time in a collective is not an operation of this rank's program.
        self.last_tick = end;
        let met = result.map_err(|error| self.fail(error, call.sequence))?;
        Ok(Timing {
            wait: (met - start).as_secs_f64(),
            transfer: (end - met).as_secs_f64(),
        })
    }

    /// Fails the group for good, in the collective `sequence` or before it, and tells the others.
    fn fail(&mut self, error: CommError, sequence: u64) -> CommError {
        if let Some(first) = &self.failed {
            return first.clone();
        }
        self.failed = Some(error.clone());
        let fault = Fault::of(&error, self.rank);
        self.say(&Message::Failed(fault, sequence));
        error
    }

    /// [`Tcp::fail`] between two collectives.
    fn fail_between(&mut self, error: CommError) -> CommError {
        self.fail(error, self.sequence + 1)
    }

    fn say(&mut self, message: &Message) {
        let longest = self.longest.as_micros() as u64;
        for link in &mut self.links {
            link.say(message, longest);
        }
    }

    /// Returns when this rank has all values and knows that every other has them; the time all had come.
    fn carry_out(&mut self, call: Call, job: &mut dyn Job) -> Result<Instant, CommError> {
        self.links.iter_mut().for_each(Link::begin);
        self.say(&Message::Call(call));
        // All ranks are through a barrier when all have come.
        let confirms = call.op != Op::Barrier;
        let (mut met, mut told) = (None, false);
        let mut looked = Instant::now();
        loop {
            let mut moved = false;
            for link in &mut self.links {
                moved |= link.hear();
            }
            for link in &mut self.links {
                if let Some(theirs) = link.meet() {
                    compare(link.rank, theirs, call)?;
                }
            }
            // Not what a peer met later, when it had all that this collective gives.
            self.told_to_fail(call.into(), call.sequence)?;
            if met.is_none() && self.links.iter().all(|link| link.met) {
                met = Some(Instant::now());
            }
            for link in &mut self.links {
                moved |= transfer(link, job);
            }
            moved |= job.advance(&self.links);
            if !told && job.is_done() && self.links.iter().all(|link| has_passed(link, job)) {
                told = true;
                if confirms {
                    self.say(&Message::Done(call.sequence));
                }
            }
            let awaited =
                |link: &Link| !has_passed(link, job) || confirms && link.done != call.sequence;
            let mut flushed = true;
            for link in &mut self.links {
                link.flush();
                flushed &= link.is_flushed();
            }
            if let Some(met) = met
                && told
                && flushed
                && !self.links.iter().any(awaited)
            {
                return Ok(met);
            }
            self.told_to_fail(call.into(), u64::MAX)?;
            self.miss(call.into(), awaited)?;
            let now = Instant::now();
            if now - looked >= BEAT {
                // Not more than two beats: the time this process itself was stopped says nothing about its peers.
                self.look_after_peers((now - looked).min(2 * BEAT), call.into(), awaited)?;
                looked = now;
            }
            self.beat(now);
            if !moved {
                self.wait(job)?;
            }
        }
    }

    /// An error when a peer says that the group failed in the collective `until` or before it.
    fn told_to_fail(&self, at: At, until: u64) -> Result<(), CommError> {
        let told = |link: &Link| {
            let (fault, _) = link
                .fault
                .clone()
                .filter(|(_, sequence)| *sequence <= until)?;
            Some(fault.error(link.rank, self.rank, at))
        };
        self.links.iter().find_map(told).map_or(Ok(()), Err)
    }

    /// An error when an awaited peer has gone.
    fn miss(&self, at: At, awaited: impl Fn(&Link) -> bool) -> Result<(), CommError> {
        for link in &self.links {
            let cut = |since: Instant| since.elapsed() > LAST_WORDS;
            let gone = link.left || link.closed || link.broken.is_some_and(cut);
            if gone && awaited(link) {
                return Err(at.died(link.rank));
            }
        }
        Ok(())
    }

    /// An error when an awaited peer stands still.
    fn look_after_peers(
        &mut self,
        waited: Duration,
        at: At,
        awaited: impl Fn(&Link) -> bool,
    ) -> Result<(), CommError> {
        let own = self.longest.as_micros() as u64;
        let longest = self
            .links
            .iter()
            .map(|link| link.longest)
            .fold(own, u64::max);
        let deadline = self.options.deadline(longest);
        let mut worst = (Duration::ZERO, 0);
        for link in &mut self.links {
            let silence = link.silence(waited);
            if silence > worst.0 && awaited(link) {
                worst = (silence, link.rank);
            }
        }
        match worst {
            (silence, rank) if silence > deadline => Err(at.silent(rank, silence.as_secs_f64())),
            _ => Ok(()),
        }
    }

    /// Says that this rank lives, not more often than needed.
    fn beat(&mut self, now: Instant) {
        if now - self.last_beat >= BEAT {
            self.last_beat = now;
            let longest = self.longest.as_micros() as u64;
            for link in &mut self.links {
                link.beat(longest);
            }
        }
    }

    /// Sleeps until something can go on, at most a beat.
    fn wait(&self, job: &mut dyn Job) -> Result<(), CommError> {
        let mut fds = Vec::with_capacity(2 * self.links.len());
        for link in &self.links {
            if !link.closed {
                let out = match link.is_flushed() {
                    true => PollFlags::empty(),
                    false => PollFlags::POLLOUT,
                };
                fds.push(PollFd::new(link.control.as_fd(), PollFlags::POLLIN | out));
            }
            let mut values = PollFlags::empty();
            if link.sent < job.sends(link.rank) && !job.outgoing(link.rank, link.sent).is_empty() {
                values |= PollFlags::POLLOUT;
            }
            if may_get(link, job) && !job.incoming(link.rank, link.got).is_empty() {
                values |= PollFlags::POLLIN;
            }
            if link.broken.is_none() && !values.is_empty() {
                fds.push(PollFd::new(link.data.as_fd(), values));
            }
        }
        sleep(&mut fds, BEAT).map_err(|e| system("wait for the group's connections", e))
    }

    fn refuse(&mut self, what: &str, error: String) -> CommError {
        self.fail_between(system(what, error))
    }
}

/// Polls at most `limit`.
fn sleep(fds: &mut [PollFd<'_>], limit: Duration) -> nix::Result<()> {
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
    match nix::poll::poll(fds, limit) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error),
    }
}

fn compare(rank: usize, theirs: Call, ours: Call) -> Result<(), CommError> {
    match theirs == ours {
        true => Ok(()),
        false => Err(CommError::OutOfStep {
            rank,
            theirs: theirs.to_string(),
            ours: ours.to_string(),
        }),
    }
}

/// Values are taken only from a peer that is known to mean the same.
fn may_get(link: &Link, job: &dyn Job) -> bool {
    link.met && link.got < job.gets(link.rank)
}

/// Whether all values to and from the peer have passed.
fn has_passed(link: &Link, job: &dyn Job) -> bool {
    link.met && link.sent == job.sends(link.rank) && link.got == job.gets(link.rank)
}

/// Moves what can go between this rank and a peer; whether anything moved.
fn transfer(link: &mut Link, job: &mut dyn Job) -> bool {
    let mut moved = false;
    if link.broken.is_some() {
        return false;
    }
    if link.sent < job.sends(link.rank) {
        let bytes = job.outgoing(link.rank, link.sent);
        moved |= !bytes.is_empty() && link.put(bytes);
    }
    if may_get(link, job) {
        let room = job.incoming(link.rank, link.got);
        moved |= !room.is_empty() && link.get(room);
    }
    moved
}

impl Comm for Tcp {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn grads(&self) -> Memory {
        self.values.grads.clone()
    }

    fn barrier(&mut self) -> Result<Timing, CommError> {
        self.collective(Op::Barrier, 0, 0, &mut Nothing)
    }

    fn all_reduce(&mut self, real: Real, offset: usize, len: usize) -> Result<Timing, CommError> {
        let have = self.values.grads.len() / real.bytes();
        if offset.checked_add(len).is_none_or(|end| end > have) {
            let error = format!("{len} elements from {offset} are not within {have}");
            return Err(self.refuse("all-reduce", error));
        }
        let op = match real {
            Real::F32 => Op::ReduceF32,
            Real::F64 => Op::ReduceF64,
        };
        let values = self.values.clone();
        let mut job = Reduce::new((self.rank, self.size), &values, real, offset, len);
        self.collective(op, offset, len, &mut job)
    }

    fn all_gather(&mut self, mine: &[f64], out: &mut [f64]) -> Result<Timing, CommError> {
        let (size, len) = (self.size, mine.len());
        if out.len() != size * len {
            let error = format!("{} elements of room for {size} x {len}", out.len());
            return Err(self.refuse("all-gather", error));
        }
        let mut job = Gather::new(self.rank, mine, out);
        self.collective(Op::Gather, 0, len, &mut job)
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.longest = self.longest.max(now - self.last_tick);
        self.last_tick = now;
        self.beat(now);
    }

    fn check(&mut self) -> Result<(), CommError> {
        if self.failed.is_none() {
            for link in &mut self.links {
                link.hear();
            }
            let at = At {
                operation: Op::Barrier.name(),
                sequence: self.sequence,
            };
            // A rank that says goodbye has done its part.
            let needed = |link: &Link| !link.left;
            let told = self.told_to_fail(at, u64::MAX);
            let stands = told.and_then(|()| self.miss(at, needed));
            if let Err(error) = stands {
                self.fail_between(error);
            }
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn abort(&mut self, reason: &str) {
        let rank = self.rank;
        let reason = clip(reason.into());
        self.fail_between(CommError::Aborted { rank, reason });
    }
}

impl Drop for Tcp {
    /// Stays until the last words are read, so that closing does not throw them away.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("it stopped by a bug (panic)");
        }
        let limit = match self.failed {
            Some(_) => LAST_WORDS,
            None => LEAVING,
        };
        self.say(&Message::Leave);
        let start = Instant::now();
        loop {
            for link in &mut self.links {
                link.flush();
                link.hear();
                if link.is_flushed() {
                    link.finish();
                }
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() || self.links.iter().all(|link| link.closed) {
                return;
            }
            if self.wait(&mut Nothing).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
