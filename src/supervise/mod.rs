//! Submission, chain and supervision as pure state machines.
pub mod submission;
