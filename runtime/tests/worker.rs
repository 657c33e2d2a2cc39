//! The worker as real processes: stop and resume to the bit, saving when asked, exit codes, sampling.
//!
//! Ranks are this very test binary, started again with a variable set that makes [`worker_process`] a worker.
#![allow(clippy::unwrap_used)]

use haul_runtime::blueprint::Sabotage;
use haul_runtime::contract::metrics::{Kind, Line};
use haul_runtime::worker::{Mode, SampleArgs, WorkerArgs, main};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

const CHILD: &str = "HAUL_TEST_WORKER";

/// Not a test by itself: the body of a rank.
#[test]
fn worker_process() {
    let Ok(mode) = std::env::var(CHILD) else {
        return;
    };
    let plan = std::env::var_os("HAUL_TEST_PLAN").map(PathBuf::from);
    let mode = match mode.as_str() {
        "train" => Mode::Train,
        "peak" => Mode::Peak { threads: 1 },
        "dump" => Mode::DumpGradients {
            step: 2,
            out: std::env::var_os("HAUL_TEST_OUT")
                .map(PathBuf::from)
                .unwrap(),
        },
        checkpoint => Mode::Sample(SampleArgs {
            checkpoint: checkpoint.into(),
            prompt: "the ".into(),
            tokens: 40,
            temperature: 0.8,
            top_k: 5,
            seed: 3,
            threads: 1,
        }),
    };
    let args = WorkerArgs {
        plan,
        mode,
        memory: true,
        sabotage: Sabotage::None,
    };
    std::process::exit(main(&args));
}

struct Run {
    dir: tempfile::TempDir,
    ranks: usize,
    /// Ranks of a node, each a virtual one.
    per_node: usize,
}

