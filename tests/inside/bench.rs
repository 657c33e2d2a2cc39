//! A run with a plan of its own, its supervisor as a child, and what can be seen of it.

use haul::plan::*;
use haul_runtime::contract::Mesh;
use haul_runtime::contract::metrics::{Kind, Line};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes longer; most takes tens of milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Bench {
    _dir: Option<tempfile::TempDir>,
    /// The run directory.
    pub(crate) run: PathBuf,
    /// Where private directories of ranks lie.
    pub(crate) tmp: PathBuf,
    pub(crate) timing: &'static str,
    /// What `HAUL_FAULTS` is for the supervisor.
    pub(crate) faults: Option<PathBuf>,
    slot: u32,
}

pub(crate) struct Setup {
    pub(crate) nodes: usize,
    pub(crate) ranks_per_node: usize,
    pub(crate) failures: u32,
    pub(crate) binding: Binding,
    pub(crate) command: Vec<String>,
}

/// The shell trainer: steps, seconds a step, steps between checkpoints.
pub(crate) fn trainer(steps: u32, pause: &str, every: u32) -> Setup {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/shell-trainer.sh");
    Setup {
        nodes: 1,
        ranks_per_node: 2,
        failures: 0,
        binding: Binding::None,
        command: vec![
            script.to_str().unwrap().into(),
            steps.to_string(),
            pause.into(),
            every.to_string(),
        ],
    }
}

/// Lines of bash in every rank; braces stand for themselves.
pub(crate) fn bash(lines: &str) -> Setup {
    Setup {
        command: vec![
            "bash".into(),
            "-c".into(),
            lines.replace('{', "{{").replace('}', "}}"),
        ],
        ..trainer(0, "", 1)
    }
}

fn plan(setup: &Setup) -> Plan {
    let world = setup.nodes * setup.ranks_per_node;
    Plan {
        schema: SCHEMA.into(),
        name: "shell".into(),
        fingerprint: "f".repeat(64),
        machine: MachineFacts {
            poll_floor: None,
            interface: None,
            here: false,
            profile: "local".into(),
            scheduler: SchedulerKind::Local,
            confirmed: false,
            device: "cores".into(),
            binding: setup.binding,
            submit_command: "bash".into(),
        },
        mesh: Mesh {
            data: world,
            ..Mesh::SERIAL
        },
        threads: 1,
        shared_cores: false,
        job: Job {
            nodes: setup.nodes,
            ranks_per_node: setup.ranks_per_node,
            cores_per_rank: 1,
            walltime_seconds: None,
        },
        program: Program::Command {
            command: setup.command.clone(),
        },
        train_config: None,
        checkpoint: None,
        chain: None,
        notify: None,
        restart: Restart {
            failures: setup.failures,
        },
        environment: Environment::default(),
        values: Default::default(),
        memory: Vec::new(),
        flops: None,
        cost: Cost {
            ranks: world,
            node_hours: None,
            charge: None,
            charge_rate: None,
        },
        launch: Launch::default(),
    }
}

impl Bench {
    pub(crate) fn new(setup: &Setup) -> Bench {
        Bench::with_plan(&plan(setup))
    }

