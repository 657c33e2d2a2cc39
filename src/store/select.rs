//! Run ids, the runs of a root, and which run a user means.

use super::StoreError;
use super::layout::{Root, RunDir};
use super::unfinished;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::SystemTime;

/// Letters of the last part of a run id: base32 without those that look alike.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// `<name>-<yymmdd>-<4 of base32>`, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id<'a> {
    pub date: &'a str,
    pub name: &'a str,
    pub letters: &'a str,
}

impl<'a> Id<'a> {
    /// Absent when `text` is no run id.
    pub fn parse(text: &'a str) -> Option<Id<'a>> {
        let (rest, letters) = text.rsplit_once('-')?;
        let (name, date) = rest.rsplit_once('-')?;
        let well_formed = letters.len() == 4
            && letters.bytes().all(|b| LETTERS.contains(&b))
            && date.len() == 6
            && date.bytes().all(|b| b.is_ascii_digit())
            && is_name(name);
        well_formed.then_some(Id {
            date,
            name,
            letters,
        })
    }
}

/// `[a-z0-9-]{1,40}`.
pub fn is_name(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// No run, or more than one, is meant.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    #[error("no runs in {}: `haul run RECIPE` makes the first, --root or HAUL_ROOT names another place", .0.display())]
    Empty(PathBuf),
    #[error("no run `{selector}` in {}{}", .root.display(), listed(.candidates, "there are"))]
    None {
        selector: String,
        root: PathBuf,
        candidates: Vec<String>,
    },
    #[error("`{selector}` is the start of several runs{}", listed(.candidates, "which one"))]
    Several {
        selector: String,
        candidates: Vec<String>,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn listed(ids: &[String], words: &str) -> String {
    const SHOWN: usize = 8;
    if ids.is_empty() {
        return String::new();
    }
    let mut text = format!("; {words}: {}", ids[..ids.len().min(SHOWN)].join(", "));
    if ids.len() > SHOWN {
        text.push_str(&format!(" and {} more", ids.len() - SHOWN));
    }
    text
}

/// Makes the directory of a new run, exclusively, and with it its id. What `fill` writes into its first directory appears
/// in the second at once: whoever is killed on the way has made no run.
pub fn create<E: From<StoreError>>(
    root: &Root,
    name: &str,
    mut fill: impl FnMut(&RunDir, &RunDir) -> Result<(), E>,
) -> Result<RunDir, E> {
    std::fs::create_dir_all(root.path()).map_err(StoreError::io("create", root.path()))?;
    let date = chrono::Local::now().format("%y%m%d").to_string();
    loop {
        let id = format!("{name}-{date}-{}", letters());
        let (run, fresh) = (root.run(&id), root.run(&unfinished::name(&id)));
        match std::fs::create_dir(fresh.path()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(source) => return Err(StoreError::io("create", fresh.path())(source).into()),
        }
        // A directory that is not empty cannot be renamed over, and a run never is empty.
        let made = fill(&fresh, &run).map(|()| std::fs::rename(fresh.path(), run.path()));
        match made {
            Ok(Ok(())) => {
                super::publish::sync_directory(root.path())?;
                return Ok(run);
            }
            other => {
                // What is left of it is hidden, in nobody's way, and removed by a later submission.
                let _ = std::fs::remove_dir_all(fresh.path());
                match other {
                    Err(error) => return Err(error),
                    Ok(Err(source)) if !run.path().exists() => {
                        return Err(StoreError::io("create", run.path())(source).into());
                    }
                    Ok(_) => {}
                }
            }
        }
    }
}

/// Four letters that differ from call to call; the exclusive creation decides.
fn letters() -> String {
    use std::hash::{BuildHasher, Hasher};
    // A RandomState is seeded by the system anew in each process.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u128(
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos()),
    );
    let mut bits = hasher.finish();
    (0..4)
        .map(|_| {
            let letter = LETTERS[(bits % 32) as usize];
            bits /= 32;
            char::from(letter)
        })
        .collect()
}

/// All runs of a root by id, in no order. One directory listing, nothing is opened.
pub fn ids(root: &Root) -> Result<Vec<String>, StoreError> {
    let listing = match std::fs::read_dir(root.path()) {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(StoreError::io("list", root.path())(source)),
    };
    Ok(listing
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| Id::parse(name).is_some())
        .collect())
}

/// All runs of a root, newest first: by the day in the id, then by the time the recipe was written.
pub fn newest_first(root: &Root) -> Result<Vec<RunDir>, StoreError> {
    let mut runs: Vec<(String, SystemTime, String)> = ids(root)?
        .into_iter()
        .map(|id| {
            let date = Id::parse(&id).map_or(String::new(), |id| id.date.to_owned());
            (date, made(&root.run(&id)), id)
        })
        .collect();
    runs.sort_unstable_by(|a, b| b.cmp(a));
    Ok(runs.into_iter().map(|(.., id)| root.run(&id)).collect())
}

