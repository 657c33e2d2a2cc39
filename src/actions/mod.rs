//! Use cases: what a command does, without flags and exit codes.

pub mod check;
pub mod init;
pub mod keep;
pub mod plan;
pub mod progress;
pub mod render;
pub mod report;
pub mod sample;
pub mod standing;