impl Run {
    fn new(ranks: usize, precision: &str, change: impl FnOnce(&mut Value)) -> Run {
        let dir = tempfile::tempdir().unwrap();
        let text =
            "the quick brown fox jumps over the lazy dog, and the dog sleeps on. ".repeat(60);
        std::fs::create_dir_all(dir.path().join("run")).unwrap();
        std::fs::write(dir.path().join("text"), text).unwrap();
        let mut plan = json!({
            "schema": "haul.plan/1", "name": "unknown keys are ignored",
            "fingerprint": "f00d", "threads": 1, "shared_cores": true,
            "mesh": {"tensor": 1, "data": ranks, "pipeline": 1},
            "checkpoint": {"every_steps": 5, "keep": 9},
            "train_config": {
                "model": {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "seq_len": 16, "vocab": 256,
                          "norm_eps": 1e-5, "init_std": 0.05},
                "batch": {"micro": 2, "accumulation": 2, "global": 4 * ranks},
                "train": {"until": {"steps": 12}, "seed": 5, "precision": precision,
                          "optimizer": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0},
                          "schedule": {"kind": "cosine", "warmup": 2, "decay_steps": 12, "min_lr": 0.001},
                          "warmup_steps": 1, "eval_every": 4, "eval_sequences": 5},
                "data": {"path": "{root}/text", "format": "bytes", "validation": 0.1},
                "zero": 0
            }
        });
        change(&mut plan);
        std::fs::write(dir.path().join("plan.json"), plan.to_string()).unwrap();
        Run {
            dir,
            ranks,
            per_node: ranks,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn spawn(&self, mode: &str, attempt: u32, load: Option<&Path>) -> Vec<Child> {
        let attempt_dir = self.path(&format!("run/attempts/{attempt}"));
        let control = attempt_dir.join("control");
        std::fs::create_dir_all(&control).unwrap();
        // Ranks meet by it, also those of tests that run at the same time.
        let mut secret = [attempt as u8; 32];
        let place = self.dir.path().as_os_str().as_encoded_bytes();
        for (byte, own) in secret.iter_mut().zip(place.iter().rev()) {
            *byte ^= own;
        }
        std::fs::write(attempt_dir.join("secret"), secret).unwrap();
        let port = master_port();
        let rank = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "worker_process", "--nocapture"]);
            command
                .env(CHILD, mode)
                .env("HAUL_TEST_PLAN", self.path("plan.json"));
            command.env("HAUL_TEST_OUT", self.path("gradients"));
            command
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", self.ranks.to_string())
                .env("LOCAL_WORLD_SIZE", self.per_node.to_string())
                .env("LOCAL_RANK", (rank % self.per_node).to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string());
            command
                .env("HAUL_RUN_DIR", self.path("run"))
                .env("HAUL_ATTEMPT", attempt.to_string());
            command.env(
                "HAUL_PROGRESS",
                attempt_dir.join(format!("progress-{rank}")),
            );
            command.env("HAUL_CONTROL", &control);
            command.env(
                "HAUL_SAVE_DIR",
                self.path(&format!("run/checkpoints/{attempt}")),
            );
            command.env("HAUL_LOAD_FROM", load.unwrap_or(Path::new("")));
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        (0..self.ranks).map(rank).collect()
    }

    fn wait(children: Vec<Child>) -> Vec<Output> {
        children
            .into_iter()
            .map(|child| child.wait_with_output().unwrap())
            .collect()
    }

    /// Exit codes of all ranks.
    fn codes(outputs: &[Output]) -> Vec<i32> {
        outputs
            .iter()
            .map(|o| o.status.code().unwrap_or(-1))
            .collect()
    }

    fn train(&self, attempt: u32, load: Option<&Path>) -> Vec<Output> {
        Self::wait(self.spawn("train", attempt, load))
    }

    fn lines(&self, attempt: u32, rank: usize) -> Vec<Line> {
        let path = self.path(&format!("run/attempts/{attempt}/progress-{rank}"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// (step, bits of the loss) of an attempt's lines of one kind.
    fn losses(&self, attempt: u32, kind: Kind) -> Vec<(u64, String)> {
        let lines = self
            .lines(attempt, 0)
            .into_iter()
            .filter(|line| line.kind == kind);
        lines
            .map(|line| (line.step.unwrap(), line.loss_bits.unwrap()))
            .collect()
    }

    fn control(&self, attempt: u32, name: &str) -> PathBuf {
        self.path(&format!("run/attempts/{attempt}/control/{name}"))
    }
}

/// A port below those that the kernel takes by itself; no two calls of this process get the same.
fn master_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 50 * 200) as u16;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn succeed(outputs: &[Output]) {
    for output in outputs {
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{error}");
    }
}

/// Nodes differ in how ranks reach each other, and in nothing else; neither in how much they allocate.
#[test]
fn ranks_on_nodes_of_their_own_have_the_bits_of_ranks_on_one() {
    let one = Run::new(4, "f32", |_| ());
    let mut apart = Run::new(4, "f32", |_| ());
    apart.per_node = 1;
    let mut pairs = Run::new(4, "f32", |_| ());
    pairs.per_node = 2;
    for (run, transport) in [(&one, "shm"), (&apart, "tcp"), (&pairs, "tcp")] {
        succeed(&run.train(1, None));
        let lines = run.lines(1, 0);
        let values = || lines.iter().filter_map(|line| line.values.as_ref());
        let told: Vec<_> = values().filter_map(|v| v.get("transport")).collect();
        assert_eq!(told, [transport]);
        let growth = values().filter_map(|v| v.get("heap_growth_bytes")?.as_u64());
        assert!(growth.max().unwrap() < 1 << 20);
    }
    assert_eq!(one.losses(1, Kind::Step).len(), 12);
    for (kind, other) in [
        (Kind::Step, &apart),
        (Kind::Eval, &apart),
        (Kind::Step, &pairs),
    ] {
        assert_eq!(one.losses(1, kind), other.losses(1, kind));
    }
    let last = |run: &Run| {
        let saves = run.path("run/checkpoints/1/step-12");
        let files = std::fs::read_dir(saves)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files
            .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
            .collect();
        files.sort();
        let read = |path: &PathBuf| {
            (
                path.file_name().unwrap().to_owned(),
                std::fs::read(path).unwrap(),
            )
        };
        files.iter().map(read).collect::<Vec<_>>()
    };
    assert!(
        !last(&one).is_empty() && last(&one) == last(&apart),
        "other weights"
    );
}

#[test]
fn a_killed_rank_of_another_node_is_named() {
    let mut run = Run::new(3, "f32", |plan| {
        plan["train_config"]["train"]["until"] = json!({"steps": 1_000_000});
        plan["checkpoint"] = json!(null);
    });
    run.per_node = 1;
    let mut ranks = run.spawn("train", 1, None);
    let start = Instant::now();
    while run.losses(1, Kind::Step).len() < 3 {
        assert!(start.elapsed() < Duration::from_secs(60), "no steps");
        std::thread::sleep(Duration::from_millis(20));
    }
    ranks[2].kill().unwrap();
    let outputs = Run::wait(ranks);
    for output in &outputs[..2] {
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("rank 2 is gone, noticed in "), "{error}");
    }
}

