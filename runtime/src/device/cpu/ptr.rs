//! A checked address that threads may share.
#![allow(unsafe_code)]

/// Start of a range whose bounds were checked where it was resolved; operations on it say which elements they touch.
#[derive(Debug)]
pub(super) struct Ptr<T>(*mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

// SAFETY: an address alone is no access; kernels divide the elements among tiles so that none is written by two.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ptr<T> {}

impl<T> Ptr<T> {
    pub(super) fn new(at: *mut T) -> Self {
        Ptr(at)
    }

    /// The address.
    #[inline(always)]
    pub(super) fn get(self) -> *mut T {
        self.0
    }

    /// The address `n` elements on.
    #[inline(always)]
    #[must_use]
    pub(super) fn add(self, n: usize) -> Self {
        Ptr(self.0.wrapping_add(n))
    }
}
