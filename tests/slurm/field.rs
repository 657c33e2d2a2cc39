//! The cluster, a run root on it, and what is seen of a run.

pub(crate) use crate::told::Told;
use haul::store::{RunDir, select};
use haul_runtime::contract::metrics::{Kind, Line};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Far more than anything takes here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Tests that take parts of the cluster away are alone.
static CLUSTER: RwLock<()> = RwLock::new(());

pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    CLUSTER
        .read()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    CLUSTER
        .write()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(crate) fn directory() -> PathBuf {
    std::env::var_os("HAUL_SLURM_DIR").map_or("/var/tmp/haul-slurm".into(), PathBuf::from)
}

/// `tests/slurm/cluster` with these arguments, which must succeed.
#[track_caller]
pub(crate) fn cluster(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slurm/cluster");
    let output = Command::new(script)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A command of Slurm on the login node.
#[track_caller]
pub(crate) fn slurm(arguments: &[&str]) -> String {
    cluster(&[&["exec"], arguments].concat())
}

/// Nodes in a state that jobs can start on.
pub(crate) fn idle_nodes() -> usize {
    let nodes = slurm(&[
        "sinfo",
        "-h",
        "-N",
        "-p",
        "batch",
        "-t",
        "idle,mix,alloc",
        "-o",
        "%T",
    ]);
    nodes.lines().filter(|state| !state.contains('*')).count()
}

#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A run root that all nodes see, removed at the end.
pub(crate) struct Field {
    root: tempfile::TempDir,
    /// In whose name commands run.
    user: &'static str,
    /// Put before the rest of the path.
    pub(crate) path: Option<PathBuf>,
}

impl Field {
    pub(crate) fn new() -> Field {
        Field::of("root")
    }

    pub(crate) fn of(user: &'static str) -> Field {
        let shared = directory().join("shared");
        let root = tempfile::Builder::new()
            .prefix("haul-")
            .tempdir_in(shared)
            .unwrap();
        std::fs::write(root.path().join("machine.yaml"), PROFILE).unwrap();
        let trainer = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/shell-trainer.sh");
        std::fs::copy(trainer, root.path().join("shell-trainer.sh")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_haul"), root.path().join("haul")).unwrap();
        if user != "root" {
            cluster(&[
                "exec",
                "chown",
                "-R",
                &owner(user),
                root.path().to_str().unwrap(),
            ]);
        }
        Field {
            root,
            user,
            path: None,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    /// Writes a recipe that runs the shell trainer with these arguments, with `more` lines.
    pub(crate) fn recipe(&self, trainer: &str, more: &str) -> String {
        let path = self.path().join("recipe.yaml");
        let text =
            format!("name: t\nprogram: {{command: [./shell-trainer.sh, {trainer}]}}\n{more}\n");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn haul(&self, arguments: &[&str]) -> Told {
        let mut command = self.command(arguments);
        Told::of(command.output().unwrap())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slurm/cluster");
        let haul = self.path().join("haul");
        let mut command = Command::new(script);
        command
            .args(["as", self.user])
            .arg(haul)
            .args(arguments)
            .env("HAUL_ROOT", self.path().join("runs"))
            .env("HAUL_MACHINE", self.path().join("machine.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(before) = &self.path {
            let path = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{path}", before.display()));
        }
        command
    }

    /// Submits, and returns the run.
    #[track_caller]
    pub(crate) fn submit(&self, recipe: &str) -> Run {
        let told = self.haul(&["submit", recipe]);
        assert_eq!(told.code, 0, "{told:#?}");
        self.newest()
    }

    pub(crate) fn newest(&self) -> Run {
        self.find().unwrap()
    }

    pub(crate) fn find(&self) -> Option<Run> {
        let root = haul::store::Root::new(self.path().join("runs"));
        select::find(&root, "last").ok().map(Run)
    }

    /// The state of the newest run, and its words.
    #[track_caller]
    pub(crate) fn state(&self) -> (String, String) {
        let status = self.haul(&["status", "last", "--json"]).json();
        let text = |name: &str| status["run"][name].as_str().unwrap().to_owned();
        (text("state"), text("words"))
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, state: &str) -> String {
        let mut last = (String::new(), String::new());
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            last = self.state();
            if last.0 == state {
                return last.1;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        panic!("never {state}, but {last:?}");
    }

    /// The words of the state, once they hold `part`: Slurm tells some of it late.
    #[track_caller]
    pub(crate) fn wait_until_told(&self, state: &str, part: &str) -> String {
        let mut last = (String::new(), String::new());
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            last = self.state();
            if last.0 == state && last.1.contains(part) {
                return last.1;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        panic!("never {state} with `{part}`, but {last:?}");
    }

    /// Steps and losses of the history that counts.
    #[track_caller]
    pub(crate) fn curve(&self) -> Vec<(u64, f64)> {
        let report = self.haul(&["report", "last", "--json"]).json();
        let points = report["loss"]["train"].as_array().unwrap().iter();
        points
            .map(|p| (p[0].as_u64().unwrap(), p[1].as_f64().unwrap()))
            .collect()
    }

    /// The shell trainer's curve up to `steps`, with nothing missing and nothing twice.
    #[track_caller]
    pub(crate) fn assert_whole(&self, steps: u64) {
        let expected: Vec<(u64, f64)> = (1..=steps)
            .map(|step| (step, (1000 + 40000 / (step + 9)) as f64 / 1000.0))
            .collect();
        assert_eq!(self.curve(), expected);
    }

    /// Jobs of the newest run that Slurm still knows as alive.
    pub(crate) fn live_jobs(&self) -> Vec<String> {
        let id = self.newest().0.id();
        let listing = slurm(&["squeue", "-h", "-o", "%A %j"]);
        let of = |line: &str| {
            let (job, name) = line.split_once(' ')?;
            name.contains(&id).then(|| job.to_owned())
        };
        listing.lines().filter_map(of).collect()
    }
}

/// `uid:gid` of a user of the cluster.
fn owner(user: &str) -> String {
    cluster(&["as", user, "sh", "-c", "echo $(id -u):$(id -g)"])
        .trim()
        .to_owned()
}

pub(crate) struct Run(pub(crate) RunDir);

impl Run {
    pub(crate) fn lines(&self, attempt: u32) -> Vec<Line> {
        let text = std::fs::read_to_string(self.0.metrics(attempt)).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    pub(crate) fn steps(&self, attempt: u32) -> Vec<u64> {
        let lines = self.lines(attempt);
        let steps = lines.iter().filter(|line| line.kind == Kind::Step);
        steps.filter_map(|line| line.step).collect()
    }

    /// Waits until `attempt` has taken `step` steps.
    #[track_caller]
    pub(crate) fn wait_for_step(&self, attempt: u32, step: u64) {
        wait_for(&format!("step {step} of attempt {attempt}"), || {
            self.steps(attempt)
                .last()
                .filter(|last| **last >= step)
                .map(|_| ())
        });
    }

    pub(crate) fn events(&self, name: &str) -> Vec<Value> {
        let (entries, _) = haul::store::journal::read(&self.0).unwrap();
        let entries = entries
            .iter()
            .map(|entry| serde_json::to_value(entry).unwrap());
        entries.filter(|entry| entry["event"] == name).collect()
    }

    pub(crate) fn output(&self, slot: u32) -> String {
        std::fs::read_to_string(self.0.job(slot).join("job.out")).unwrap_or_default()
    }
}

const PROFILE: &str = "\
schema: 1
name: testcluster
scheduler: {kind: slurm, poll_floor: 1s, chain: at-end, sbatch_from_compute: true}
binding: none
node: {device: cores, cores: 8, memory: 8GiB, interface: eth0}
launch: {srun: [\"--cpu-bind=none\", \"--kill-on-bad-exit=0\"]}
";

/// Two nodes of two ranks for ten minutes.
pub(crate) const TWO_NODES: &str = "\
job: {nodes: 2, ranks_per_node: 2, cores_per_rank: 1, walltime: 10m}
restart: {failures: 3}";
