//! Names of the environment variables of the trainer contract (docs/trainer-contract.md).

pub const RANK: &str = "RANK";
pub const LOCAL_RANK: &str = "LOCAL_RANK";
pub const WORLD_SIZE: &str = "WORLD_SIZE";
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
pub const MASTER_ADDR: &str = "MASTER_ADDR";
pub const MASTER_PORT: &str = "MASTER_PORT";
/// Absolute path of the run directory.
pub const RUN_DIR: &str = "HAUL_RUN_DIR";
/// Number of the attempt, from 1.
pub const ATTEMPT: &str = "HAUL_ATTEMPT";
/// File this rank appends its progress lines to.
pub const PROGRESS: &str = "HAUL_PROGRESS";
/// Directory this attempt writes its checkpoints under.
pub const SAVE_DIR: &str = "HAUL_SAVE_DIR";
/// One checkpoint of the lineage to start from; empty at a first start.
pub const LOAD_FROM: &str = "HAUL_LOAD_FROM";
/// Directory in which files named `stop` and `save` appear when asked for.
pub const CONTROL: &str = "HAUL_CONTROL";
/// Name of the file in [`CONTROL`] that asks for a checkpoint, then exit 75.
pub const CONTROL_STOP: &str = "stop";
/// Name of the file in [`CONTROL`] that asks for a checkpoint; the program removes it when the save is done.
pub const CONTROL_SAVE: &str = "save";
