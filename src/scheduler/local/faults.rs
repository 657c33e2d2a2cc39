//! Faults on request: what `HAUL_FAULTS` asks of the virtual nodes of a job, carried out by its keeper. For tests of the whole.
//!
//! `$HAUL_FAULTS/<node>` holds one word: `off` kills all processes of the node, `freeze` stops them, `slow` lets them run half the
//! time, `heal` (or no file) lets them run. `cut` is the business of the node's launcher, which relays its connections.

use super::processes::{arguments, descendants, send};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) const VARIABLE: &str = "HAUL_FAULTS";

#[derive(Debug)]
pub(super) struct Faults {
    directory: PathBuf,
    /// What was done last to each node.
    done: BTreeMap<String, String>,
    /// Half-period counter of `slow`.
    tick: u64,
}

impl Faults {
    /// From the environment; absent when no faults are asked for.
    pub(super) fn from_environment() -> Option<Faults> {
        std::env::var_os(VARIABLE).map(|directory| Faults {
            directory: directory.into(),
            done: BTreeMap::new(),
            tick: 0,
        })
    }

    /// Reads what is asked and does it to the nodes below the keeper.
    pub(super) fn carry_out(&mut self, keeper: i32) {
        self.tick += 1;
        for entry in std::fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let node = entry.file_name().to_string_lossy().into_owned();
            let Ok(text) = std::fs::read_to_string(entry.path()) else {
                continue;
            };
            let word = text.trim().to_owned();
            let changed = self.done.get(&node) != Some(&word);
            let signal = match word.as_str() {
                // Again each time: a node that is off stays off when it is launched again.
                "off" => Signal::SIGKILL,
                "freeze" => Signal::SIGSTOP,
                "heal" if changed => Signal::SIGCONT,
                "slow" if self.tick.is_multiple_of(2) => Signal::SIGCONT,
                "slow" => Signal::SIGSTOP,
                _ => {
                    if changed && word != "heal" && word != "cut" {
                        eprintln!("{VARIABLE}: `{word}` for {node} is not carried out");
                    }
                    self.done.insert(node, word);
                    continue;
                }
            };
            self.done.insert(node.clone(), word);
            for pid in processes_of(&node, keeper) {
                send(pid, signal);
            }
        }
    }
}

/// Virtual node `local<i>` is `haul launch --node i` with all below it.
fn processes_of(node: &str, keeper: i32) -> Vec<i32> {
    let Some(index) = node.strip_prefix("local") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for pid in descendants(keeper) {
        let arguments = arguments(pid);
        let launch = arguments.get(1).is_some_and(|a| a == "launch");
        let ours = arguments
            .windows(2)
            .any(|pair| pair[0] == "--node" && pair[1] == index)
            || arguments.iter().any(|a| *a == format!("--node={index}"));
        if launch && ours {
            found.push(pid);
            found.extend(descendants(pid));
        }
    }
    found
}
