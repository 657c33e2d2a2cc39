//! Opens the files that recipes are made of, and says why one cannot be read.

use super::diagnostic::{Diagnostic, Sources, Span};
use super::yaml::{self, Node, Origin};
use std::io::Read;
use std::path::Path;

/// The bytes of a regular file of at most [`yaml::MAX_BYTES`]. `asked` is the place that names it, if a file does.
pub fn bytes(path: &Path, what: &str, asked: Option<Span>) -> Result<Vec<u8>, Diagnostic> {
    let shown = path.display();
    let fault = |message: String, help: &str| {
        Err(Diagnostic::error("file", message)
            .at(asked, "named here")
            .help(help))
    };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return fault(
                format!("there is no {what} {shown}"),
                "check the path; `haul init` writes a first recipe",
            );
        }
        Err(error) => {
            return fault(
                format!("cannot read the {what} {shown}: {error}"),
                "check the path and its permissions",
            );
        }
    };
    if metadata.is_dir() {
        return fault(
            format!("the {what} {shown} is a directory"),
            "name a file in it",
        );
    }
    if !metadata.is_file() {
        return fault(
            format!("the {what} {shown} is not a regular file"),
            "save it to a file first",
        );
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(yaml::MAX_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return fault(
            format!("cannot read the {what} {shown}: {error}"),
            "check its permissions",
        );
    }
    if bytes.len() as u64 > yaml::MAX_BYTES {
        return fault(
            format!(
                "the {what} {shown} has more than {} KiB",
                yaml::MAX_BYTES >> 10
            ),
            "a recipe has a few; is this the right file?",
        );
    }
    Ok(bytes)
}

/// Reads a file into `sources` and a tree of it. `None`: the reasons are in `faults`.
pub fn tree(
    path: &Path,
    what: &str,
    origin: Origin,
    asked: Option<Span>,
    sources: &mut Sources,
    faults: &mut Vec<Diagnostic>,
) -> Option<(Node, Vec<u8>)> {
    let bytes = match bytes(path, what, asked) {
        Ok(bytes) => bytes,
        Err(fault) => {
            faults.push(fault);
            return None;
        }
    };
    // A relative path is kept as it is: the process does not change its working directory.
    let directory = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let name = path.display().to_string();
    let text = match String::from_utf8(bytes.clone()) {
        Ok(text) => text,
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let source = sources.add(name, String::from_utf8_lossy(&bytes), directory);
            let span = Span {
                source,
                start: valid,
                end: valid + 1,
            };
            faults.push(
                Diagnostic::error(
                    "encoding",
                    format!(
                        "the {what} is not UTF-8: byte {} is 0x{:02x}",
                        valid + 1,
                        bytes[valid]
                    ),
                )
                .at(span, "this byte")
                .help("save the file as UTF-8"),
            );
            return None;
        }
    };
    let source = sources.add(name, text, directory);
    let before = faults.len();
    let node = yaml::parse(sources, source, origin, faults);
    let start = Span {
        source,
        start: 0,
        end: 0,
    };
    match node {
        Some(node) if matches!(node.value, yaml::Value::Map(_)) => Some((node, bytes)),
        Some(node) if node.value != yaml::Value::Null => {
            faults.push(
                Diagnostic::error(
                    "wrong-value",
                    format!("the {what} is {}, not a map of keys", node.kind()),
                )
                .at(node.span, "expected `key: value`")
                .help("`haul init` writes a first recipe to start from"),
            );
            None
        }
        _ if faults.len() > before => None,
        _ => {
            faults.push(
                Diagnostic::error("empty", format!("the {what} is empty"))
                    .at(start, "")
                    .help("`haul init` writes a first recipe to start from"),
            );
            None
        }
    }
}

/// Bytes of a regular file, or in words why it is none: "does not exist", "is a directory".
pub fn size(path: &Path) -> Result<u64, String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(metadata.len()),
        Ok(metadata) if metadata.is_dir() => Err("is a directory, not a file".into()),
        Ok(_) => Err("is not a regular file".into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err("does not exist".into()),
        Err(error) => Err(format!("cannot be looked at: {error}")),
    }
}
