//! A group whose ranks are threads of one process, over private memory: the algorithm of `shm` without processes.

use super::group::Member;
use super::segment::Segment;
use super::{CommError, MAX_RANKS, Options};
use crate::sys::region::Memory;

/// A rank of a local group.
pub type Local = Member;

/// A group of `size` ranks with `grads_bytes` of gradient memory each, in rank order. Give each to its thread.
pub fn group(size: usize, grads_bytes: usize) -> Result<Vec<Local>, CommError> {
    group_with(size, grads_bytes, Options::default())
}

/// [`group`] with options.
pub fn group_with(
    size: usize,
    grads_bytes: usize,
    options: Options,
) -> Result<Vec<Local>, CommError> {
    let fail = |error: String| CommError::System {
        what: format!("make a group of {size} ranks with {grads_bytes} bytes each"),
        error,
    };
    if size == 0 || size > MAX_RANKS {
        return Err(fail(format!("a group has 1 to {MAX_RANKS} ranks")));
    }
    let bytes = Segment::bytes(size, grads_bytes).ok_or_else(|| fail("too large".into()))?;
    let memory = Memory::private(bytes).map_err(|e| fail(e.to_string()))?;
    let segment = Segment::over(memory, size, grads_bytes);
    Ok((0..size)
        .map(|rank| Member::new(segment.clone(), rank, options, None))
        .collect())
}