    pub(crate) fn with_plan(plan: &Plan) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("root/shell-260101-test");
        let tmp = dir.path().join("tmp");
        std::fs::create_dir_all(run.join("control")).unwrap();
        std::fs::create_dir_all(&tmp).unwrap();
        let mut bench = Bench::of(run.canonicalize().unwrap(), tmp.canonicalize().unwrap());
        bench._dir = Some(dir);
        bench.timing = "pause=0.05,orphan=0.3,abort=0.5,cancel=0.5,margin=1";
        bench.write(plan);
        bench
    }

    /// A run that somebody else has submitted.
    pub(crate) fn of(run: PathBuf, tmp: PathBuf) -> Bench {
        Bench {
            _dir: None,
            run,
            tmp,
            timing: "pause=0.05",
            faults: None,
            slot: 1,
        }
    }

    fn write(&self, plan: &Plan) {
        let job = self.run.join("jobs").join(self.slot.to_string());
        std::fs::create_dir_all(&job).unwrap();
        std::fs::write(job.join("plan.json"), serde_json::to_vec(plan).unwrap()).unwrap();
    }

    /// Opens the next slot, as `haul resume` does.
    pub(crate) fn reopen(&mut self, setup: &Setup) {
        use haul::store::{
            RunDir,
            journal::{Event, Journal},
        };
        self.slot += 1;
        self.write(&plan(setup));
        let mut journal = Journal::open(&RunDir::new(&self.run), "submitter").unwrap();
        journal
            .append(Event::Reopened {
                slot: self.slot,
                upgrade: false,
            })
            .unwrap();
    }

    /// Starts the supervisor of the newest slot as job `job`.
    pub(crate) fn supervise_as(&self, job: &str) -> Supervisor {
        let output = self.run.join(format!("output-{job}"));
        let file = std::fs::File::create(&output).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_haul"))
            .args(["supervise", "--slot", &self.slot.to_string(), "--run"])
            .arg(&self.run)
            .env("HAUL_JOB_ID", job)
            .env("HAUL_TIMING", self.timing)
            .env("TMPDIR", &self.tmp)
            .envs(self.faults.iter().map(|faults| ("HAUL_FAULTS", faults)))
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Supervisor { child, output }
    }

    pub(crate) fn supervise(&self) -> Supervisor {
        self.supervise_as(&format!("job-{}", self.slot))
    }

    /// Puts a request into the control directory.
    pub(crate) fn ask(&self, what: &str) {
        std::fs::write(self.run.join("control").join(format!("test-{what}")), "").unwrap();
    }

    pub(crate) fn attempt(&self, attempt: u32) -> PathBuf {
        self.run.join("attempts").join(attempt.to_string())
    }

    pub(crate) fn verdict(&self, attempt: u32) -> Value {
        let path = self.attempt(attempt).join("verdict.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    pub(crate) fn metrics(&self, attempt: u32) -> Vec<Line> {
        jsonl(&self.attempt(attempt).join("metrics.jsonl"))
            .into_iter()
            .map(|line| serde_json::from_value(line).unwrap())
            .collect()
    }

    /// Steps of an attempt, in the order written.
    /// Steps in the order of their first lines; what a rank told late is a line of its own.
    pub(crate) fn steps(&self, attempt: u32) -> Vec<u64> {
        let mut seen = std::collections::BTreeSet::new();
        self.metrics(attempt)
            .iter()
            .filter(|line| line.kind == Kind::Step)
            .filter_map(|line| line.step)
            .filter(|step| seen.insert(*step))
            .collect()
    }

    /// Waits until some step of at least `step` is written.
    pub(crate) fn wait_for_step(&self, attempt: u32, step: u64) {
        wait(&format!("step {step}"), || {
            self.attempt(attempt).join("metrics.jsonl").exists()
                && self.steps(attempt).iter().any(|s| *s >= step)
        });
    }

    /// The last event `event` of `rank` in ranks.jsonl.
    pub(crate) fn rank_event(&self, attempt: u32, rank: usize, event: &str) -> Option<Value> {
        jsonl(&self.attempt(attempt).join("ranks.jsonl"))
            .into_iter()
            .rfind(|line| line["rank"] == rank && line["event"] == event)
    }

    pub(crate) fn pid_of_rank(&self, attempt: u32, rank: usize) -> i32 {
        let line = self.rank_event(attempt, rank, "spawned").unwrap();
        line["pid"].as_i64().unwrap() as i32
    }

    pub(crate) fn pid_of_shim(&self, attempt: u32, rank: usize) -> i32 {
        let line = self.rank_event(attempt, rank, "joined").unwrap();
        line["shim"].as_i64().unwrap() as i32
    }

    pub(crate) fn log(&self, attempt: u32, node: &str) -> String {
        let path = self.attempt(attempt).join(format!("logs/{node}.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    pub(crate) fn journal(&self) -> Vec<Value> {
        let run = haul::store::RunDir::new(&self.run);
        let (entries, damaged) = haul::store::journal::read(&run).unwrap();
        assert_eq!(damaged, 0);
        entries
            .iter()
            .map(|entry| serde_json::to_value(entry).unwrap())
            .collect()
    }

    pub(crate) fn events(&self, name: &str) -> Vec<Value> {
        let mut journal = self.journal();
        journal.retain(|entry| entry["event"] == name);
        journal
    }

    /// Processes of the run, by command line or environment.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let name = self.run.to_str().unwrap();
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .filter_map(|pid| {
                let read = |file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
                let environment = String::from_utf8_lossy(&read("environ")).into_owned();
                (line.contains(name) || environment.contains(name)).then_some((pid, line))
            })
            .collect()
    }

    /// No process of the run and no private directory is left.
    pub(crate) fn assert_clean(&self) {
        let left = self.processes();
        assert!(left.is_empty(), "left running: {left:?}");
        self.assert_no_scratch();
    }

    pub(crate) fn assert_no_scratch(&self) {
        let left: Vec<_> = std::fs::read_dir(&self.tmp)
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

impl Drop for Bench {
    /// A test that failed leaves nothing running.
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

pub(crate) struct Supervisor {
    child: Child,
    output: PathBuf,
}

impl Supervisor {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for its end; returns its exit code, 128 + n for a signal.
    pub(crate) fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap());
            }
            assert!(Instant::now() < until, "no end: {}", self.output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

pub(crate) fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whole lines of a file of JSON lines; empty when it is not there.
fn jsonl(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
