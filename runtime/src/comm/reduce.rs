//! The inner loop of an all-reduce: elementwise sums over buffers, in order, written back to all of them.
#![allow(unsafe_code)]

use std::ops::AddAssign;

/// Elements summed at a time, in registers or the first cache.
const BLOCK: usize = 64;

/// For each i < len: s = b\[0\]\[i\] + b\[1\]\[i\] + ..., left to right, then b\[..\]\[i\] = s. The bits do not depend on the instruction set.
///
/// # Safety
/// Each buffer is valid for `len` elements, aligned for T, overlaps no other, and nobody else touches those elements meanwhile.
pub(super) unsafe fn sum_into_all<T: Copy + Default + AddAssign>(buffers: &[*mut T], len: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature is present; the rest as promised by the caller.
        return unsafe { avx2(buffers, len) };
    }
    // SAFETY: as promised by the caller.
    unsafe { body(buffers, len) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<T: Copy + Default + AddAssign>(buffers: &[*mut T], len: usize) {
    // SAFETY: as promised by the caller.
    unsafe { body(buffers, len) }
}

#[inline(always)]
unsafe fn body<T: Copy + Default + AddAssign>(buffers: &[*mut T], len: usize) {
    let Some((&first, rest)) = buffers.split_first() else {
        return;
    };
    let whole = len - len % BLOCK;
    for at in (0..whole).step_by(BLOCK) {
        // SAFETY: at + BLOCK <= len, inside each buffer; the copies of a block are local.
        unsafe {
            let mut sum: [T; BLOCK] = first.add(at).cast::<[T; BLOCK]>().read();
            for &buffer in rest {
                let more: [T; BLOCK] = buffer.add(at).cast::<[T; BLOCK]>().read();
                for (s, m) in sum.iter_mut().zip(more) {
                    *s += m;
                }
            }
            for &buffer in buffers {
                buffer.add(at).cast::<[T; BLOCK]>().write(sum);
            }
        }
    }
    for at in whole..len {
        // SAFETY: at < len, inside each buffer.
        unsafe {
            let mut sum = first.add(at).read();
            for &buffer in rest {
                sum += buffer.add(at).read();
            }
            for &buffer in buffers {
                buffer.add(at).write(sum);
            }
        }
    }
}
