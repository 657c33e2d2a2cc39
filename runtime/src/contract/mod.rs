//! What the orchestrator and any trainer agree on: ranks, configuration, environment, exit codes, files. Pure.

pub mod checkpoint;
pub mod config;
pub mod env;
pub mod exit;
pub mod mesh;
pub mod metrics;
pub mod resume;

pub use config::{Batch, Data, Model, Optimizer, Precision, Schedule, Train, TrainConfig, Until};
pub use mesh::{Axis, Coord, Mesh};
