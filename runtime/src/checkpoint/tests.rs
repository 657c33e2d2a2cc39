//! Checkpoints: round trips, every kind of damage, retention.

use super::save::{Open, Output};
use super::*;
use crate::blueprint::program::{Op, Program};
use crate::comm::{Comm, Member, local};
use crate::contract::checkpoint::{MANIFEST, Manifest, Point, TrainerState};
use crate::contract::{Mesh, Precision};
use crate::device::{Device, DeviceError, Frame, Real, Sizes};
use crate::sys::region::Memory;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Three regions of bytes that can be read and written and nothing else.
struct Store {
    real: Real,
    weights: Vec<u8>,
    moments: Vec<u8>,
}

impl Store {
    /// `fill` makes the values; 0 for none.
    fn new(real: Real, table: &[Piece], fill: u64) -> Store {
        let end = |region| {
            let ends = table.iter().filter(|p| p.region == region);
            ends.map(|p| p.offset + p.len).max().unwrap_or(0) * real.bytes()
        };
        let bytes = |region, salt: u64| {
            let mut bytes = vec![0; end(region)];
            if fill != 0 {
                let mut hasher = blake3::Hasher::new();
                hasher.update(&(fill + salt).to_le_bytes());
                hasher.finalize_xof().fill(&mut bytes);
            }
            bytes
        };
        Store {
            real,
            weights: bytes(Region::Weights, 0),
            moments: bytes(Region::Moments, 1 << 40),
        }
    }

    fn tensor(&self, piece: &Piece) -> &[u8] {
        let bytes = match piece.region {
            Region::Weights => &self.weights,
            _ => &self.moments,
        };
        &bytes[piece.offset * self.real.bytes()..][..piece.len * self.real.bytes()]
    }
}

impl Device for Store {
    fn real(&self) -> Real {
        self.real
    }
    fn isa(&self) -> &'static str {
        "none"
    }
    fn reserve(&mut self, _: &Sizes, _: Option<Memory>) -> Result<(), DeviceError> {
        Ok(())
    }
    fn launch(&mut self, _: &Program, _: &Op, _: Frame) -> Result<(), DeviceError> {
        Ok(())
    }
    fn read(&self, region: Region, offset: usize, out: &mut [u8]) {
        let from = match region {
            Region::Weights => &self.weights,
            _ => &self.moments,
        };
        out.copy_from_slice(&from[offset..][..out.len()]);
    }
    fn write(&mut self, region: Region, offset: usize, data: &[u8]) {
        let to = match region {
            Region::Weights => &mut self.weights,
            _ => &mut self.moments,
        };
        to[offset..][..data.len()].copy_from_slice(data);
    }
}

/// A small model's tensors; one is longer than a chunk, offsets have gaps.
fn table() -> Vec<Piece> {
    let shapes: [(&str, &[usize]); 4] = [
        ("wte.weight", &[300, 301]),
        ("h.0.ln_1.bias", &[7]),
        ("h.0.mlp.c_fc.weight", &[32, 8]),
        ("ln_f.weight", &[1]),
    ];
    let mut pieces = Vec::new();
    for (state, region, shift) in [
        (StateKind::Param, Region::Weights, 0),
        (StateKind::M, Region::Moments, 0),
        (StateKind::V, Region::Moments, 100_000),
    ] {
        let mut offset = shift;
        for (name, shape) in shapes {
            let len = shape.iter().product();
            pieces.push(Piece {
                name: name.into(),
                state,
                shape: shape.into(),
                region,
                offset,
                len,
            });
            offset += len.next_multiple_of(64);
        }
    }
    pieces
}

fn trainer() -> TrainerState {
    let config = serde_json::json!({
        "model": {"layers": 1, "hidden": 8, "heads": 2, "ffn": 32, "seq_len": 4, "vocab": 300, "norm_eps": 1e-5, "init_std": 0.02},
        "batch": {"micro": 1, "accumulation": 1, "global": 1},
        "train": {"until": {"steps": 3}, "seed": 1, "precision": "f32",
                  "optimizer": {"lr": 0.1, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0},
                  "schedule": {"kind": "cosine", "warmup": 1, "decay_steps": 3, "min_lr": 0.0},
                  "warmup_steps": 1, "eval_every": 0, "eval_sequences": 0},
        "data": {"path": "a", "format": "bytes", "validation": 0.0},
        "zero": 0
    });
    TrainerState {
        config: serde_json::from_value(config).unwrap(),
        mesh: Mesh::SERIAL,
        precision: Precision::F32,
        isa: "avx2".into(),
        applied: 12,
        consumed: 96,
        trained_seconds: 0.1 + 0.2,
        data: "blake3=aa bytes=9".into(),
    }
}

