//! House rules as tests: layers, file lengths, where unsafe may stand, what the map names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Who may import whom in the orchestrator: a module and the layer it stands on. Lower layers only,
/// and within layer 2 and 1 the pairs of [`BESIDE`].
const LAYERS: [(&str, u8); 14] = [
    ("cli", 4),
    ("actions", 3),
    ("scheduler", 2),
    ("store", 2),
    ("render", 2),
    ("report", 2),
    ("rank", 2),
    ("launch", 2),
    ("ui", 1),
    ("plan", 1),
    ("recipe", 1),
    ("machine", 1),
    ("supervise", 1),
    ("control", 1),
];

/// Imports within a layer: the plan is made from recipe and profile, records are read through the store.
const BESIDE: [(&str, &str); 10] = [
    ("plan", "ui"),
    ("plan", "recipe"),
    ("plan", "machine"),
    ("machine", "recipe"),
    ("scheduler", "store"),
    ("report", "store"),
    ("rank", "store"),
    ("launch", "store"),
    ("launch", "rank"),
    ("supervise", "control"),
];

/// The same for the trainer: module and the modules it may use.
const FLOORS: [(&str, &[&str]); 11] = [
    ("contract", &[]),
    ("sys", &[]),
    ("blueprint", &["contract", "model"]),
    ("model", &["contract", "blueprint"]),
    ("device", &["contract", "blueprint", "sys"]),
    ("comm", &["contract", "blueprint", "sys", "device"]),
    ("data", &["contract", "sys"]),
    ("optim", &["contract", "blueprint", "sys"]),
    (
        "checkpoint",
        &["contract", "blueprint", "sys", "device", "comm"],
    ),
    (
        "train",
        &[
            "contract",
            "blueprint",
            "sys",
            "model",
            "device",
            "comm",
            "data",
            "optim",
            "checkpoint",
        ],
    ),
    (
        "worker",
        &[
            "contract",
            "blueprint",
            "sys",
            "model",
            "device",
            "comm",
            "data",
            "optim",
            "checkpoint",
            "train",
        ],
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files under `dir` with one of the endings, with their text.
fn files(dir: &str, endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![root().join(dir)];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if endings
                .iter()
                .any(|ending| path.to_string_lossy().ends_with(ending))
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                found.push((
                    path.strip_prefix(root()).unwrap_or(&path).to_path_buf(),
                    text,
                ));
            }
        }
    }
    found.sort();
    found
}

/// The module a source file belongs to: its first folder (or stem) under `src`.
fn module(path: &Path, src: &str) -> String {
    let inner = path.strip_prefix(src).unwrap_or(path);
    inner
        .components()
        .next()
        .map(|c| {
            c.as_os_str()
                .to_string_lossy()
                .trim_end_matches(".rs")
                .to_owned()
        })
        .unwrap_or_default()
}

/// Modules of the crate that a text names as `crate::x`, or in `use crate::{x::.., y}`.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let names: Vec<&str> = match rest.strip_prefix('{') {
            Some(group) => top_level(group),
            None => vec![rest],
        };
        for name in names {
            let word: String = name
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            found.push(word);
        }
    }
    found
}

/// The items of a `{..}` group at its own depth.
fn top_level(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                items.push(&group[start..at]);
                return items;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items
}

