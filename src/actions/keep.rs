//! Use case: the keeper of a local job, started by the local scheduler and by nobody else.

pub use crate::scheduler::local::{become_job, detach, keep};
