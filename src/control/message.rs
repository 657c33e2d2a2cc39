//! Messages. Absent optional fields are unknown; fields of newer versions are ignored.

use super::auth::Nonce;
use serde::{Deserialize, Serialize};

/// First message of a shim, or of a node's `haul launch`, which has no rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Name of the node, such as `local0`.
    pub node: String,
    pub nonce: Nonce,
    /// Process id of the sender, for people.
    pub pid: i32,
}

/// The supervisor's own nonce and its proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    pub protocol: u32,
    pub nonce: Nonce,
    pub proof: String,
}

/// The shim's proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub proof: String,
}

/// What a rank needs to start; sent when all ranks of the attempt have said hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub world: usize,
    pub local_rank: usize,
    pub local_world: usize,
    pub master_addr: String,
    pub master_port: u16,
    pub save_dir: String,
    /// Checkpoint to start from; empty at a first start.
    pub load_from: String,
    pub bind: Bind,
}

/// Cores of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bind {
    /// All cores the shim may use.
    Leave,
    /// These.
    Cores(Vec<usize>),
    /// Part `index` of `of` equal parts of the cores the shim may use.
    Share { index: usize, of: usize },
}

/// From shim or node to supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Up {
    /// The shim lives; `lines` are progress lines as the program wrote them.
    Beat {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lines: Vec<String>,
    },
    /// Cores the program may run on, read back from the kernel, and those asked for.
    Bound {
        cores: Vec<usize>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<Vec<usize>>,
    },
    /// The program runs.
    Spawned { pid: i32, group: i32, start: u64 },
    /// The program ended.
    Exit(Ended),
    /// A node tells that a shim of its own ended.
    Gone {
        rank: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// A message of a newer version.
    #[serde(other)]
    Unknown,
}

/// How a program ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The shim had begun to end it.
    #[serde(default)]
    pub asked: bool,
    /// Why it could not be started at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// From supervisor to shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Down {
    Welcome(Welcome),
    /// The supervisor lives.
    Beat,
    /// The end of the program is on record, with all progress lines before it.
    Noted,
    /// Ask the program to save.
    Save,
    /// Ask the program to save and leave with code 75.
    Stop,
    /// End the program: TERM, after `grace_ms` KILL.
    Abort {
        grace_ms: u64,
    },
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_newer_versions_are_read() {
        let up: Up = serde_json::from_str(r#"{"type":"beat","lines":["a"],"mood":1}"#).unwrap();
        assert_eq!(
            up,
            Up::Beat {
                lines: vec!["a".into()]
            }
        );
        let up: Up = serde_json::from_str(r#"{"type":"sing","loud":true}"#).unwrap();
        assert_eq!(up, Up::Unknown);
        let down: Down =
            serde_json::from_str(r#"{"type":"abort","grace_ms":5,"why":"x"}"#).unwrap();
        assert_eq!(down, Down::Abort { grace_ms: 5 });
        let up: Up = serde_json::from_str(r#"{"type":"exit","code":75}"#).unwrap();
        assert_eq!(
            up,
            Up::Exit(Ended {
                code: Some(75),
                ..Ended::default()
            })
        );
    }
}
