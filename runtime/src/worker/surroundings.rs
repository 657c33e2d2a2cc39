//! What the environment says: the trainer contract, read once.

use super::WorkerError;
use crate::contract::env;
use crate::contract::metrics::{self, Kind, Line};
use crate::train::report::Report;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

/// Run root, for `{root}` in paths.
const ROOT: &str = "HAUL_ROOT";

/// The environment of one rank; absent parts are for a worker started by hand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Surroundings {
    pub(super) rank: usize,
    pub(super) world: usize,
    /// Ranks on this node; a node has its ranks in a row.
    pub(super) node: Range<usize>,
    master_addr: Option<String>,
    master_port: Option<u16>,
    pub(super) run_dir: Option<PathBuf>,
    pub(super) attempt: Option<u32>,
    pub(super) progress: Option<PathBuf>,
    pub(super) control: Option<PathBuf>,
    pub(super) save_dir: Option<PathBuf>,
    pub(super) load_from: Option<PathBuf>,
    root: Option<PathBuf>,
}

impl Surroundings {
    /// Reads variables by `get`; an empty one counts as absent.
    pub(super) fn read(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, WorkerError> {
        let path = |name: &str| get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let number = |name: &'static str| match get(name).filter(|v| !v.is_empty()) {
            None => Ok(None),
            Some(value) => match value.to_str().map(str::parse::<u32>) {
                Some(Ok(number)) => Ok(Some(number)),
                _ => Err(WorkerError::Variable {
                    name,
                    value: value.to_string_lossy().into_owned(),
                    expected: "a number from 0 is needed".to_owned(),
                }),
            },
        };
        let rank = number(env::RANK)?.unwrap_or(0) as usize;
        let world = number(env::WORLD_SIZE)?.unwrap_or(1) as usize;
        if rank >= world {
            return Err(WorkerError::Variable {
                name: env::RANK,
                value: rank.to_string(),
                expected: format!("a rank of {world} is below {world}"),
            });
        }
        let local_world = number(env::LOCAL_WORLD_SIZE)?.map_or(world, |n| n as usize);
        let local_rank = match number(env::LOCAL_RANK)? {
            Some(local_rank) => local_rank as usize,
            None => rank % local_world.max(1),
        };
        let first = rank.checked_sub(local_rank);
        let node = first.map(|first| first..first + local_world);
        let node = node.filter(|node| node.contains(&rank) && node.end <= world);
        let node = node.ok_or_else(|| WorkerError::Variable {
            name: env::LOCAL_RANK,
            value: local_rank.to_string(),
            expected: format!(
                "rank {rank} of {world} with {local_world} on its node has another place in a row of ranks"
            ),
        })?;
        let master_port = match number(env::MASTER_PORT)? {
            None => None,
            Some(port) => Some(u16::try_from(port).map_err(|_| WorkerError::Variable {
                name: env::MASTER_PORT,
                value: port.to_string(),
                expected: "a port is below 65536".to_owned(),
            })?),
        };
        let master_addr = get(env::MASTER_ADDR).filter(|v| !v.is_empty());
        Ok(Surroundings {
            rank,
            world,
            node,
            master_addr: master_addr.map(|v| v.to_string_lossy().into_owned()),
            master_port,
            run_dir: path(env::RUN_DIR),
            attempt: number(env::ATTEMPT)?,
            progress: path(env::PROGRESS),
            control: path(env::CONTROL),
            save_dir: path(env::SAVE_DIR),
            load_from: path(env::LOAD_FROM),
            root: path(ROOT),
        })
    }

    /// Tells the supervisor why this rank fails, and which rank is to blame where it is another.
    pub(super) fn tell(&self, error: &str, peer: Option<usize>) {
        let mut line = Line::new(Kind::Note);
        let mut values = BTreeMap::from([(metrics::ERROR.to_owned(), error.into())]);
        values.extend(peer.map(|rank| (metrics::PEER.to_owned(), rank.into())));
        line.values = Some(values);
        let report = Report::new(self.progress.as_deref(), self.attempt, self.rank);
        // The exit code and the log tell it as well.
        let _ = report.and_then(|mut report| report.write(line));
    }

