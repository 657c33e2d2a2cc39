//! A run root with a small recipe in it, the run that comes of it, and what two runs are compared by.

use crate::bench::Bench;
use crate::harness::{HAUL, TestRoot, wait_for};
pub(crate) use crate::told::Told;
use haul::store::{RunDir, select};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// Steps of the recipe.
pub(crate) const STEPS: u64 = 60;
/// Steps between checkpoints.
pub(crate) const EVERY: u64 = 5;

/// Layers 2, hidden 32, two ranks in data parallel; a step takes some 10 ms, so that it can be hit.
const RECIPE: &str = "\
name: tiny
model: {layers: 2, hidden: 32, heads: 4, seq_len: 32, vocab: 256}
batch: {micro: 4, per_replica: 16}
train:
  until: {steps: 60}
  warmup_steps: 2
  precision: f32
  optimizer: {lr: 3.0e-3}
  seed: 1
  eval: {every: 10, sequences: 8}
data: {path: text.txt, format: bytes, validation: 0.1}
checkpoint: {every: 5, keep: 100}
job: {nodes: 1, ranks_per_node: 2, cores_per_rank: 1}
restart: {failures: 0}
";

/// A root, the recipe in it, and a directory for what processes leave behind.
pub(crate) struct Field {
    pub(crate) root: TestRoot,
    tmp: PathBuf,
    recipe: PathBuf,
    shared_memory: BTreeSet<OsString>,
}

impl Field {
    pub(crate) fn new() -> Field {
        let root = TestRoot::new();
        let tmp = root.path().join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        let recipe = root.path().join("tiny.yaml");
        std::fs::write(&recipe, RECIPE).unwrap();
        let text = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/data/milton.txt");
        let text = std::fs::read(text).unwrap();
        std::fs::write(root.path().join("text.txt"), &text[..30_000]).unwrap();
        Field {
            root,
            tmp,
            recipe,
            shared_memory: shared_memory(),
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HAUL);
        command
            .args(arguments)
            .env("HAUL_ROOT", self.root.path())
            .env("TMPDIR", &self.tmp)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn haul(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn recipe(&self) -> &str {
        self.recipe.to_str().unwrap()
    }

    fn arguments<'a>(&'a self, set: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["run", self.recipe()];
        for one in set {
            arguments.extend(["--set", one]);
        }
        arguments
    }

    /// `haul run` with values changed, to its end, which must be a good one.
    #[track_caller]
    pub(crate) fn run(&self, set: &[&str]) -> Told {
        let told = Told::of(self.haul(&self.arguments(set)));
        assert_eq!(told.code, 0, "{told:?}");
        told
    }

    /// `haul run` in the background.
    pub(crate) fn start(&self, set: &[&str]) -> Child {
        self.command(&self.arguments(set)).spawn().unwrap()
    }

    pub(crate) fn newest(&self) -> Run {
        let run = wait_for("a run", || select::find(&self.root.root(), "last").ok());
        self.view(run)
    }

    pub(crate) fn view(&self, run: RunDir) -> Run {
        let bench = Bench::of(run.path().to_path_buf(), self.tmp.clone());
        Run { dir: run, bench }
    }

    /// The newest run, once `attempt` of it has taken `step` steps.
    pub(crate) fn at_step(&self, attempt: u32, step: u64) -> Run {
        let run = self.newest();
        run.bench.wait_for_step(attempt, step);
        run
    }

    /// All that runs in this root.
    pub(crate) fn all(&self) -> Bench {
        Bench::of(self.root.path().to_path_buf(), self.tmp.clone())
    }

    /// Nothing is left of any run of this root: no process, no private directory, no shared memory.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        let all = self.all();
        // The keeper writes the end before it leaves.
        wait_for("the end of all processes", || {
            all.processes().is_empty().then_some(())
        });
        all.assert_clean();
        // Other programs of the machine come and go there.
        wait_for("the end of shared memory", || {
            shared_memory().is_subset(&self.shared_memory).then_some(())
        });
    }
}

fn shared_memory() -> BTreeSet<OsString> {
    let listing = std::fs::read_dir("/dev/shm").into_iter().flatten();
    listing.flatten().map(|entry| entry.file_name()).collect()
}

/// A run and what can be seen of it.
pub(crate) struct Run {
    pub(crate) dir: RunDir,
    pub(crate) bench: Bench,
}

impl Run {
    pub(crate) fn id(&self) -> String {
        self.dir.id()
    }

    pub(crate) fn checkpoint(&self, attempt: u32, step: u64) -> PathBuf {
        self.dir.checkpoints(attempt).join(format!("step-{step}"))
    }
}

/// What must be the same for two runs that are equal to the bit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// (step, bits of the loss) of all steps that count.
    pub(crate) losses: Vec<(u64, u64)>,
    pub(crate) validation: Vec<(u64, u64)>,
    /// Hash of every file of the newest checkpoint but its manifest.
    pub(crate) state: Vec<(String, String)>,
}

impl Outcome {
    #[track_caller]
    pub(crate) fn of(field: &Field, run: &Run) -> Outcome {
        let report = Told::of(field.haul(&["report", &run.id(), "--json"])).json();
        let curve = |name: &str| -> Vec<(u64, u64)> {
            let points = report["loss"][name].as_array().unwrap().iter();
            points
                .map(|p| (p[0].as_u64().unwrap(), p[1].as_f64().unwrap().to_bits()))
                .collect()
        };
        // The bits that ranks wrote are those of the losses that people read.
        for attempt in run.dir.numbers("attempts") {
            for line in run.bench.metrics(attempt) {
                if let (Some(loss), Some(bits)) = (line.loss, line.loss_bits) {
                    assert_eq!(format!("{:016x}", loss.to_bits()), bits);
                }
            }
        }
        let (losses, validation) = (curve("train"), curve("validation"));
        let (last, _) = *losses.last().unwrap();
        let attempts = run.dir.numbers("checkpoints");
        let newest = attempts
            .into_iter()
            .rev()
            .map(|attempt| run.checkpoint(attempt, last))
            .find(|path| path.join("manifest.json").exists());
        let newest = newest.unwrap_or_else(|| panic!("no checkpoint of step {last}"));
        Outcome {
            losses,
            validation,
            state: files(&newest),
        }
    }

    #[track_caller]
    pub(crate) fn assert_unbroken(&self) {
        let unbroken = unbroken();
        assert_eq!(self.losses, unbroken.losses);
        assert_eq!(self.validation, unbroken.validation);
        assert_eq!(self.state, unbroken.state);
    }
}

fn files(checkpoint: &Path) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = std::fs::read_dir(checkpoint)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, blake3::hash(&bytes).to_hex().to_string())
        })
        .collect();
    files.sort();
    files
}

/// The recipe as it is, never disturbed; the same for all tests of this target.
pub(crate) fn unbroken() -> &'static Outcome {
    static UNBROKEN: OnceLock<Outcome> = OnceLock::new();
    UNBROKEN.get_or_init(|| {
        let field = Field::new();
        field.run(&[]);
        let outcome = Outcome::of(&field, &field.newest());
        let steps: Vec<u64> = outcome.losses.iter().map(|p| p.0).collect();
        assert_eq!(steps, (1..=STEPS).collect::<Vec<_>>());
        assert_eq!(outcome.state.len(), 3, "{:?}", outcome.state);
        field.assert_clean();
        outcome
    })
}
