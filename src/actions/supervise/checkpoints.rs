//! Checkpoints as the supervisor sees them: what an attempt is given to load, manifests for foreign programs.

use crate::store::checkpoints::{LINK, directory};
use crate::store::publish::publish;
use crate::store::{RunDir, StoreError};
use haul_runtime::contract::checkpoint::{FileEntry, MANIFEST, Manifest, Point, SCHEMA};
use std::path::{Path, PathBuf};

/// Name of the file in `HAUL_SAVE_DIR` in which a foreign program names its newest checkpoint.
pub(super) const POINTER: &str = "latest";
/// Files of one foreign checkpoint.
const FILES: usize = 100_000;

/// What `HAUL_LOAD_FROM` names for a checkpoint.
pub(super) fn load_path(run: &RunDir, at: Point) -> PathBuf {
    let directory = directory(run, at);
    std::fs::canonicalize(directory.join(LINK)).unwrap_or(directory)
}

/// Whether the bundled trainer has committed the manifest of `step`.
pub(super) fn is_committed(run: &RunDir, at: Point) -> bool {
    directory(run, at).join(MANIFEST).exists()
}

/// The checkpoint that the pointer file names; absent when there is none.
pub(super) fn pointer(save_dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(save_dir.join(POINTER)).ok()?;
    let name = text.lines().next()?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// The step in a checkpoint's name: its last digits.
pub(super) fn step_in(name: &str) -> Option<u64> {
    let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = name[..end]
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |i| {
            i + name[i..].chars().next().map_or(1, char::len_utf8)
        });
    name[start..end].parse().ok()
}

/// A foreign checkpoint that is complete.
#[derive(Debug)]
pub(super) struct Foreign<'a> {
    pub at: Point,
    /// Relative to the attempt's save directory, or inside it.
    pub path: &'a str,
    pub parent: Option<Point>,
    pub fingerprint: &'a str,
}

/// Commits a manifest with the sizes of all files of a foreign checkpoint, under `step-<s>/` as for the bundled
/// trainer; what the program named itself is reached from there by a link. The error says why it is refused.
pub(super) fn commit(run: &RunDir, foreign: &Foreign<'_>) -> Result<(), String> {
    let save_dir = run.checkpoints(foreign.at.attempt);
    let real = |path: &Path| {
        std::fs::canonicalize(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))
    };
    let base = real(&save_dir)?;
    let target = real(&save_dir.join(foreign.path))?;
    let Some(inside) = target
        .strip_prefix(&base)
        .ok()
        .filter(|inside| !inside.as_os_str().is_empty())
    else {
        return Err(format!(
            "{} is not inside the directory of HAUL_SAVE_DIR",
            target.display()
        ));
    };
    let directory = directory(run, foreign.at);
    let own = inside == Path::new(&format!("step-{}", foreign.at.step));
    if !own {
        std::fs::create_dir_all(&directory)
            .map_err(|e| format!("{} cannot be made: {e}", directory.display()))?;
        let link = directory.join(LINK);
        match std::os::unix::fs::symlink(Path::new("..").join(inside), &link) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(format!("{} cannot be made: {e}", link.display()));
            }
            _ => {}
        }
    }
    let mut files = Vec::new();
    let prefix = if own { PathBuf::new() } else { LINK.into() };
    collect(&target, &prefix, &mut files)?;
    if files.is_empty() {
        return Err(format!("{} holds no file", target.display()));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let manifest = Manifest {
        schema: SCHEMA.into(),
        attempt: foreign.at.attempt,
        step: foreign.at.step,
        parent: foreign.parent,
        fingerprint: foreign.fingerprint.into(),
        files,
        trainer: None,
        pieces: Vec::new(),
    };
    let text = manifest.to_text().map_err(|e| e.to_string())?;
    publish(&directory.join(MANIFEST), text.as_bytes())
        .map(|_| ())
        .map_err(|e: StoreError| e.to_string())
}

