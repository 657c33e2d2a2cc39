//! Use cases: what a command does, without flags and exit codes.

pub mod accounting;
pub mod archive;
pub mod cancel;
pub mod check;
pub mod doctor;
pub mod follow;
pub mod init;
pub mod keep;
pub mod logs;
pub mod plan;
pub mod progress;
pub mod provenance;
pub mod prune;
pub mod render;
pub mod report;
pub mod resume;
pub mod sample;
pub mod script;
pub mod standing;
pub mod status;
pub mod submit;
pub mod supervise;
pub mod view;
