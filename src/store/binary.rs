//! The copies of the binary in a run root: `bin/<blake3>`, written once, shared by the runs of the root.

use super::StoreError;
use super::layout::Root;
use super::unfinished;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A copy that was kept less than this ago may be about to be named by a run.
pub const RESTED: Duration = Duration::from_secs(3600);

/// Keeps a copy of `binary` and returns its path. A copy that stands already is used as it is.
pub fn keep(root: &Root, binary: &Path) -> Result<PathBuf, StoreError> {
    let mut hasher = blake3::Hasher::new();
    let mut source = File::open(binary).map_err(StoreError::io("open", binary))?;
    std::io::copy(&mut source, &mut Feed(&mut hasher)).map_err(StoreError::io("read", binary))?;
    let path = root.bin(hasher.finalize().to_hex().as_str());
    if path.exists() {
        // It is in use again, though no run names it yet; see [`RESTED`].
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(path);
    }
    let directory = path.parent().unwrap_or(root.path());
    std::fs::create_dir_all(directory).map_err(StoreError::io("create", directory))?;
    let nanos = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    let temporary = directory.join(unfinished::name(&format!("{nanos:x}")));
    let copy = || -> std::io::Result<()> {
        let mut from = File::open(binary)?;
        let mut to = File::options()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&temporary)?;
        std::io::copy(&mut from, &mut to)?;
        to.sync_all()
    };
    copy().map_err(StoreError::io("write", &temporary))?;
    // A copy that stands is never replaced: it may be running. Where links are refused, a rename has to do.
    let made = match std::fs::hard_link(&temporary, &path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(_) => std::fs::rename(&temporary, &path),
        Ok(()) => Ok(()),
    };
    let _ = std::fs::remove_file(&temporary);
    made.map_err(StoreError::io("create", &path))?;
    super::publish::sync_directory(directory)?;
    Ok(path)
}

struct Feed<'a>(&'a mut blake3::Hasher);

impl Write for Feed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_is_kept_once_under_its_hash_and_can_be_executed() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path().join("root"));
        let source = dir.path().join("tool");
        std::fs::write(&source, "#!/bin/sh\nexit 7\n").unwrap();
        let kept = keep(&root, &source).unwrap();
        assert_eq!(keep(&root, &source).unwrap(), kept);
        assert_eq!(
            std::fs::read_dir(root.path().join("bin")).unwrap().count(),
            1
        );
        let status = std::process::Command::new(&kept).status().unwrap();
        assert_eq!(status.code(), Some(7));
        let name = kept.file_name().unwrap().to_str().unwrap().to_owned();
        let hash = blake3::hash(&std::fs::read(&source).unwrap());
        assert_eq!(name, hash.to_hex().as_str());
    }
}
