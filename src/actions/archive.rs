//! Use case: a copy of what a run was and did, without its checkpoints: report, record, provenance, recipe, plan; as one tar file or a directory.

use super::report;
use crate::report::{compose, html, json, markdown};
use crate::store::publish::sync_directory;
use crate::store::{RunDir, StoreError, unfinished};
use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub const SCHEMA: &str = "haul.archive/1";
/// What of a run directory goes along, besides the report; the rest is checkpoints, caches, or what programs left there.
const KEPT: [&str; 7] = [
    "recipe.yaml",
    "resolved.yaml",
    "provenance.json",
    "journal",
    "jobs",
    "attempts",
    "control",
];
/// By which the ranks of an attempt knew each other.
const SECRET: &str = "secret";

/// An archive that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archived {
    pub path: PathBuf,
    pub files: usize,
    pub bytes: u64,
}

/// Archives `run` into `path`: a name that ends with `.tar`, or one without suffix for a directory. What stands there is left as it is.
pub fn archive(run: &RunDir, path: &Path) -> anyhow::Result<Archived> {
    let name = path
        .file_name()
        .with_context(|| format!("{} names no file", path.display()))?;
    let tar = match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("tar") => true,
        None if path.extension().is_none() => false,
        _ => bail!(
            "{} is neither a tar file (FILE.tar) nor a directory (a name without suffix)",
            path.display()
        ),
    };
    let stands = std::fs::symlink_metadata(path).is_ok();
    ensure!(
        !stands,
        "{} exists and is left as it is: choose another name",
        path.display()
    );
    let contents = contents(run)?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let fresh = parent.join(unfinished::name(&name.to_string_lossy()));
    let written = match tar {
        true => write_tar(&contents, &run.id(), &fresh),
        false => write_directory(&contents, &fresh),
    };
    let bytes = match written.and_then(|bytes| {
        std::fs::rename(&fresh, path).map_err(StoreError::io("create", path))?;
        Ok(bytes)
    }) {
        Ok(bytes) => bytes,
        Err(error) => {
            // What is left of it is hidden.
            let _ = match tar {
                true => std::fs::remove_file(&fresh),
                false => std::fs::remove_dir_all(&fresh),
            };
            return Err(error);
        }
    };
    sync_directory(parent)?;
    Ok(Archived {
        path: path.to_path_buf(),
        files: contents.len(),
        bytes,
    })
}

/// One file of an archive.
struct Entry {
    /// Within the run.
    name: PathBuf,
    source: Source,
}

enum Source {
    File(PathBuf),
    Text(String),
}

/// Everything, sorted by name.
fn contents(run: &RunDir) -> anyhow::Result<Vec<Entry>> {
    let mut names = Vec::new();
    for kept in KEPT {
        collect(run.path(), Path::new(kept), &mut names)?;
    }
    let mut entries: Vec<Entry> = names
        .into_iter()
        .map(|name| Entry {
            source: Source::File(run.path().join(&name)),
            name,
        })
        .collect();
    let summary = report::summarise(run)?;
    let document = compose::compose(&summary);
    let texts = [
        ("report.html", html::render(&document)?),
        ("report.json", json::render(&summary)?),
        ("report.md", markdown::render(&document)),
    ];
    entries.extend(texts.map(|(name, text)| Entry {
        name: Path::new("report").join(name),
        source: Source::Text(text),
    }));
    if run.sample().exists() {
        entries.push(Entry {
            name: "report/sample.json".into(),
            source: Source::File(run.sample()),
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Regular files at and under `name`; links lead to checkpoints, and hidden names are half made.
fn collect(run: &Path, name: &Path, names: &mut Vec<PathBuf>) -> Result<(), StoreError> {
    let path = run.join(name);
    let last = name.file_name().unwrap_or_default();
    if last == SECRET || last.to_string_lossy().starts_with('.') {
        return Ok(());
    }
    let kind = match std::fs::symlink_metadata(&path) {
        Ok(meta) => meta.file_type(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(StoreError::io("read", path)(source)),
    };
    if kind.is_file() {
        names.push(name.to_path_buf());
    } else if kind.is_dir() {
        let listing = std::fs::read_dir(&path).map_err(StoreError::io("list", &path))?;
        for entry in listing {
            let entry = entry.map_err(StoreError::io("list", &path))?;
            collect(run, &name.join(entry.file_name()), names)?;
        }
    }
    Ok(())
}

impl Entry {
    /// What is there now: a file that grows is taken as long as it is at this moment.
    fn open(&self) -> Result<(Box<dyn Read + '_>, u64, SystemTime), StoreError> {
        match &self.source {
            Source::Text(text) => Ok((
                Box::new(text.as_bytes()),
                text.len() as u64,
                SystemTime::now(),
            )),
            Source::File(path) => {
                let file = File::open(path).map_err(StoreError::io("open", path))?;
                let meta = file.metadata().map_err(StoreError::io("read", path))?;
                let changed = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                Ok((Box::new(file.take(meta.len())), meta.len(), changed))
            }
        }
    }
}

/// All under the run's id, so that what is unpacked is a run directory of that name. Returns the size of the file.
fn write_tar(entries: &[Entry], id: &str, path: &Path) -> anyhow::Result<u64> {
    let file = File::options().write(true).create_new(true).open(path);
    let file = file.map_err(StoreError::io("create", path))?;
    let mut builder = tar::Builder::new(std::io::BufWriter::new(file));
    for entry in entries {
        let (content, bytes, changed) = entry.open()?;
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes);
        header.set_mode(0o644);
        let since = changed.duration_since(SystemTime::UNIX_EPOCH);
        header.set_mtime(since.map_or(0, |since| since.as_secs()));
        // Exactly as many bytes as the header says, or the rest of the archive cannot be read.
        let content = content.chain(std::io::repeat(0)).take(bytes);
        builder
            .append_data(&mut header, Path::new(id).join(&entry.name), content)
            .map_err(StoreError::io("write", path))?;
    }
    let finish = || -> std::io::Result<u64> {
        let file = builder
            .into_inner()?
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    };
    Ok(finish().map_err(StoreError::io("write", path))?)
}

/// The same as a directory. Returns the bytes of its files.
fn write_directory(entries: &[Entry], path: &Path) -> anyhow::Result<u64> {
    std::fs::create_dir(path).map_err(StoreError::io("create", path))?;
    let mut sum = 0;
    for entry in entries {
        let to = path.join(&entry.name);
        let directory = to.parent().unwrap_or(path);
        std::fs::create_dir_all(directory).map_err(StoreError::io("create", directory))?;
        let (mut content, ..) = entry.open()?;
        let mut write = || -> std::io::Result<u64> {
            let mut file = File::options().write(true).create_new(true).open(&to)?;
            let bytes = std::io::copy(&mut content, &mut file)?;
            file.flush()?;
            file.sync_all()?;
            Ok(bytes)
        };
        sum += write().map_err(StoreError::io("write", &to))?;
    }
    Ok(sum)
}
