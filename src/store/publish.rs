//! Exclusive publication: a file appears whole under its final name, once, or not at all.

use super::StoreError;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Whether this call made the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    Here,
    /// Somebody was first; the file stands as they wrote it.
    Before,
}

/// Writes a unique temporary file beside `path`, fsyncs it, links it to `path`, fsyncs the directory.
/// Where hard links are refused, falls back to O_EXCL on `path` itself: readers must then check the content.
pub fn publish(path: &Path, content: &[u8]) -> Result<Published, StoreError> {
    let (directory, temporary) = temporary(path, content, Durable::Yes)?;
    let linked = std::fs::hard_link(&temporary, path);
    let outcome = match linked {
        Ok(()) => Ok(Published::Here),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Published::Before),
        Err(_) => exclusive(path, content),
    };
    // A left-over temporary is harmless: nobody reads its name.
    let _ = std::fs::remove_file(&temporary);
    if matches!(outcome, Ok(Published::Here)) {
        sync_directory(&directory)?;
    }
    outcome
}

/// Replaces `path` by rename: for files that are made again at any time, such as reports.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let (directory, temporary) = temporary(path, content, Durable::Yes)?;
    std::fs::rename(&temporary, path).map_err(StoreError::io("replace", path))?;
    sync_directory(&directory)
}

/// Replaces `path` by rename without waiting for the disk: for caches, whose loss costs time only.
pub fn cache(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let (_, temporary) = temporary(path, content, Durable::No)?;
    std::fs::rename(&temporary, path).map_err(StoreError::io("replace", path))
}

/// Whether `path` belongs to this user: in a colleague's directory nothing is kept.
pub fn is_ours(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.uid() == nix::unistd::geteuid().as_raw())
}

/// Whether a file has to outlive a crash of the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    Yes,
    No,
}

fn temporary(
    path: &Path,
    content: &[u8],
    durable: Durable,
) -> Result<(PathBuf, PathBuf), StoreError> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let directory = path.parent().unwrap_or(Path::new(".")).to_path_buf();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = directory.join(format!(
        ".{name}.{}-{nanos:x}-{count}.tmp",
        std::process::id()
    ));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .map_err(StoreError::io("create", &temporary))?;
    let written = file.write_all(content).and_then(|()| match durable {
        Durable::Yes => file.sync_all(),
        Durable::No => Ok(()),
    });
    if let Err(source) = written {
        let _ = std::fs::remove_file(&temporary);
        return Err(StoreError::Io {
            what: "write",
            path: temporary,
            source,
        });
    }
    Ok((directory, temporary))
}

fn exclusive(path: &Path, content: &[u8]) -> Result<Published, StoreError> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => {
            file.write_all(content)
                .and_then(|()| file.sync_all())
                .map_err(StoreError::io("write", path))?;
            Ok(Published::Here)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Published::Before),
        Err(source) => Err(StoreError::Io {
            what: "create",
            path: path.to_path_buf(),
            source,
        }),
    }
}

/// Makes the directory's entries durable.
pub fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    File::open(directory)
        .and_then(|d| d.sync_all())
        .map_err(StoreError::io("sync", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_publishers_wins_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("claim-0");
        let wins: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|i| {
                    let path = path.clone();
                    scope.spawn(move || publish(&path, format!("owner {i}").as_bytes()).unwrap())
                })
                .collect();
            threads
                .into_iter()
                .map(|t| usize::from(t.join().unwrap() == Published::Here))
                .sum()
        });
        assert_eq!(wins, 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .starts_with("owner ")
        );
    }
}
