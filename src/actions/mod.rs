//! Use cases: what a command does, without flags and exit codes.
pub mod keep;
