//! Submission, chain and supervision as pure state machines.
