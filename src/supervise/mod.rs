//! Submission, chain and supervision as pure state machines.

pub mod classify;
pub mod core;
pub mod merge;
pub mod policy;
pub mod verdict;
