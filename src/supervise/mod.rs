//! Submission, chain and supervision as pure state machines.

pub mod chain;
pub mod classify;
pub mod core;
pub mod merge;
pub mod policy;
pub mod submission;
pub mod verdict;