fn collect(path: &Path, name: &Path, files: &mut Vec<FileEntry>) -> Result<(), String> {
    let fault = |e: std::io::Error| format!("{} cannot be read: {e}", path.display());
    let metadata = std::fs::metadata(path).map_err(fault)?;
    if !metadata.is_dir() {
        if files.len() == FILES {
            return Err(format!("it has more than {FILES} files"));
        }
        let name = name
            .to_str()
            .ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
        files.push(FileEntry {
            path: name.to_owned(),
            bytes: metadata.len(),
            blake3: None,
        });
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        // A link to a directory could lead in a circle.
        let kind = entry.file_type().map_err(fault)?;
        let circle = kind.is_symlink() && entry.path().is_dir();
        if circle || entry.file_name() == MANIFEST {
            continue;
        }
        collect(&entry.path(), &name.join(entry.file_name()), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::checkpoints::search;
    use crate::store::journal::{Entry, Event};

    fn entry(event: Event) -> Entry {
        Entry {
            epoch: 1,
            seq: 1,
            time: String::new(),
            role: String::new(),
            event,
        }
    }

    fn run_with_attempt() -> (tempfile::TempDir, RunDir, Vec<Entry>) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path());
        std::fs::create_dir_all(run.checkpoints(1)).unwrap();
        let journal = vec![entry(Event::Attempt {
            attempt: 1,
            slot: 1,
            parent: None,
        })];
        (dir, run, journal)
    }

    fn save(run: &RunDir, step: u64, path: &str) -> Result<(), String> {
        commit(
            run,
            &Foreign {
                at: Point { attempt: 1, step },
                path,
                parent: None,
                fingerprint: "f",
            },
        )
    }

    #[test]
    fn foreign_checkpoints_are_found_and_torn_ones_refused_with_their_reason() {
        let (_dir, run, journal) = run_with_attempt();
        assert!(!search(&run, &journal, None).existed);
        let save_dir = run.checkpoints(1);
        std::fs::create_dir_all(save_dir.join("deep/model-10/part")).unwrap();
        std::fs::write(save_dir.join("deep/model-10/part/a"), "aaaa").unwrap();
        save(&run, 10, "deep/model-10").unwrap();
        std::fs::write(save_dir.join("model-20.txt"), "bbbb").unwrap();
        save(&run, 20, "model-20.txt").unwrap();
        std::fs::create_dir_all(save_dir.join("step-30")).unwrap();
        std::fs::write(save_dir.join("step-30/c"), "cccc").unwrap();
        save(&run, 30, "step-30").unwrap();
        // Without a manifest it is an unfinished save.
        std::fs::create_dir_all(save_dir.join("step-40")).unwrap();

        let newest = |journal: &[Entry]| search(&run, journal, None).newest.map(|p| p.step);
        assert_eq!(newest(&journal), Some(30));
        std::fs::write(save_dir.join("step-30/c"), "ccc").unwrap();
        let found = search(&run, &journal, None);
        assert_eq!(
            found.newest,
            Some(Point {
                attempt: 1,
                step: 20
            })
        );
        assert_eq!(found.refused[0].1, "c has 3 bytes, its manifest says 4");
        let path = load_path(
            &run,
            Point {
                attempt: 1,
                step: 20,
            },
        );
        assert_eq!(std::fs::read_to_string(path).unwrap(), "bbbb");

        let mut journal = journal;
        journal.push(entry(Event::Unreadable {
            at: Point {
                attempt: 1,
                step: 20,
            },
            reason: String::new(),
        }));
        assert_eq!(newest(&journal), Some(10));
        std::fs::write(save_dir.join("step-10/manifest.json"), "{torn").unwrap();
        let found = search(&run, &journal, None);
        assert!(found.newest.is_none() && found.existed);
        assert_eq!(found.refused.len(), 2);
    }

    #[test]
    fn what_lies_outside_or_is_empty_is_no_checkpoint() {
        let (dir, run, _) = run_with_attempt();
        std::fs::write(dir.path().join("elsewhere"), "x").unwrap();
        assert!(
            save(&run, 1, "../../elsewhere")
                .unwrap_err()
                .contains("not inside")
        );
        assert!(save(&run, 1, "missing").is_err());
        assert!(save(&run, 1, "").is_err());
        std::fs::create_dir(run.checkpoints(1).join("empty")).unwrap();
        assert!(save(&run, 1, "empty").unwrap_err().contains("no file"));
    }

    #[test]
    fn the_step_is_read_from_a_name() {
        for (name, step) in [
            ("model-40.pt", Some(40)),
            ("global_step12/", Some(12)),
            ("é7", Some(7)),
            ("9", Some(9)),
            ("final", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(step_in(name), step, "{name}");
        }
    }
}
