//! Run roots of tests, jobs in them, and what is waited for.

use haul::actions::check;
use haul::actions::submit::{self, Order, Submitted};
use haul::plan::Plan;
use haul::scheduler::local::Local;
use haul::scheduler::{Cancel, JobState, Request, Scheduler};
use haul::store::identity::Process;
use haul::store::{Root, RunDir};
use haul::supervise::submission::Outcome;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const HAUL: &str = env!("CARGO_BIN_EXE_haul");
/// Anything here takes well under this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A run root whose jobs are killed when the test ends, however it ends.
pub(crate) struct TestRoot {
    directory: tempfile::TempDir,
}

impl TestRoot {
    pub(crate) fn new() -> TestRoot {
        let directory = tempfile::tempdir().unwrap();
        // The tests of this target share one copy of the binary.
        let bin = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink(bin, directory.path().join("bin")).unwrap();
        TestRoot { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn root(&self) -> Root {
        Root::new(self.path())
    }

    pub(crate) fn scheduler(&self) -> Local {
        Local::new(self.root(), HAUL.into())
    }

    pub(crate) fn jobs(&self) -> Vec<String> {
        let listing = std::fs::read_dir(self.path().join(".local"));
        listing
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name != "tokens")
            .collect()
    }

    pub(crate) fn state(&self, job: &str) -> JobState {
        self.scheduler().states("", &[job.to_owned()])[job].clone()
    }

    /// A job of `script` below the scheduler, without a run.
    pub(crate) fn job(&self, script: &str, change: impl FnOnce(&mut Request)) -> (String, PathBuf) {
        let directory = self.path().join(format!("job-{}", self.jobs().len()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("job.sh");
        std::fs::write(&path, script).unwrap();
        let token = format!("haul-{}", directory.file_name().unwrap().to_str().unwrap());
        let mut request = Request::new(token, path, directory.clone(), None);
        change(&mut request);
        (self.scheduler().submit(&request).unwrap(), directory)
    }

    /// A run whose job is `script`.
    pub(crate) fn submit(&self, script: &str) -> Submitted {
        let plan = plan();
        submit::submit(&Order {
            root: self.root(),
            plan: &plan,
            recipe: b"name: test\n",
            resolved: "name: test\n",
            provenance: serde_json::json!({}),
            binary: Path::new(HAUL),
            script: &|_, _| Ok(script.to_owned()),
        })
        .unwrap()
    }

    pub(crate) fn haul(&self, arguments: &[&str]) -> Output {
        Command::new(HAUL)
            .args(arguments)
            .env("HAUL_ROOT", self.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

impl Drop for TestRoot {
    fn drop(&mut self) {
        for job in self.jobs() {
            let _ = self.scheduler().cancel(&job, Cancel::Kill);
        }
        let begin = Instant::now();
        let live = |state: &JobState| {
            matches!(
                state,
                JobState::Queued | JobState::Running | JobState::Unwatched(_) | JobState::Ending(_)
            )
        };
        while self.jobs().iter().any(|job| live(&self.state(job))) && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The plan of a program that does nothing.
pub(crate) fn plan() -> Plan {
    let directory = tempfile::tempdir().unwrap();
    let recipe = directory.path().join("recipe.yaml");
    std::fs::write(
        &recipe,
        "name: test\nprogram: {command: [\"true\"]}\ntrain: {until: {steps: 3}}\njob: {nodes: 1, ranks_per_node: 1, cores_per_rank: 1}\n",
    )
    .unwrap();
    let request = check::Request {
        user_config: None,
        ..check::Request::new(&recipe, &[], Some("local"), Some(directory.path()))
    };
    check::load(&request).unwrap().plan
}

#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn content(path: &Path) -> Option<String> {
    std::fs::read_to_string(path)
        .ok()
        .filter(|text| text.ends_with('\n'))
        .map(|text| text.trim().to_owned())
}

pub(crate) fn number(path: &Path) -> Option<i32> {
    content(path)?.parse().ok()
}

pub(crate) fn alive(pid: i32) -> bool {
    Process::of(pid).is_some()
}

pub(crate) fn job_id(submitted: &Submitted) -> String {
    match &submitted.outcome {
        Outcome::Submitted(job) => job.clone(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn ended(root: &TestRoot, job: &str) -> haul::scheduler::End {
    wait_for("the job's end", || match root.state(job) {
        JobState::Ended(end) => Some(end),
        _ => None,
    })
}

/// The identity of a job's keeper (`job`) or of its own process (`state`).
pub(crate) fn process(root: &TestRoot, job: &str, file: &str) -> Process {
    let path = root.root().local_job(job).join(file);
    let value: serde_json::Value = wait_for("the job's file", || {
        serde_json::from_slice(&std::fs::read(&path).ok()?).ok()
    });
    serde_json::from_value(value["process"]["process"].clone()).unwrap()
}

/// Not a test of its own: what [`in_another_process`] runs.
#[test]
fn another_process() {
    let Ok(root) = std::env::var("HAUL_TEST_ROOT") else {
        return;
    };
    let plan = plan();
    let script = std::env::var("HAUL_TEST_SCRIPT").unwrap();
    let submitted = submit::submit(&Order {
        root: Root::new(root),
        plan: &plan,
        recipe: b"name: test\n",
        resolved: "",
        provenance: serde_json::json!({}),
        binary: Path::new(HAUL),
        script: &|_, _| Ok(script.clone()),
    })
    .unwrap();
    let out = std::env::var("HAUL_TEST_OUT").unwrap();
    std::fs::write(out, format!("{}\n", submitted.run.id())).unwrap();
    // Until it is killed.
    std::thread::sleep(PATIENCE);
}

/// Submits `script` from a process in a group of its own, and returns the process and the run.
pub(crate) fn in_another_process(
    root: &TestRoot,
    script: &str,
    environment: &[(&str, &Path)],
) -> (std::process::Child, RunDir) {
    use std::os::unix::process::CommandExt;
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "harness::another_process"])
        .env("HAUL_TEST_ROOT", root.path())
        .env("HAUL_TEST_SCRIPT", script)
        .env("HAUL_TEST_OUT", &out)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let id = wait_for("the submission", || content(&out));
    (child, root.root().run(&id))
}

/// A process that is dead for certain.
pub(crate) fn dead() -> Process {
    let mut child = Command::new("true").spawn().unwrap();
    let own = Process::own().unwrap();
    let pid = child.id() as i32;
    child.wait().unwrap();
    Process {
        pid,
        start: 1,
        ..own
    }
}
