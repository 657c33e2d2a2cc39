//! What a run came from: version, host, command line, commit of the recipe, environment by allow-list.

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

pub const SCHEMA: &str = "haul.provenance/1";

/// Variables worth keeping; others may hold secrets.
const ALLOWED: &[&str] = &[
    "HAUL_FAULTS",
    "HAUL_MACHINE",
    "HAUL_ROOT",
    "LANG",
    "LD_LIBRARY_PATH",
    "MALLOC_ARENA_MAX",
    "OMP_NUM_THREADS",
    "PATH",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
];

/// Of this process, submitting the recipe at `recipe`.
pub fn of_this_process(recipe: &Path) -> Value {
    let environment: serde_json::Map<String, Value> = ALLOWED
        .iter()
        .filter_map(|name| {
            let value = std::env::var_os(name)?;
            Some(((*name).to_owned(), value.to_string_lossy().into()))
        })
        .collect();
    let lossy = |path: std::io::Result<std::path::PathBuf>| {
        path.ok().map(|path| path.to_string_lossy().into_owned())
    };
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    let user = nix::unistd::User::from_uid(nix::unistd::getuid());
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "time": chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
        "host": host.ok(),
        "user": user.ok().flatten().map(|user| user.name),
        "directory": lossy(std::env::current_dir()),
        "command": arguments,
        "recipe": lossy(std::path::absolute(recipe)),
        "git": git(recipe.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."))),
        "environment": environment,
    })
}

/// Commit of the directory and whether its tracked files differ; null outside a repository or without git.
fn git(directory: &Path) -> Value {
    let ask = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(directory)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match ask(&["rev-parse", "HEAD"]) {
        Some(commit) => {
            let changed = ask(&["status", "--porcelain", "--untracked-files=no", "--", "."]);
            json!({ "commit": commit, "changed": changed.map(|text| !text.is_empty()) })
        }
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_variables_are_kept() {
        let provenance = of_this_process(Path::new("recipe.yaml"));
        let environment = provenance["environment"].as_object().unwrap();
        assert!(
            environment
                .keys()
                .all(|name| ALLOWED.contains(&name.as_str()))
        );
        assert_eq!(provenance["environment"]["CARGO_MANIFEST_DIR"], Value::Null);
        assert!(
            provenance["recipe"]
                .as_str()
                .unwrap()
                .ends_with("/recipe.yaml")
        );
    }
}