fn order<'a>(dir: &'a Path, step: u64, trainer: &'a TrainerState) -> Order<'a> {
    Order {
        dir,
        attempt: 2,
        step,
        parent: Some(Point {
            attempt: 1,
            step: 7,
        }),
        fingerprint: "plan",
        trainer,
        keep: 2,
    }
}

/// Saves the store of `fill` on `ranks` ranks as threads.
fn save_on(
    members: Vec<Member>,
    dir: &Path,
    step: u64,
    real: Real,
    saver: impl Fn(usize) -> Saver + Sync,
) -> Vec<Result<Saved, CheckpointError>> {
    let (table, trainer) = (table(), trainer());
    let store = Store::new(real, &table, step);
    let one = |mut member: Member| {
        let mut saver = saver(member.rank());
        saver.save(&order(dir, step, &trainer), &table, &store, &mut member)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .map(|member| scope.spawn(|| one(member)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn save_plain(dir: &Path, step: u64, ranks: usize, real: Real) -> Vec<Saved> {
    let members = local::group(ranks, 0).unwrap();
    let results = save_on(members, dir, step, real, |_| Saver::new());
    results.into_iter().map(|result| result.unwrap()).collect()
}

fn load_plain(dir: &Path, real: Real) -> Result<(Loaded, Store), CheckpointError> {
    let table = table();
    let mut store = Store::new(real, &table, 0);
    let loaded = load(dir, &table, &mut store, &mut || ())?;
    Ok((loaded, store))
}

#[test]
fn what_was_saved_is_loaded_to_the_bit_by_any_number_of_ranks() {
    for ranks in 1..=4 {
        for real in [Real::F32, Real::F64] {
            let root = tempfile::tempdir().unwrap();
            let saved = save_plain(root.path(), 12, ranks, real);
            let dir = root.path().join("step-12");
            assert!(saved.iter().all(|s| s.path == dir && s.warning.is_none()));
            let (loaded, store) = load_plain(&dir, real).unwrap();
            let original = Store::new(real, &table(), 12);
            for piece in &table() {
                assert!(
                    store.tensor(piece) == original.tensor(piece),
                    "{}",
                    piece.name
                );
            }
            let values: usize = table().iter().map(|piece| piece.len).sum();
            assert!(saved[0].bytes > (values * real.bytes()) as u64);
            assert_eq!(loaded.bytes, saved[0].bytes);
            let manifest = &loaded.manifest;
            assert_eq!(manifest.trainer, Some(trainer()));
            assert_eq!((manifest.attempt, manifest.step), (2, 12));
            assert_eq!(manifest.pieces.len(), table().len());
            // Nothing but the manifest and the files it names.
            let files = fs::read_dir(&dir).unwrap().count();
            assert_eq!(files, 1 + manifest.files.len());
            assert!(ranks == 1 || manifest.files.len() > 2, "the work is shared");
        }
    }
}

#[test]
fn files_are_safetensors_to_others() {
    let root = tempfile::tempdir().unwrap();
    save_plain(root.path(), 5, 2, Real::F32);
    let manifest = read_manifest(&root.path().join("step-5")).unwrap();
    let store = Store::new(Real::F32, &table(), 5);
    let mut seen = 0;
    for file in &manifest.files {
        let bytes = fs::read(root.path().join("step-5").join(&file.path)).unwrap();
        assert_eq!(
            blake3::hash(&bytes).to_hex().as_str(),
            file.blake3.as_deref().unwrap()
        );
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        for piece in &table() {
            let name = tensors::tensor_name(&piece.name, piece.state);
            if let Ok(view) = tensors.tensor(&name) {
                assert_eq!(view.shape(), piece.shape);
                assert_eq!(view.dtype(), safetensors::Dtype::F32);
                assert!(view.data() == store.tensor(piece), "{name}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, table().len());
}

#[test]
fn parameters_alone_are_loaded_without_the_optimizers_files() {
    let root = tempfile::tempdir().unwrap();
    save_plain(root.path(), 5, 1, Real::F32);
    let dir = root.path().join("step-5");
    let mut table = table();
    table.retain(|piece| piece.state == StateKind::Param);
    let mut store = Store::new(Real::F32, &table, 0);
    let loaded = load(&dir, &table, &mut store, &mut || ()).unwrap();
    let original = Store::new(Real::F32, &table, 5);
    for piece in &table {
        assert!(store.tensor(piece) == original.tensor(piece));
    }
    assert_eq!(
        loaded.bytes,
        fs::metadata(dir.join("model-0.safetensors")).unwrap().len()
    );
}

/// The reason for which the checkpoint is refused after `harm` has been done to its directory.
fn refusal(harm: impl FnOnce(&Path)) -> String {
    let root = tempfile::tempdir().unwrap();
    save_plain(root.path(), 3, 1, Real::F32);
    let dir = root.path().join("step-3");
    load_plain(&dir, Real::F32).unwrap();
    harm(&dir);
    match load_plain(&dir, Real::F32) {
        Err(error @ CheckpointError::Unreadable { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a damaged checkpoint was loaded"),
    }
}

const OPTIMIZER: &str = "optimizer-0.safetensors";

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn every_kind_of_damage_is_refused_with_its_reason() {
    let expect = |want: &str, harm: &dyn Fn(&Path)| {
        let reason = refusal(harm);
        assert!(reason.contains(want), "{want}: {reason}");
    };
    expect("optimizer-0.safetensors has 1000 of", &|dir| {
        let file = fs::OpenOptions::new().write(true).open(dir.join(OPTIMIZER));
        file.unwrap().set_len(1000).unwrap();
    });
    expect("bytes: it is torn or altered", &|dir| {
        let file = fs::OpenOptions::new()
            .append(true)
            .open(dir.join(OPTIMIZER));
        file.unwrap().write_all(b"x").unwrap();
    });
    expect("the checksum of m.wte.weight does not match", &|dir| {
        flip(&dir.join(OPTIMIZER), 300_000);
    });
    expect("optimizer-0.safetensors: its checksum", &|dir| {
        flip(&dir.join(OPTIMIZER), 20);
    });
    expect("the file optimizer-0.safetensors is missing", &|dir| {
        fs::remove_file(dir.join(OPTIMIZER)).unwrap();
    });
    expect("cannot read manifest.json", &|dir| {
        fs::remove_file(dir.join(MANIFEST)).unwrap();
    });
    expect("cannot read manifest.json", &|dir| {
        fs::remove_dir_all(dir).unwrap();
    });
    expect("manifest.json: its checksum is missing", &|dir| {
        let manifest = read_manifest(dir).unwrap();
        fs::write(
            dir.join(MANIFEST),
            serde_json::to_string(&manifest).unwrap(),
        )
        .unwrap();
    });
    expect("manifest.json: EOF", &|dir| {
        let text = fs::read_to_string(dir.join(MANIFEST)).unwrap();
        fs::write(dir.join(MANIFEST), &text[..text.len() / 2]).unwrap();
    });
    expect("is not text", &|dir| {
        fs::write(dir.join(MANIFEST), [0xff]).unwrap();
    });
    let alter = |change: fn(&mut Manifest)| {
        move |dir: &Path| {
            let mut manifest = read_manifest(dir).unwrap();
            change(&mut manifest);
            fs::write(dir.join(MANIFEST), manifest.to_text().unwrap()).unwrap();
        }
    };
    expect(
        "its schema is `haul.checkpoint/9`",
        &alter(|m| m.schema = "haul.checkpoint/9".into()),
    );
    expect(
        "is not a file beside the manifest",
        &alter(|m| m.files[0].path = "../x".into()),
    );
    expect("which is not listed", &alter(|m| m.files.truncate(1)));
    expect(
        "do not make it whole",
        &alter(|m| m.pieces[0].range[1] -= 1),
    );
    expect(
        "outside of it or taken",
        &alter(|m| m.pieces[0].offset = u64::MAX - 3),
    );
    expect("does not match", &alter(|m| m.pieces[0].blake3.clear()));
}

#[test]
fn another_model_or_precision_is_not_called_damage() {
    let root = tempfile::tempdir().unwrap();
    save_plain(root.path(), 3, 1, Real::F32);
    let dir = root.path().join("step-3");
    let say = |real, table: &[Piece]| {
        let mut store = Store::new(real, table, 0);
        match load(&dir, table, &mut store, &mut || ()) {
            Err(error @ CheckpointError::Differs { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(say(Real::F64, &table()).contains("is of F32, the device's reals are F64"));
    let mut wider = table();
    wider[2].shape = vec![8, 32];
    assert!(
        say(Real::F32, &wider).contains("h.0.mlp.c_fc.weight is [32, 8], the model's is [8, 32]")
    );
    let mut renamed = table();
    renamed[0].name = "other".into();
    assert!(say(Real::F32, &renamed).contains("has a tensor wte.weight"));
    let mut more = table();
    more.push(Piece {
        name: "more".into(),
        ..more[0].clone()
    });
    assert!(say(Real::F32, &more).contains("has no tensor more"));
}

/// A file that is full after some bytes, counted over all files of a rank.
struct Small {
    file: fs::File,
    left: std::sync::Arc<AtomicUsize>,
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let count = self.file.write(&bytes[..bytes.len().min(left)])?;
        self.left.fetch_sub(count, Ordering::Relaxed);
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Small {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}

fn small_disk(bytes: usize) -> Saver {
    let left = std::sync::Arc::new(AtomicUsize::new(bytes));
    let open: Open = Box::new(move |path| {
        Ok(Box::new(Small {
            file: fs::File::create(path)?,
            left: left.clone(),
        }))
    });
    Saver::with_output(open)
}

#[test]
fn a_full_disk_is_told_on_every_rank_and_leaves_the_older_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    save_plain(root.path(), 1, 3, Real::F32);
    for bytes in [0, 10, 1000, 300_000] {
        let members = local::group(3, 0).unwrap();
        let results = save_on(members, root.path(), 2, Real::F32, |rank| match rank {
            1 => small_disk(bytes),
            _ => Saver::new(),
        });
        for (rank, result) in results.into_iter().enumerate() {
            let error = result.unwrap_err();
            match (&error, rank) {
                (CheckpointError::Write { .. }, 1) => {
                    assert!(error.to_string().contains("No space left"), "{error}");
                }
                (CheckpointError::Peer { rank: 1, .. }, 0 | 2) => {}
                _ => panic!("rank {rank}: {error}"),
            }
        }
        assert!(
            !root.path().join("step-2").exists(),
            "partial files are removed"
        );
        load_plain(&root.path().join("step-1"), Real::F32).unwrap();
    }
    save_plain(root.path(), 2, 3, Real::F32);
    load_plain(&root.path().join("step-2"), Real::F32).unwrap();
}

#[test]
fn a_rank_that_dies_between_its_receipt_and_the_manifest_leaves_no_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let (table, trainer) = (table(), trainer());
    let store = Store::new(Real::F32, &table, 4);
    let order = order(root.path(), 4, &trainer);
    let mut members = local::group(2, 0).unwrap();
    let mut doomed = members.pop().unwrap();
    let mut rank0 = members.pop().unwrap();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The collective in which rank 0 tells that the place is free.
            doomed.all_gather(&[0.0], &mut [0.0; 2]).unwrap();
            let written = Saver::new().write_share(&order, &table, &store, &mut doomed);
            assert!(written.unwrap() > 0);
            drop(doomed);
        });
        Saver::new().save(&order, &table, &store, &mut rank0)
    });
    assert!(matches!(error, Err(CheckpointError::Comm(_))), "{error:?}");
    let dir = root.path().join("step-4");
    assert!(dir.join("receipt-0.json").exists() && dir.join("receipt-1.json").exists());
    let error = load_plain(&dir, Real::F32).err().unwrap();
    assert!(
        matches!(error, CheckpointError::Unreadable { .. }),
        "{error}"
    );
}

#[test]
fn the_newest_are_kept_and_failed_saves_swept() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("step-2")).unwrap();
    fs::write(root.path().join("step-2/model-0.safetensors"), "half").unwrap();
    fs::write(root.path().join("notes.txt"), "kept").unwrap();
    // Of another process that went on from here: not this one's to remove.
    fs::create_dir(root.path().join("step-99")).unwrap();
    for step in [1, 5, 9, 20] {
        save_plain(root.path(), step, 2, Real::F32);
    }
    let entries = fs::read_dir(root.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["notes.txt", "step-20", "step-9", "step-99"]);
    load_plain(&root.path().join("step-9"), Real::F32).unwrap();
}

#[test]
fn a_committed_checkpoint_is_never_written_over() {
    let root = tempfile::tempdir().unwrap();
    save_plain(root.path(), 6, 2, Real::F32);
    let members = local::group(2, 0).unwrap();
    let results = save_on(members, root.path(), 6, Real::F32, |_| Saver::new());
    assert!(matches!(results[0], Err(CheckpointError::Taken { .. })));
    assert!(matches!(
        results[1],
        Err(CheckpointError::Peer { rank: 0, .. })
    ));
    load_plain(&root.path().join("step-6"), Real::F32).unwrap();
}
