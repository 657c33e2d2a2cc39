//! attempts/<n>/placement.json: which rank stands where. Written by the supervisor before the launch.

use super::RankError;
use crate::control::Secret;
use crate::store::RunDir;
use haul_runtime::contract::checkpoint::Point;
use serde::{Deserialize, Serialize};

pub const SCHEMA: &str = "haul.placement/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// [`SCHEMA`].
    pub schema: String,
    pub attempt: u32,
    /// Reign of the supervisor that launched it.
    pub epoch: u64,
    pub slot: u32,
    /// Checkpoint it starts from.
    pub parent: Option<Point>,
    /// Fingerprint of the plan.
    pub fingerprint: String,
    pub ranks: Vec<Place>,
}

/// Place of one rank; its index in [`Placement::ranks`] is its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub rank: usize,
    pub node: String,
    pub local_rank: usize,
    /// Cores it is bound to; absent when it may use all of its node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Vec<usize>>,
}

impl Placement {
    /// The placement of `attempt`.
    pub fn read(run: &RunDir, attempt: u32) -> Result<Placement, RankError> {
        let path = run.attempt(attempt).join("placement.json");
        let text = std::fs::read(&path).map_err(RankError::io("read", &path))?;
        serde_json::from_slice(&text).map_err(|e| RankError::Damaged {
            path,
            reason: e.to_string(),
        })
    }

    /// Ranks of `node`, ascending.
    pub fn of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Place> {
        self.ranks.iter().filter(move |place| place.node == node)
    }
}

/// The secret of `attempt`.
pub fn secret(run: &RunDir, attempt: u32) -> Result<Secret, RankError> {
    let path = run.attempt(attempt).join("secret");
    let content = std::fs::read(&path).map_err(RankError::io("read", &path))?;
    Secret::parse(&content).ok_or(RankError::Damaged {
        path,
        reason: format!("it has {} bytes, not 32", content.len()),
    })
}
