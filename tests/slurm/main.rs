//! `haul` on a real Slurm: the cluster of `tests/slurm/cluster`, which `.ci/slurm` brings up.
//!
//! All are ignored unless asked for (`.ci/slurm`), because they need that cluster.

// A fault in the set-up of a test is a failure of the test.
#![allow(clippy::unwrap_used)]

mod faults;
mod field;
mod jobs;
mod submission;
#[path = "../trainer/told.rs"]
mod told;