#[test]
fn modules_use_only_lower_layers() {
    let layer: BTreeMap<&str, u8> = LAYERS.into();
    let mut faults = Vec::new();
    for (path, text) in files("src", &[".rs"]) {
        let own = module(&path, "src");
        let Some(mine) = layer.get(own.as_str()) else {
            continue;
        };
        for used in imports(&text) {
            let Some(theirs) = layer.get(used.as_str()) else {
                continue;
            };
            let beside = BESIDE.contains(&(own.as_str(), used.as_str()));
            if used != own && theirs >= mine && !beside {
                faults.push(format!(
                    "{}: `{own}` (layer {mine}) uses `{used}` (layer {theirs})",
                    path.display()
                ));
            }
        }
        if text.contains("haul_runtime::") && !matches!(own.as_str(), "cli") {
            for (at, _) in text.match_indices("haul_runtime::") {
                let rest = &text[at + "haul_runtime::".len()..];
                let pure = ["contract", "blueprint", "{"]
                    .iter()
                    .any(|door| rest.starts_with(door));
                // Starting a child that dies with its parent needs a raw system call.
                let spawning =
                    rest.starts_with("sys::spawn") && matches!(own.as_str(), "rank" | "launch");
                if !pure && !spawning {
                    faults.push(format!(
                        "{}: reaches into the trainer: {}",
                        path.display(),
                        &rest[..rest.len().min(30)]
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_trainer_keeps_its_floors() {
    let allowed: BTreeMap<&str, &[&str]> = FLOORS.into();
    let mut faults = Vec::new();
    for (path, text) in files("runtime/src", &[".rs"]) {
        let own = module(&path, "runtime/src");
        let Some(lower) = allowed.get(own.as_str()) else {
            continue;
        };
        // Proofs put floors together; what ships does not.
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        for used in imports(shipped) {
            if used != own
                && allowed.contains_key(used.as_str())
                && !lower.contains(&used.as_str())
                && !path.ends_with("tests.rs")
            {
                faults.push(format!("{}: `{own}` uses `{used}`", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn files_have_one_subject_said_first_and_stay_short() {
    let mut faults = Vec::new();
    let sources = [
        "src",
        "runtime/src",
        "runtime/benches",
        "runtime/tests",
        "tests",
    ];
    for (path, text) in sources.iter().flat_map(|dir| files(dir, &[".rs"])) {
        if !text.starts_with("//! ") && !text.starts_with("//!\n") {
            faults.push(format!(
                "{}: does not begin with its subject (//!)",
                path.display()
            ));
        }
        let lines = text.lines().count();
        if lines > 600 {
            faults.push(format!(
                "{}: {lines} lines, 600 are allowed",
                path.display()
            ));
        }
        let name = path
            .file_stem()
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default();
        if [
            "utils", "util", "common", "helpers", "helper", "types", "misc",
        ]
        .contains(&name.as_str())
        {
            faults.push(format!("{}: a name that says nothing", path.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn unsafe_code_stands_in_three_places_only() {
    let mut faults = Vec::new();
    for (path, text) in files("src", &[".rs"])
        .into_iter()
        .chain(files("runtime/src", &[".rs"]))
    {
        let allowed = ["runtime/src/device", "runtime/src/comm", "runtime/src/sys"]
            .iter()
            .any(|dir| path.starts_with(dir));
        if !allowed && text.contains("allow(unsafe_code)") {
            faults.push(format!("{}: allows unsafe code", path.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn templates_quote_by_default() {
    let templates = files("templates", &[".tera"]);
    assert!(!templates.is_empty(), "no templates found");
    for (path, text) in templates {
        for line in text.lines() {
            let squeezed: String = line.chars().filter(|c| !c.is_whitespace()).collect();
            assert!(
                !squeezed.contains("|safe"),
                "{}: `| safe` turns quoting off",
                path.display()
            );
        }
    }
}

#[test]
fn yaml_is_read_in_one_file() {
    for (path, text) in files("src", &[".rs"]) {
        let reads = text.contains("serde_yaml::") || text.contains("granit_parser::");
        assert!(
            !reads || path.ends_with("src/recipe/yaml.rs"),
            "{} reads YAML",
            path.display()
        );
    }
}

#[test]
fn the_map_names_every_module() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut missing = Vec::new();
    for (path, _) in files("src", &[".rs"])
        .into_iter()
        .chain(files("runtime/src", &[".rs"]))
    {
        if path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let stem = path
            .file_stem()
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default();
        let name = match stem.as_str() {
            "lib" | "main" | "tests" => continue,
            "mod" => path
                .parent()
                .and_then(Path::file_name)
                .map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default(),
            other => other.to_owned(),
        };
        let named = map
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .any(|word| word == name);
        if !named {
            missing.push(path.display().to_string());
        }
    }
    assert!(
        missing.is_empty(),
        "ARCHITECTURE.md does not name:\n{}",
        missing.join("\n")
    );
}

#[test]
fn the_tree_speaks_of_itself_alone() {
    let mut faults = Vec::new();
    let kinds = [
        ".rs", ".md", ".tera", ".yaml", ".sh", ".toml", ".py", ".json",
    ];
    let mut all: Vec<_> = ["src", "runtime", "templates", "recipes", "docs", "tests"]
        .iter()
        .flat_map(|dir| files(dir, &kinds))
        .collect();
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "Cargo.toml",
    ] {
        if let Ok(text) = std::fs::read_to_string(root().join(name)) {
            all.push((PathBuf::from(name), text));
        }
    }
    for (path, text) in all {
        if path.ends_with("tidy.rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let machine = ["/work/", "../shared", "/root/"]
                .iter()
                .any(|word| line.contains(word));
            let unfinished = ["TODO", "FIXME", "XXX"]
                .iter()
                .any(|word| line.contains(word));
            if machine || unfinished {
                faults.push(format!(
                    "{}:{}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn environment_variables_are_read_in_few_places() {
    let allowed = [
        "src/cli",
        "src/actions",
        "src/rank",
        "src/launch",
        "src/ui",
        "src/scheduler",
        "src/recipe",
    ];
    for (path, text) in files("src", &[".rs"]) {
        if path.ends_with("tests.rs") {
            continue;
        }
        let reads = text.contains("std::env::var") || text.contains("env::var(");
        assert!(
            !reads || allowed.iter().any(|dir| path.starts_with(dir)),
            "{} reads the environment",
            path.display()
        );
    }
}
