//! The native distributed trainer of `haul`.
//!
//! Floors, each using only those below it:
//! `worker → train → {checkpoint, data, optim} → {device, comm} → model → blueprint → contract`,
//! with [`sys`] (raw system calls) beside `contract`. `contract` and `blueprint` are pure; the orchestrator
//! reads memory, FLOPs and refusals from them and touches nothing else but the `worker` command.

pub mod blueprint;
pub mod checkpoint;
pub mod comm;
pub mod contract;
pub mod data;
pub mod device;
pub mod model;
pub mod optim;
pub mod sys;
pub mod train;
pub mod worker;
