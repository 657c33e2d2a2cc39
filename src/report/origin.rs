//! What ran, and in which environment: provenance.json by name, variables by allow-list.

use super::records::Records;
use serde::Serialize;
use serde_json::Value;

/// Names of variables whose values are shown; all others are named only.
const SHOWN: [&str; 25] = [
    "CUDA_VISIBLE_DEVICES",
    "FI_",
    "GPU_MAX_HW_QUEUES",
    "HAUL_",
    "HIP_VISIBLE_DEVICES",
    "HSA_",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LOADEDMODULES",
    "MALLOC_",
    "MIOPEN_",
    "MPICH_",
    "NCCL_",
    "OMP_",
    "OPENBLAS_NUM_THREADS",
    "PATH",
    "RAYON_NUM_THREADS",
    "RCCL_",
    "ROCR_VISIBLE_DEVICES",
    "RUST_BACKTRACE",
    "SLURM_",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
];
/// A name with one of these in it is never shown with its value.
const SECRET: [&str; 8] = [
    "AUTH",
    "CREDENTIAL",
    "COOKIE",
    "KEY",
    "PASS",
    "PWD",
    "SECRET",
    "TOKEN",
];
/// In which order facts are told.
const ORDER: [&str; 10] = [
    "version",
    "git commit",
    "git changed",
    "binary",
    "command",
    "recipe",
    "directory",
    "host",
    "user",
    "time",
];
/// Longest value that is shown whole, in characters.
const LONGEST: usize = 240;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Origin {
    pub facts: Vec<(String, String)>,
    pub environment: Vec<Setting>,
}

/// A variable; its value is absent when it is not on the allow-list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub name: String,
    pub value: Option<String>,
}

pub fn origin(records: &Records) -> Origin {
    let mut origin = Origin::default();
    if let Some(Value::Object(map)) = &records.provenance {
        for (name, value) in map {
            match (name.as_str(), value) {
                ("environment" | "env", Value::Object(variables)) => {
                    for (name, value) in variables {
                        origin.set(name, &plain(value));
                    }
                }
                ("schema", _) => {}
                // The copy of the binary is named by its hash; where it stood says nothing elsewhere.
                ("binary", Value::String(path)) => {
                    let name = path.rsplit('/').next().unwrap_or(path);
                    origin.fact("binary", name);
                }
                _ => origin.flatten(name, value),
            }
        }
    }
    // What it was first, then where it came from; what is not listed keeps its place after that.
    let place = |name: &str| ORDER.iter().position(|n| *n == name).unwrap_or(ORDER.len());
    origin.facts.sort_by_key(|(name, _)| place(name));
    if let Some(plan) = records.plan() {
        for variable in &plan.environment.variables {
            origin.set(&variable.name, &variable.value);
        }
        origin.fact("plan fingerprint", &plan.fingerprint);
    }
    origin
}

impl Origin {
    fn flatten(&mut self, name: &str, value: &Value) {
        match value {
            Value::Null => {}
            Value::Object(map) => {
                for (key, value) in map {
                    self.flatten(&format!("{name} {key}"), value);
                }
            }
            other => self.fact(&name.replace('_', " "), &plain(other)),
        }
    }

    fn fact(&mut self, name: &str, value: &str) {
        let value = match secret(name) {
            true => "(not shown)".to_owned(),
            false => shortened(value),
        };
        if !value.is_empty() && !self.facts.iter().any(|(known, _)| known == name) {
            self.facts.push((name.to_owned(), value));
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        // Letters of the list that end in _ are prefixes.
        let listed = SHOWN.iter().any(|shown| match shown.ends_with('_') {
            true => name.starts_with(shown),
            false => name == *shown,
        });
        self.environment.retain(|setting| setting.name != name);
        self.environment.push(Setting {
            name: name.to_owned(),
            value: (listed && !secret(name)).then(|| shortened(value)),
        });
        self.environment.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

fn secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|word| name.contains(word))
}

/// A value in one line; in lists of words, `NAME=value` with a secret name loses its value.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let text = plain(item);
                match text.split_once('=') {
                    Some((name, _)) if secret(name) => format!("{name}=(not shown)"),
                    _ => text,
                }
            })
            .collect::<Vec<_>>()
            .join(" "),
        other => other.to_string(),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_named_and_never_shown() {
        let provenance = serde_json::json!({
            "schema": "x",
            "version": "0.1.0",
            "git": {"commit": "abc", "dirty": true},
            "wandb_api_key": "s3cret",
            "arguments": ["run", "--set", "environment.variables.HF_TOKEN=s3cret", "r.yaml"],
            "environment": {
                "OMP_NUM_THREADS": "4", "SLURM_JWT_TOKEN": "s3cret", "AWS_SECRET": "s3cret", "HOME": "s3cret",
                "LANGUAGE_MODEL": "s3cret",
            },
        });
        let records = Records {
            provenance: Some(provenance),
            ..Records::default()
        };
        let origin = origin(&records);
        let text = format!("{origin:?}");
        assert!(!text.contains("s3cret"), "{text}");
        assert!(
            origin.facts.contains(&("git commit".into(), "abc".into())),
            "{text}"
        );
        let shown: Vec<_> = origin
            .environment
            .iter()
            .filter(|s| s.value.is_some())
            .map(|s| s.name.as_str())
            .collect();
        assert_eq!(shown, ["OMP_NUM_THREADS"]);
        assert_eq!(origin.environment.len(), 5);
    }
}