#[test]
fn ranks_train_to_the_end_and_their_lines_add_up() {
    let run = Run::new(2, "f32", |_| ());
    let outputs = run.train(1, None);
    succeed(&outputs);
    assert!(String::from_utf8_lossy(&outputs[0].stderr).contains("arena "));
    let losses = run.losses(1, Kind::Step);
    assert_eq!(
        losses.iter().map(|(step, _)| *step).collect::<Vec<_>>(),
        (1..=12).collect::<Vec<_>>()
    );
    assert_eq!(
        run.losses(1, Kind::Eval)
            .iter()
            .map(|l| l.0)
            .collect::<Vec<_>>(),
        [4, 8, 12]
    );
    for rank in 0..2 {
        let steps = run
            .lines(1, rank)
            .into_iter()
            .filter(|line| line.kind == Kind::Step);
        for line in steps {
            let sum: f64 = line.phases.unwrap().values().sum();
            let seconds = line.step_seconds.unwrap();
            assert!((sum - seconds).abs() < 1e-9 + 1e-6 * seconds);
            assert_eq!(line.loss.is_some(), rank == 0);
        }
    }
    let lines = run.lines(1, 0);
    let last = lines.iter().rfind(|line| line.kind == Kind::Step).unwrap();
    assert!(last.loss.unwrap() < 4.5 && last.tokens == Some(12 * 8 * 16));
    let saves: Vec<_> = lines
        .iter()
        .filter(|line| line.kind == Kind::Save)
        .collect();
    assert_eq!(
        saves
            .iter()
            .map(|line| line.step.unwrap())
            .collect::<Vec<_>>(),
        [5, 10, 12]
    );
    for save in saves {
        let path = run
            .path("run/checkpoints/1")
            .join(save.path.as_ref().unwrap());
        assert!(path.join("manifest.json").exists());
    }
    let growth = lines
        .iter()
        .filter_map(|line| line.values.as_ref()?.get("heap_growth_bytes")?.as_u64());
    let growth = growth.max().unwrap();
    assert!(
        growth < 1 << 20,
        "the heap grew by {growth} bytes after step 1"
    );
    let peak = lines
        .iter()
        .find_map(|line| line.values.as_ref()?.get("gemm_peak_gflops")?.as_f64());
    assert!(peak.unwrap() > 0.0);
}

#[test]
fn stopped_and_resumed_equals_unbroken_to_the_bit() {
    let run = Run::new(2, "f32", |plan| {
        // Long enough that the request comes in mid-run.
        plan["train_config"]["train"]["until"] = json!({"steps": 400});
        plan["checkpoint"] = Value::Null;
    });
    let children = run.spawn("train", 1, None);
    let start = Instant::now();
    while run.losses(1, Kind::Step).len() < 3 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    std::fs::write(run.control(1, "stop"), "").unwrap();
    let outputs = Run::wait(children);
    assert_eq!(
        Run::codes(&outputs),
        [75, 75],
        "{}",
        String::from_utf8_lossy(&outputs[0].stderr)
    );
    let first = run.losses(1, Kind::Step);
    let stopped = first.last().unwrap().0;
    assert!((3..400).contains(&stopped));
    let checkpoint = run.path(&format!("run/checkpoints/1/step-{stopped}"));
    succeed(&run.train(2, Some(&checkpoint)));
    succeed(&run.train(3, None));
    let unbroken = run.losses(3, Kind::Step);
    assert_eq!(unbroken.len(), 400);
    let resumed: Vec<_> = first.into_iter().chain(run.losses(2, Kind::Step)).collect();
    assert_eq!(resumed, unbroken);
}

