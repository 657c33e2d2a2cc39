//! The bundled trainer end to end: the binary, a small recipe, real processes, and what is left when they are killed.

// A fault in the set-up of a test is a failure of the test.
#![allow(clippy::unwrap_used)]

#[path = "../inside/bench.rs"]
#[allow(dead_code)]
mod bench;
#[path = "../jobs/harness.rs"]
#[allow(dead_code)]
mod harness;

mod checkpoints;
mod commands;
mod field;
mod kills;
mod layouts;
mod requests;
mod storm;
mod told;
