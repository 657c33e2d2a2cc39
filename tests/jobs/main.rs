//! Jobs of the local scheduler with real processes: submission, keepers, limits, kills, resume, cancel, followers.

// A fault in the set-up of a test is a failure of the test.
#![allow(clippy::unwrap_used)]

mod following;
mod harness;
mod keeper;
mod slots;