#[test]
fn a_killed_rank_ends_the_others_with_its_name() {
    let run = Run::new(2, "f32", |plan| {
        plan["train_config"]["train"]["until"] = json!({"steps": 1_000_000});
    });
    let mut children = run.spawn("train", 1, None);
    let start = Instant::now();
    while run.losses(1, Kind::Step).len() < 3 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    children[1].kill().unwrap();
    let killed = Instant::now();
    let survivor = children.remove(0).wait_with_output().unwrap();
    println!("the survivor ended after {:?}", killed.elapsed());
    assert!(killed.elapsed() < Duration::from_secs(20));
    children[0].wait().unwrap();
    let error = String::from_utf8_lossy(&survivor.stderr);
    assert_eq!(survivor.status.code(), Some(1), "{error}");
    assert!(error.contains("rank 0: rank 1 is gone"), "{error}");
    let last = run.lines(1, 0).pop().unwrap().values.unwrap();
    assert_eq!(last["peer"], 1);
    assert!(
        last["error"]
            .as_str()
            .unwrap()
            .starts_with("rank 1 is gone")
    );
    // What the last committed manifest names is whole: the run goes on from it.
    let saved = run
        .lines(1, 0)
        .into_iter()
        .rfind(|line| line.kind == Kind::Save);
    if let Some(path) = saved.and_then(|line| line.path) {
        let text = std::fs::read_to_string(run.path("plan.json")).unwrap();
        let mut plan: Value = serde_json::from_str(&text).unwrap();
        let step: u64 = path.trim_start_matches("step-").parse().unwrap();
        plan["train_config"]["train"]["until"] = json!({"steps": step + 2});
        std::fs::write(run.path("plan.json"), plan.to_string()).unwrap();
        succeed(&run.train(2, Some(&run.path("run/checkpoints/1").join(path))));
        let steps: Vec<u64> = run.losses(2, Kind::Step).iter().map(|l| l.0).collect();
        assert_eq!(steps, [step + 1, step + 2]);
    }
}

#[test]
fn a_save_is_made_when_asked_and_the_request_is_removed() {
    let run = Run::new(1, "f64", |plan| {
        plan["train_config"]["train"]["until"] = json!({"steps": 6});
        plan["checkpoint"] = Value::Null;
    });
    std::fs::create_dir_all(run.path("run/attempts/1/control")).unwrap();
    std::fs::write(run.control(1, "save"), "").unwrap();
    succeed(&run.train(1, None));
    assert!(!run.control(1, "save").exists());
    assert!(run.path("run/checkpoints/1/step-1/manifest.json").exists());
    assert!(!run.path("run/checkpoints/1/step-6").exists());
}

#[test]
fn a_damaged_checkpoint_is_said_by_every_rank_with_76() {
    let run = Run::new(2, "f32", |plan| {
        plan["train_config"]["train"]["until"] = json!({"steps": 5});
    });
    succeed(&run.train(1, None));
    let checkpoint = run.path("run/checkpoints/1/step-5");
    let file = std::fs::read_dir(&checkpoint)
        .unwrap()
        .map(|e| e.unwrap().path());
    let file = file
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .min()
        .unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    let outputs = run.train(2, Some(&checkpoint));
    assert_eq!(Run::codes(&outputs), [76, 76]);
    let error = String::from_utf8_lossy(&outputs[1].stderr);
    assert!(
        error.starts_with("rank 1: the checkpoint ") && error.trim_end().lines().count() == 1,
        "{error}"
    );
}

