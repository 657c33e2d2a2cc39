//! Threads of one device: fork and join over a fixed list of tiles; the calling thread is worker 0.
//!
//! Tiles are claimed by an atomic counter, so a slow core takes fewer. What a tile computes never depends on who takes it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How a thread waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Spins for 20 us, then sleeps: each thread has a core of its own.
    Spin,
    /// Sleeps at once: cores are shared with other threads.
    Block,
}

const SPIN: Duration = Duration::from_micros(20);
/// The job may be joined.
const OPEN: u64 = 1 << 31;
/// Threads inside the job, in the low bits of the state; the job's number is above [`OPEN`].
const INSIDE: u64 = OPEN - 1;
const NUMBER: u32 = 32;

type Work<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// The current job: valid while the state is open or somebody is inside.
struct Job {
    work: *const Work<'static>,
    tiles: usize,
}

struct Shared {
    /// Number of the job, [`OPEN`], threads inside.
    state: AtomicU64,
    next: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    stop: AtomicBool,
    waiting: Waiting,
    /// The thread that called [`Pool::run`], to be woken by the last worker.
    caller: UnsafeCell<Option<Thread>>,
}

// SAFETY: `job` and `caller` are written by the calling thread while the job is closed and nobody is inside, and read by threads
// that entered it (acquire on `state`); the work itself is `Sync`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Aborts when a tile panics: other threads may still use what the unwinding would free.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

impl Shared {
    /// Takes tiles until none is left.
    fn work(&self, worker: usize) {
        let _abort = Abort;
        // SAFETY: the caller is inside the job, so it is set and stays.
        let Some(job) = (unsafe { &*self.job.get() }) else {
            return;
        };
        loop {
            let tile = self.next.fetch_add(1, Ordering::Relaxed);
            if tile >= job.tiles {
                return;
            }
            // SAFETY: the work outlives the job.
            unsafe { (*job.work)(worker, tile) };
        }
    }

    /// Body of a thread: joins each job at most once.
    fn serve(&self, worker: usize) {
        let mut last = 0;
        loop {
            let state = self.wait(|s| (s >> NUMBER) != last && s & OPEN != 0);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let inside = state + 1;
            if self
                .state
                .compare_exchange(state, inside, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                continue;
            }
            last = state >> NUMBER;
            // SAFETY: written before the job opened; this thread is inside.
            let caller = unsafe { (*self.caller.get()).clone() };
            self.work(worker);
            let left = self.state.fetch_sub(1, Ordering::AcqRel) - 1;
            if left & (OPEN | INSIDE) == 0
                && let Some(caller) = caller
            {
                caller.unpark();
            }
        }
    }

    /// Waits until the state satisfies `ready` or the pool stops, and returns it.
    fn wait(&self, ready: impl Fn(u64) -> bool) -> u64 {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                let state = self.state.load(Ordering::Acquire);
                if ready(state) || self.stop.load(Ordering::Acquire) {
                    return state;
                }
                if self.waiting == Waiting::Block {
                    break;
                }
                std::hint::spin_loop();
            }
            if self.waiting == Waiting::Block || start.elapsed() > SPIN {
                // An unpark between the look and the park makes the park return at once.
                thread::park();
            }
        }
    }
}

/// A fixed set of threads.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// `threads` in all, the caller's included; at least one. Fewer where the system refuses to start more: results do not change.
    pub(super) fn new(threads: usize, waiting: Waiting) -> Pool {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            waiting,
            caller: UnsafeCell::new(None),
        });
        let threads = (1..threads)
            .map_while(|worker| {
                let shared = shared.clone();
                thread::Builder::new()
                    .name(format!("haul-cpu-{worker}"))
                    .spawn(move || shared.serve(worker))
                    .ok()
            })
            .collect();
        Pool { shared, threads }
    }

    /// Number of threads, the caller's included.
    pub(super) fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `work(worker, tile)` once for each tile below `tiles`, tiles being claimed in increasing order, and returns when all are done.
    pub(super) fn run(&mut self, tiles: usize, work: &Work<'_>) {
        if tiles <= 1 || self.threads.is_empty() {
            (0..tiles).for_each(|tile| work(0, tile));
            return;
        }
        let shared = &*self.shared;
        // SAFETY: the last job is closed and empty, so nobody reads these; the lifetime of `work` ends after the wait below.
        unsafe {
            let work = std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work);
            *shared.job.get() = Some(Job { work, tiles });
            *shared.caller.get() = Some(thread::current());
        }
        shared.next.store(0, Ordering::Relaxed);
        let number = (shared.state.load(Ordering::Relaxed) >> NUMBER) as u32;
        let number = u64::from(number.wrapping_add(1).max(1));
        shared
            .state
            .store(number << NUMBER | OPEN, Ordering::Release);
        for thread in &self.threads {
            thread.thread().unpark();
        }
        shared.work(0);
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        shared.wait(|state| state & INSIDE == 0);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A worker's panic has aborted the process already.
            let _ = thread.join();
        }
    }
}

/// Waits inside a tile until `counter` reaches `target`; the tiles it waits for are claimed before this one.
pub(super) fn wait_for(counter: &AtomicUsize, target: usize) {
    let mut looks = 0u32;
    while counter.load(Ordering::Acquire) < target {
        looks += 1;
        // About 20 us of spinning; then others may need this core to go on.
        if looks < 2000 {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tile_is_done_once_and_run_returns_after_all() {
        for waiting in [Waiting::Spin, Waiting::Block] {
            let mut pool = Pool::new(3, waiting);
            for tiles in [0, 1, 2, 7, 100] {
                for _ in 0..50 {
                    let counts: Vec<_> = (0..tiles).map(|_| AtomicUsize::new(0)).collect();
                    pool.run(tiles, &|worker, tile| {
                        assert!(worker < 3);
                        counts[tile].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn sleeping_workers_wake_up() {
        let mut pool = Pool::new(2, Waiting::Spin);
        thread::sleep(Duration::from_millis(5));
        let seen = [AtomicBool::new(false), AtomicBool::new(false)];
        // Tile 0 waits for tile 1: only a second worker can do it.
        pool.run(2, &|_, tile| {
            seen[tile].store(true, Ordering::Release);
            while tile == 0 && !seen[1].load(Ordering::Acquire) {
                thread::yield_now();
            }
        });
        assert!(seen[1].load(Ordering::Acquire));
    }
}
