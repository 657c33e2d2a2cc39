//! Lays trees over each other: `extends` below the recipe, `--set` above it.

use super::diagnostic::{Diagnostic, Sources, Span};
use super::source;
use super::yaml::{self, Entry, Node, Origin, Value};
use std::path::{Path, PathBuf};

/// Keys of which a later one puts an earlier other one out of force.
const EXCLUSIVE: &[(&str, &[&str])] = &[
    ("batch", &["global", "per_replica", "accumulation"]),
    ("train.until", &["steps", "tokens", "time"]),
];

/// What a recipe file, its base and the overrides come to.
pub struct Merged {
    pub tree: Node,
    /// The recipe as written.
    pub bytes: Vec<u8>,
}

/// Reads `path`, the file it extends and the overrides `sets`. `None`: the reasons are in `faults`.
pub fn load(
    path: &Path,
    sets: &[String],
    sources: &mut Sources,
    faults: &mut Vec<Diagnostic>,
) -> Option<Merged> {
    let file = source::tree(path, "recipe", Origin::File, None, sources, faults);
    let mut overrides = Vec::new();
    for (index, set) in sets.iter().enumerate() {
        overrides.extend(parse_set(index, set, sources, faults));
    }
    let (file, bytes) = file?;
    let mut tree = match base(&file, path, sources, faults) {
        Base::None => file,
        Base::Tree(base) => merge(base, file, ""),
        // Told; the keys of the base would be told as missing.
        Base::Wrong => return None,
    };
    for set in overrides {
        tree = merge(tree, set, "");
    }
    Some(Merged { tree, bytes })
}

enum Base {
    None,
    Tree(Node),
    Wrong,
}

fn base(file: &Node, path: &Path, sources: &mut Sources, faults: &mut Vec<Diagnostic>) -> Base {
    let Some(named) = file.get("extends") else {
        return Base::None;
    };
    let Some(text) = named.text().filter(|t| !t.is_empty() && !t.contains('\0')) else {
        // The section that reads it tells.
        return Base::None;
    };
    let target: PathBuf = path.parent().unwrap_or(Path::new("")).join(text);
    if same(&target, path) {
        faults.push(
            Diagnostic::error("extends", "the recipe extends itself")
                .at(named.span, "this is the file it stands in")
                .help("name the recipe to start from, or leave `extends` out"),
        );
        return Base::Wrong;
    }
    let Some((mut base, _)) = source::tree(
        &target,
        "base recipe",
        Origin::Base,
        Some(named.span),
        sources,
        faults,
    ) else {
        return Base::Wrong;
    };
    if let Some(second) = base.get("extends") {
        let next = target.parent().unwrap_or(Path::new(""));
        let next = next.join(second.text().unwrap_or_default());
        let (from, to) = (path.display(), target.display());
        let back = match () {
            () if same(&next, path) => Some(from.to_string()),
            () if same(&next, &target) => Some("itself".to_owned()),
            () => None,
        };
        if let Some(back) = back {
            let words = format!("{from} extends {to}, which extends {back}");
            faults.push(
                Diagnostic::error("extends", format!("`extends` leads in a loop: {words}"))
                    .at(second.span, "and back here")
                    .at(named.span, "from here")
                    .help("remove `extends` from the file that holds the common keys"),
            );
            return Base::Wrong;
        }
        faults.push(
            Diagnostic::error("extends", "a base recipe cannot extend another one")
                .at(second.span, "a second level")
                .at(named.span, "the first level")
                .help("put the keys of both into one file"),
        );
        return Base::Wrong;
    }
    if let Value::Map(entries) = &mut base.value {
        entries.retain(|e| e.key != "extends");
    }
    Base::Tree(base)
}

/// Whether both are one file that is there.
fn same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(a).is_some_and(|a| real(b) == Some(a))
}

/// Lays `over` over `under`: maps key by key, all else whole.
pub fn merge(under: Node, over: Node, path: &str) -> Node {
    let (under_entries, over_entries) = match (under.value, over.value) {
        (Value::Map(under), Value::Map(over)) => (under, over),
        (_, value) => return Node { value, ..over },
    };
    let mut entries: Vec<Entry> = under_entries;
    if let Some((_, group)) = EXCLUSIVE.iter().find(|(at, _)| *at == path)
        && over_entries.iter().any(|e| group.contains(&e.key.as_str()))
    {
        entries.retain(|e| !group.contains(&e.key.as_str()));
    }
    for entry in over_entries {
        match entries.iter_mut().find(|e| e.key == entry.key) {
            None => entries.push(entry),
            Some(old) => {
                let below = if path.is_empty() {
                    entry.key.clone()
                } else {
                    format!("{path}.{}", entry.key)
                };
                let under = std::mem::replace(
                    &mut old.value,
                    Node {
                        value: Value::Null,
                        span: entry.key_span,
                        origin: over.origin,
                    },
                );
                *old = Entry {
                    value: merge(under, entry.value, &below),
                    ..entry
                };
            }
        }
    }
    Node {
        value: Value::Map(entries),
        span: over.span,
        origin: over.origin,
    }
}

/// `a.b=value` as a tree.
fn parse_set(
    index: usize,
    set: &str,
    sources: &mut Sources,
    faults: &mut Vec<Diagnostic>,
) -> Option<Node> {
    let directory = std::env::current_dir().unwrap_or_default();
    let source = sources.add(format!("--set #{}", index + 1), set, directory);
    let all = Span {
        source,
        start: 0,
        end: set.len(),
    };
    let Some(equals) = set.find('=') else {
        faults.push(
            Diagnostic::error("set", "an override needs a key, `=` and a value")
                .at(all, "")
                .help("for example --set train.until.steps=50"),
        );
        return None;
    };
    let value = yaml::parse_value(sources, source, equals + 1, Origin::Set, faults)?;
    if matches!(&value.value, Value::Map(entries) if entries.is_empty()) {
        faults.push(
            Diagnostic::error("set", "an empty map changes nothing")
                .at(value.span, "")
                .help("name a key in it, for example --set train.until.steps=50"),
        );
        return None;
    }
    let mut node = value;
    let mut end = equals;
    for part in set[..equals].rsplit('.') {
        let key_span = Span {
            source,
            start: end - part.len(),
            end,
        };
        if part.trim().is_empty() {
            faults.push(
                Diagnostic::error("set", "an override's key is empty")
                    .at(all, "")
                    .help("for example --set train.until.steps=50"),
            );
            return None;
        }
        let span = Span {
            source,
            start: key_span.start,
            end: set.len(),
        };
        node = Node {
            value: Value::Map(vec![Entry {
                key: part.trim().to_string(),
                key_span,
                value: node,
            }]),
            span,
            origin: Origin::Set,
        };
        end = key_span.start.saturating_sub(1);
    }
    if node.get("extends").is_some() {
        faults.push(
            Diagnostic::error("set", "`extends` cannot be overridden")
                .at(all, "")
                .help("change it in the recipe"),
        );
        return None;
    }
    Some(node)
}
