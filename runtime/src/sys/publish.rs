//! Files that appear whole under their final name, once, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a unique temporary file beside `path`, links it to `path` and makes both durable.
///
/// An error of kind `AlreadyExists` says that somebody was first. Where hard links are refused, `path` itself is
/// created exclusively: the content must then tell whether it is whole.
pub fn publish(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = temporary(path, content)?;
    let outcome = match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .and_then(|file| fill(file, content)),
        other => other,
    };
    // A temporary that stays is harmless: nobody reads its name.
    let _ = fs::remove_file(&temporary);
    outcome?;
    sync_directory(parent(path))
}

/// Writes a unique temporary file beside `path` and renames it to `path`, replacing what was there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = temporary(path, content)?;
    fs::rename(&temporary, path)?;
    sync_directory(parent(path))
}

/// Makes the entries of a directory durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn fill(mut file: File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    file.sync_all()
}

fn temporary(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    let process = std::process::id();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = parent(path).join(format!(".{name}.{process}-{nanos:x}-{count}.tmp"));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)?;
    if let Err(error) = fill(file, content) {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(temporary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_stays_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manifest.json");
        let wins: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|i| {
                    let path = &path;
                    scope.spawn(move || publish(path, format!("owner {i}").as_bytes()))
                })
                .collect();
            let results = threads.into_iter().map(|t| t.join().unwrap());
            let won = |(i, result): (usize, io::Result<()>)| match result {
                Ok(()) => Some(i),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
                    None
                }
            };
            results.enumerate().filter_map(won).collect()
        });
        assert_eq!(wins.len(), 1);
        let content = fs::read_to_string(&path).unwrap();
        assert_eq!(content, format!("owner {}", wins[0]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