    /// A path of the plan with `{root}` at its start replaced: by the run root named, else by the directory of the run directory.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        let run_root = self.run_dir.as_ref().and_then(|dir| dir.parent());
        let root = self.root.as_deref().or(run_root);
        match (path.strip_prefix("{root}"), root) {
            (Some(rest), Some(root)) => root.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(path),
        }
    }

    /// Where rank 0 listens for ranks of other nodes; none when all ranks are on this one.
    pub(super) fn master(&self) -> Result<Option<(&str, u16)>, WorkerError> {
        if self.node.len() >= self.world {
            return Ok(None);
        }
        let missing = |name| WorkerError::Variable {
            name,
            value: String::new(),
            expected: "ranks of several nodes find each other by it".to_owned(),
        };
        let host = self.master_addr.as_deref();
        Ok(Some((
            host.ok_or_else(|| missing(env::MASTER_ADDR))?,
            self.master_port.ok_or_else(|| missing(env::MASTER_PORT))?,
        )))
    }

    /// The secret that the ranks of this attempt share.
    pub(super) fn secret(&self) -> Result<[u8; 32], WorkerError> {
        let (Some(run), Some(attempt)) = (&self.run_dir, self.attempt) else {
            let name = match self.run_dir {
                None => env::RUN_DIR,
                Some(_) => env::ATTEMPT,
            };
            return Err(WorkerError::Variable {
                name,
                value: String::new(),
                expected: "ranks that are several find each other by it".to_owned(),
            });
        };
        let path = run
            .join("attempts")
            .join(attempt.to_string())
            .join("secret");
        let fail = |error: String| WorkerError::Secret {
            path: path.clone(),
            error,
        };
        let bytes = std::fs::read(&path).map_err(|e| fail(e.to_string()))?;
        let len = bytes.len();
        bytes
            .try_into()
            .map_err(|_| fail(format!("it has {len} bytes instead of 32")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Surroundings, WorkerError> {
        Surroundings::read(|name| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn absent_and_empty_variables_mean_a_worker_by_hand() {
        let by_hand = read(&[("HAUL_LOAD_FROM", ""), ("RANK", "")]).unwrap();
        assert_eq!((by_hand.rank, by_hand.world), (0, 1));
        assert_eq!(by_hand.load_from, None);
        assert!(by_hand.secret().is_err());
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (variables, name) in [
            (&[("RANK", "x")][..], "RANK"),
            (&[("WORLD_SIZE", "-1")], "WORLD_SIZE"),
            (&[("RANK", "2"), ("WORLD_SIZE", "2")], "RANK"),
            (&[("MASTER_PORT", "65536")], "MASTER_PORT"),
            (&[("LOCAL_RANK", "1")], "LOCAL_RANK"),
            (
                &[("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "5")],
                "LOCAL_RANK",
            ),
        ] {
            let error = read(variables).unwrap_err();
            assert!(error.to_string().contains(name) && error.exit() == 93);
        }
    }

    #[test]
    fn ranks_of_several_nodes_need_a_master_and_those_of_one_none() {
        let two = [("WORLD_SIZE", "2"), ("MASTER_ADDR", "10.0.0.7")];
        let with = |more: &[(&str, &str)]| read(&[&two[..], more].concat()).unwrap();
        assert_eq!(with(&[]).master().unwrap(), None);
        assert_eq!(with(&[("LOCAL_WORLD_SIZE", "2")]).master().unwrap(), None);
        let port = ("MASTER_PORT", "20001");
        let apart = with(&[("LOCAL_WORLD_SIZE", "1"), port]);
        assert_eq!(apart.master().unwrap(), Some(("10.0.0.7", 20001)));
        let third = read(&[
            ("RANK", "6"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "2"),
            ("LOCAL_WORLD_SIZE", "4"),
        ]);
        assert_eq!(third.unwrap().node, 4..8);
        let error = with(&[("LOCAL_WORLD_SIZE", "1")]).master().unwrap_err();
        assert!(error.to_string().contains("MASTER_PORT"), "{error}");
    }

    #[test]
    fn root_is_replaced_at_the_start_only() {
        let s = read(&[("HAUL_RUN_DIR", "/logs/run-1")]).unwrap();
        assert_eq!(s.resolve("{root}/data/x"), PathBuf::from("/logs/data/x"));
        assert_eq!(s.resolve("/a/{root}"), PathBuf::from("/a/{root}"));
        let s = read(&[("HAUL_RUN_DIR", "/logs/run-1"), ("HAUL_ROOT", "/r")]).unwrap();
        assert_eq!(s.resolve("{root}/x"), PathBuf::from("/r/x"));
    }
}
