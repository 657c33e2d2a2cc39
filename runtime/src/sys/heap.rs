//! The heap, counted: an allocator that knows how many bytes are in use, because nothing may grow while training.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator with two counters.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static MARK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static HEAP: Counting = Counting;

fn grow(bytes: usize) {
    let used = USED.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    if used > MOST.load(Relaxed) {
        MOST.fetch_max(used, Relaxed);
    }
}

// SAFETY: every call is handed on to the system's allocator unchanged; counters do not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) };
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Bytes in use.
pub fn used() -> usize {
    USED.load(Relaxed)
}

/// Growth is counted from here.
pub fn mark() {
    let used = used();
    MARK.store(used, Relaxed);
    MOST.store(used, Relaxed);
}

/// Most bytes in use at any time since [`mark`], less those in use then.
pub fn growth() -> usize {
    MOST.load(Relaxed).saturating_sub(MARK.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_allocation_is_counted_and_given_back() {
        // Other tests allocate at the same time, but nothing near this size.
        const LARGE: usize = 1 << 28;
        let before = used();
        let block: Vec<u8> = Vec::with_capacity(LARGE);
        assert!(used() >= before.saturating_sub(LARGE / 4) + LARGE - LARGE / 4);
        assert!(MOST.load(Relaxed) >= LARGE);
        drop(block);
        assert!(used() < before + LARGE / 2);
    }
}