fn made(run: &RunDir) -> SystemTime {
    std::fs::metadata(run.recipe())
        .or_else(|_| std::fs::metadata(run.path()))
        .and_then(|m| m.modified())
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The run meant by `last`, a full id, a name (its newest run), or the start of an id that no other has.
pub fn find(root: &Root, selector: &str) -> Result<RunDir, SelectError> {
    let runs = newest_first(root)?;
    let empty = || SelectError::Empty(root.path().to_path_buf());
    if selector == "last" || runs.is_empty() {
        return runs.into_iter().next().ok_or_else(empty);
    }
    let named: Vec<(String, RunDir)> = runs.into_iter().map(|run| (run.id(), run)).collect();
    let is = |want: fn(&Id, &str) -> bool| {
        named
            .iter()
            .find(|(id, _)| Id::parse(id).is_some_and(|id| want(&id, selector)))
    };
    if let Some((_, run)) = named.iter().find(|(id, _)| id == selector) {
        return Ok(run.clone());
    }
    if let Some((_, run)) = is(|id, selector| id.name == selector) {
        return Ok(run.clone());
    }
    let mut starts = named.iter().filter(|(id, _)| id.starts_with(selector));
    match (starts.next(), starts.count()) {
        (Some((_, run)), 0) => Ok(run.clone()),
        (Some(_), _) => Err(SelectError::Several {
            selector: selector.to_owned(),
            candidates: named
                .iter()
                .filter(|(id, _)| id.starts_with(selector))
                .map(|(id, _)| id.clone())
                .collect(),
        }),
        // The four letters alone are what people remember.
        (None, _) => match is(|id, selector| id.letters == selector) {
            Some((_, run)) => Ok(run.clone()),
            None => Err(SelectError::None {
                selector: selector.to_owned(),
                root: root.path().to_path_buf(),
                candidates: named.into_iter().map(|(id, _)| id).collect(),
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_with(ids: &[&str]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        for (age, id) in ids.iter().enumerate() {
            std::fs::create_dir(root.run(id).path()).unwrap();
            let file = std::fs::File::create(root.run(id).recipe()).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 - age as u64);
            file.set_modified(time).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn runs_are_found_by_last_id_name_prefix_and_letters() {
        let (_dir, root) = root_with(&[
            "tiny-261130-aaaa",
            "tiny-261130-abbb",
            "tiny-gpt-261130-cccc",
            "old-251130-dddd",
        ]);
        let found = |selector: &str| find(&root, selector).map(|run| run.id());
        assert_eq!(found("last").unwrap(), "tiny-261130-aaaa");
        assert_eq!(found("old-251130-dddd").unwrap(), "old-251130-dddd");
        assert_eq!(found("tiny").unwrap(), "tiny-261130-aaaa");
        assert_eq!(found("tiny-261130-ab").unwrap(), "tiny-261130-abbb");
        assert_eq!(found("o").unwrap(), "old-251130-dddd");
        assert_eq!(found("cccc").unwrap(), "tiny-gpt-261130-cccc");
        let several = found("tiny-26").unwrap_err().to_string();
        assert!(
            several.contains("tiny-261130-aaaa, tiny-261130-abbb"),
            "{several}"
        );
        let none = found("big").unwrap_err().to_string();
        assert!(none.contains("old-251130-dddd"), "{none}");
        assert!(matches!(
            find(&Root::new(root.path().join("x")), "last"),
            Err(SelectError::Empty(_))
        ));
    }

    fn new(root: &Root, words: &str) -> Result<RunDir, StoreError> {
        create(root, "a-1", |fresh, run| {
            // Nobody sees it before it is whole.
            assert!(!run.path().exists() && !ids(root).unwrap().contains(&run.id()));
            let path = fresh.recipe();
            std::fs::write(&path, words).map_err(StoreError::io("write", &path))
        })
    }

    #[test]
    fn a_run_appears_with_what_is_in_it_or_not_at_all() {
        let (_dir, root) = root_with(&[]);
        let run = new(&root, "whole").unwrap();
        assert_eq!(std::fs::read_to_string(run.recipe()).unwrap(), "whole");
        let fault = create(&root, "a-1", |fresh, _| {
            std::fs::write(fresh.recipe(), "half").unwrap();
            let full = std::io::Error::from(ErrorKind::StorageFull);
            Err(StoreError::io("write", fresh.recipe())(full))
        });
        assert!(matches!(fault, Err(StoreError::Io { .. })), "{fault:?}");
        let left = std::fs::read_dir(root.path()).unwrap().count();
        assert_eq!(left, 1);
    }

    #[test]
    fn new_ids_are_well_formed_and_differ() {
        let (_dir, root) = root_with(&[]);
        let fresh_ids: std::collections::BTreeSet<String> =
            (0..50).map(|_| new(&root, "x").unwrap().id()).collect();
        assert_eq!(fresh_ids.len(), 50);
        assert!(
            fresh_ids
                .iter()
                .all(|id| Id::parse(id).is_some_and(|id| id.name == "a-1"))
        );
        assert_eq!(ids(&root).unwrap().len(), 50);
    }

    #[test]
    fn other_directories_are_no_runs() {
        for name in [
            "bin",
            ".local",
            "a-b-c",
            "A-261130-aaaa",
            "-261130-aaaa",
            "x-261130-aa1a",
        ] {
            assert_eq!(Id::parse(name), None, "{name}");
        }
    }
}
