//! The manifest that makes a checkpoint valid. Pure: no I/O here.

use super::TrainConfig;
use super::mesh::Mesh;
use serde::{Deserialize, Serialize};

pub const SCHEMA: &str = "haul.checkpoint/1";
/// Name of the file that makes a checkpoint directory valid.
pub const MANIFEST: &str = "manifest.json";

/// A point in the history of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    pub attempt: u32,
    pub step: u64,
}

/// `checkpoints/<attempt>/step-<s>/manifest.json`, committed last and by exclusive creation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: String,
    pub attempt: u32,
    pub step: u64,
    /// Checkpoint this attempt started from.
    pub parent: Option<Point>,
    /// Fingerprint of the plan that wrote it.
    pub fingerprint: String,
    /// Every file with its size and checksum, relative to the manifest.
    pub files: Vec<FileEntry>,
    /// Absent for foreign programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer: Option<TrainerState>,
    /// What stands where in the files; none for foreign programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<PieceEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub path: String,
    pub bytes: u64,
    /// blake3 of the whole file, hex; absent for foreign programs, whose files are known by size only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

/// What the bundled trainer needs besides tensors to continue to the bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Configuration it was trained with.
    pub config: TrainConfig,
    pub mesh: Mesh,
    pub precision: super::Precision,
    /// Name of the instruction-set path the arithmetic ran on, such as `avx2`.
    pub isa: String,
    /// Optimizer steps applied (skipped ones not counted): Adam's t.
    pub applied: u64,
    /// Samples consumed by training, the whole data state.
    pub consumed: u64,
    /// Seconds of training in all attempts so far, for `until: {time}`.
    pub trained_seconds: f64,
    /// Fingerprint of the data: hash, bytes, format, sequence length, seed, split.
    pub data: String,
}

/// What a tensor of the optimizer's state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateKind {
    /// The parameter itself.
    Param,
    /// First moment.
    M,
    /// Second moment.
    V,
}

/// A range of a logical tensor and where its values are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceEntry {
    /// Canonical name of the parameter.
    pub name: String,
    pub state: StateKind,
    /// Logical, unpadded, uncut.
    pub shape: Vec<usize>,
    /// Which tensor parallel cut of the tensor.
    pub cut: CutOf,
    /// First and past-the-last element, flat, within the cut.
    pub range: [usize; 2],
    /// `F32` or `F64`, little-endian.
    pub dtype: String,
    /// One of [`Manifest::files`].
    pub file: String,
    /// Of the first byte, from the start of the file.
    pub offset: u64,
    /// blake3 of the piece's bytes, hex.
    pub blake3: String,
}

/// Cut `index` of `of`; the whole tensor is 0 of 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutOf {
    pub index: usize,
    pub of: usize,
}

impl CutOf {
    pub const WHOLE: CutOf = CutOf { index: 0, of: 1 };
}

/// Stands before the checksum at the end of a manifest's text.
const CHECK: &str = ",\n  \"check\": \"";
const END: &str = "\"\n}\n";

impl Manifest {
    /// JSON whose last field is the checksum of all text before it, so that a torn or flipped manifest is known as such.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        // Pretty-printed, an object ends in these two characters.
        text.truncate(text.len() - "\n}".len());
        let check = blake3::hash(text.as_bytes()).to_hex();
        text.push_str(CHECK);
        text.push_str(&check);
        text.push_str(END);
        Ok(text)
    }

    /// The manifest, or in words why its text is none. Only manifests of foreign programs may lack the checksum.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let checked = text.rfind(CHECK).map(|at| {
            let (body, rest) = text.split_at(at);
            let found = rest[CHECK.len()..].strip_suffix(END);
            found == Some(blake3::hash(body.as_bytes()).to_hex().as_str())
        });
        if checked == Some(false) {
            return Err("its own checksum does not match: it is torn or altered".into());
        }
        let manifest: Manifest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if manifest.schema != SCHEMA {
            let schema = &manifest.schema;
            return Err(format!(
                "its schema is `{schema}`, this program reads `{SCHEMA}`"
            ));
        }
        if checked.is_none() && (manifest.trainer.is_some() || !manifest.pieces.is_empty()) {
            return Err("its checksum is missing: it is torn or altered".into());
        }
        Ok(manifest)
    }

    /// The point in history this checkpoint is.
    pub fn point(&self) -> Point {
        Point {
            attempt: self.attempt,
            step: self.step,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trainers_state_may_stand_last() {
        let config = serde_json::json!({
            "model": {"layers": 1, "hidden": 8, "heads": 2, "ffn": 32, "seq_len": 4, "vocab": 256,
                      "norm_eps": 1e-5, "init_std": 0.02},
            "batch": {"micro": 1, "accumulation": 1, "global": 1},
            "train": {"until": {"steps": 3}, "seed": 1, "precision": "f32",
                      "optimizer": {"lr": 0.1, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0},
                      "schedule": {"kind": "cosine", "warmup": 1, "decay_steps": 3, "min_lr": 0.0},
                      "warmup_steps": 1, "eval_every": 0, "eval_sequences": 0},
            "data": {"path": "a", "format": "bytes", "validation": 0.0},
            "zero": 0
        });
        let trainer = TrainerState {
            config: serde_json::from_value(config).unwrap(),
            mesh: Mesh::SERIAL,
            precision: crate::contract::Precision::F32,
            isa: "avx2".into(),
            applied: 3,
            consumed: 3,
            trained_seconds: 1.1,
            data: "d".into(),
        };
        let manifest = Manifest {
            trainer: Some(trainer),
            ..foreign()
        };
        let text = manifest.to_text().unwrap();
        assert_eq!(Manifest::parse(&text).unwrap(), manifest);
    }

    fn foreign() -> Manifest {
        Manifest {
            schema: SCHEMA.into(),
            attempt: 3,
            step: 40,
            parent: Some(Point {
                attempt: 2,
                step: 30,
            }),
            fingerprint: "f".into(),
            files: vec![FileEntry {
                path: "state.pt".into(),
                bytes: 17,
                blake3: None,
            }],
            trainer: None,
            pieces: Vec::new(),
        }
    }

    #[test]
    fn text_and_manifest_are_inverse_and_plain_json_of_foreign_programs_is_read() {
        let manifest = foreign();
        let text = manifest.to_text().unwrap();
        assert_eq!(Manifest::parse(&text).unwrap(), manifest);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["check"].as_str().unwrap().len(), 64);
        let plain = serde_json::to_string(&manifest).unwrap();
        assert_eq!(Manifest::parse(&plain).unwrap(), manifest);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let manifest = Manifest {
            pieces: vec![PieceEntry {
                name: "wte.weight".into(),
                state: StateKind::M,
                shape: vec![2, 3],
                cut: CutOf::WHOLE,
                range: [0, 6],
                dtype: "F32".into(),
                file: "state.pt".into(),
                offset: 8,
                blake3: "00".into(),
            }],
            ..foreign()
        };
        let text = manifest.to_text().unwrap();
        for len in 0..text.len() {
            assert!(Manifest::parse(&text[..len]).is_err(), "{len}");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(flipped) = String::from_utf8(bytes) {
                assert!(Manifest::parse(&flipped).is_err(), "{at}");
            }
        }
        let newer = Manifest {
            schema: "haul.checkpoint/2".into(),
            ..manifest
        };
        let error = Manifest::parse(&newer.to_text().unwrap()).unwrap_err();
        assert!(error.contains("haul.checkpoint/2"), "{error}");
    }
}