#[test]
fn what_can_never_work_exits_93_with_one_line() {
    let refused = |change: &dyn Fn(&mut Value), words: &str| {
        let run = Run::new(1, "f32", change);
        let output = run.train(1, None).remove(0);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(93), "{error}");
        assert!(
            error.contains(words) && error.trim_end().lines().count() == 1,
            "{error}"
        );
    };
    refused(
        &|plan| plan["train_config"]["model"]["heads"] = json!(5),
        "model.heads",
    );
    refused(
        &|plan| plan["train_config"]["zero"] = json!(1),
        "comes with a later version",
    );
    refused(&|plan| plan["mesh"]["data"] = json!(3), "WORLD_SIZE");
    refused(&|plan| plan["threads"] = json!("many"), "plan.json");
    refused(
        &|plan| plan["train_config"]["model"]["vocab"] = json!(100),
        "not below the vocabulary of 100",
    );
    refused(
        &|plan| plan["train_config"]["model"]["seq_len"] = json!(1 << 16),
        "too few",
    );
}

#[test]
fn another_data_order_is_refused_on_resume() {
    let run = Run::new(1, "f64", |plan| {
        plan["train_config"]["train"]["until"] = json!({"steps": 5});
    });
    succeed(&run.train(1, None));
    let checkpoint = run.path("run/checkpoints/1/step-5");
    let text = std::fs::read_to_string(run.path("plan.json")).unwrap();
    let mut plan: Value = serde_json::from_str(&text).unwrap();
    plan["train_config"]["train"]["seed"] = json!(6);
    std::fs::write(run.path("plan.json"), plan.to_string()).unwrap();
    let output = run.train(2, Some(&checkpoint)).remove(0);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(93), "{error}");
    assert!(error.contains("cannot continue"), "{error}");
}

#[test]
fn a_checkpoint_continues_a_prompt_alike_each_time() {
    let run = Run::new(1, "f32", |plan| {
        plan["train_config"]["train"]["until"] = json!({"steps": 150});
        plan["train_config"]["train"]["schedule"]["decay_steps"] = json!(150);
        plan["checkpoint"] = json!({"every_steps": 1000, "keep": 1});
    });
    succeed(&run.train(1, None));
    let checkpoint = run.path("run/checkpoints/1/step-150");
    let sample = || {
        let outputs = Run::wait(run.spawn(checkpoint.to_str().unwrap(), 2, None));
        succeed(&outputs);
        String::from_utf8(outputs[0].stdout.clone()).unwrap()
    };
    let text = sample();
    assert!(text.contains("the ") && text == sample());
    // After 150 steps on one sentence the model writes words of it.
    let words = [
        "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "sleeps",
    ];
    assert!(words.iter().any(|word| text.contains(word)), "{text}");
}

#[test]
fn gradients_of_two_ranks_and_of_one_are_dumped_alike() {
    let dump = |ranks: usize, micro: usize| {
        let run = Run::new(ranks, "f64", |plan| {
            plan["train_config"]["batch"] = json!({"micro": micro, "accumulation": 2, "global": 8});
        });
        succeed(&Run::wait(run.spawn("dump", 1, None)));
        let bytes = std::fs::read(run.path("gradients")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let tensor = tensors.tensor("h.1.mlp.c_fc.weight").unwrap();
        assert_eq!(tensor.shape(), [64, 32]);
        let (words, _) = tensor.data().as_chunks();
        words
            .iter()
            .map(|w| f64::from_le_bytes(*w))
            .collect::<Vec<f64>>()
    };
    let (one, two) = (dump(1, 4), dump(2, 2));
    let norm = one.iter().map(|x| x * x).sum::<f64>().sqrt();
    let off = one
        .iter()
        .zip(&two)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>()
        .sqrt();
    assert!(norm > 1e-4 && off < 1e-11 * norm, "{off} of {norm}");
}

#[test]
fn peaks_are_measured() {
    let run = Run::new(1, "f32", |_| ());
    let output = Run::wait(run.spawn("peak", 1, None)).remove(0);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with('{')).unwrap();
    let value: Value = serde_json::from_str(line).unwrap();
    // What they are is a bench's business.
    for name in ["fma_gflops", "gemm_gflops"] {
        let rate = value[name].as_f64().unwrap();
        assert!(rate.is_finite() && rate > 0.0, "{name} is {rate}");
    }
}
