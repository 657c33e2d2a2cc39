//! What runs inside a job, with real processes: supervisor, launchers, shims, and a trainer in shell.
#![allow(clippy::unwrap_used)]

mod bench;
mod kills;
mod nodes;
mod protocol;
mod requests;
mod training;
