//! Waiting on a word of memory that threads or processes share.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `seen`, at most `limit`. Returns early for no reason at times; the caller looks again.
pub fn wait(word: &AtomicU32, seen: u32, limit: Duration) {
    let time = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    };
    // SAFETY: the word and the time live through the call; a word in unmapped or foreign memory is impossible behind a reference.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            &raw const time,
            std::ptr::null::<u32>(),
            0u32,
        );
    }
}

/// Wakes everybody who waits on `word`, in this process and in others that map the same memory.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: the kernel only uses the address as a key.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            i32::MAX,
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            0u32,
        );
    }
}
