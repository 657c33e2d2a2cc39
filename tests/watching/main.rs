//! Watching runs under Slurm, whose commands are scripts here that print what a test wants and note each call.

// A fault in the set-up of a test is a failure of the test.
#![allow(clippy::unwrap_used)]

mod accounts;
mod asking;
mod desk;
mod following;
mod foreign;
mod lost;
