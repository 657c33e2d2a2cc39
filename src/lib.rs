//! `haul`: a batch-job orchestrator for Slurm with a native distributed trainer inside.
//!
//! Layers, each using only lower ones:
//! 4 [`cli`] · 3 [`actions`] · 2 [`scheduler`] [`store`] [`render`] [`report`] [`rank`] [`launch`] ·
//! 1 [`ui`] [`plan`] [`recipe`] [`machine`] [`supervise`] [`control`] · 0 `haul_runtime::{contract, blueprint}`.

pub mod actions;
pub mod cli;
pub mod control;
pub mod launch;
pub mod machine;
pub mod plan;
pub mod rank;
pub mod recipe;
pub mod render;
pub mod report;
pub mod scheduler;
pub mod store;
pub mod supervise;
pub mod ui;
