//! Jobs of the local scheduler with real processes: submission, keepers, limits, kills, resume, cancel.

// A fault in the set-up of a test is a failure of the test.
#![allow(clippy::unwrap_used)]

use haul::actions::cancel::{self, How as Ending};
use haul::actions::resume::{self, Resumed, With};
use haul::actions::standing::State;
use haul::actions::submit::{self, Order, Submitted};
use haul::actions::{check, view};
use haul::plan::Plan;
use haul::scheduler::local::Local;
use haul::scheduler::{Because, Cancel, How, JobState, Request, Scheduler};
use haul::store::claim::{self, Claim, Owner};
use haul::store::identity::{Life, Process};
use haul::store::journal::{self, Event, Journal};
use haul::store::{Root, RunDir, select};
use haul::supervise::submission::Outcome;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
/// Anything here takes well under this.
const PATIENCE: Duration = Duration::from_secs(30);

/// A run root whose jobs are killed when the test ends, however it ends.
struct TestRoot {
    directory: tempfile::TempDir,
}

impl TestRoot {
    fn new() -> TestRoot {
        let directory = tempfile::tempdir().unwrap();
        // The tests of this target share one copy of the binary.
        let bin = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink(bin, directory.path().join("bin")).unwrap();
        TestRoot { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn root(&self) -> Root {
        Root::new(self.path())
    }

    fn scheduler(&self) -> Local {
        Local::new(self.root(), HAUL.into())
    }

    fn jobs(&self) -> Vec<String> {
        let listing = std::fs::read_dir(self.path().join(".local"));
        listing
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name != "tokens")
            .collect()
    }

    fn state(&self, job: &str) -> JobState {
        self.scheduler().states(&[job.to_owned()])[job].clone()
    }

    /// A job of `script` below the scheduler, without a run.
    fn job(&self, script: &str, change: impl FnOnce(&mut Request)) -> (String, PathBuf) {
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
    fn submit(&self, script: &str) -> Submitted {
        let plan = plan(self.path());
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

    fn haul(&self, arguments: &[&str]) -> Output {
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

fn plan(directory: &Path) -> Plan {
    let recipe = directory.join("recipe.yaml");
    std::fs::write(
        &recipe,
        "name: test\nprogram: {command: [\"true\"]}\ntrain: {until: {steps: 3}}\njob: {nodes: 1, ranks_per_node: 1, cores_per_rank: 1}\n",
    )
    .unwrap();
    let request = check::Request {
        user_config: None,
        ..check::Request::new(&recipe, &[], Some("local"), Some(directory))
    };
    check::load(&request).unwrap().plan
}

#[track_caller]
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn content(path: &Path) -> Option<String> {
    std::fs::read_to_string(path)
        .ok()
        .filter(|text| text.ends_with('\n'))
        .map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<i32> {
    content(path)?.parse().ok()
}

fn alive(pid: i32) -> bool {
    Process::of(pid).is_some()
}

fn job_id(submitted: &Submitted) -> String {
    match &submitted.outcome {
        Outcome::Submitted(job) => job.clone(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn ended(root: &TestRoot, job: &str) -> haul::scheduler::End {
    wait_for("the job's end", || match root.state(job) {
        JobState::Ended(end) => Some(end),
        _ => None,
    })
}

/// The identity of a job's keeper (`job`) or of its own process (`state`).
fn process(root: &TestRoot, job: &str, file: &str) -> Process {
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
    let plan = plan(&PathBuf::from(std::env::var("HAUL_TEST_SCRATCH").unwrap()));
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
fn in_another_process(
    root: &TestRoot,
    script: &str,
    environment: &[(&str, &Path)],
) -> (std::process::Child, RunDir) {
    use std::os::unix::process::CommandExt;
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "another_process"])
        .env("HAUL_TEST_ROOT", root.path())
        .env("HAUL_TEST_SCRATCH", scratch.path())
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

#[test]
fn a_job_outlives_its_submitter_and_the_submitter_does_not_wait_for_it() {
    let root = TestRoot::new();
    let script =
        "echo started > started\nwhile [ ! -e go ]; do sleep 0.02; done\necho done > done\n";
    let (mut submitter, run) = in_another_process(&root, script, &[]);
    let group = Pid::from_raw(submitter.id() as i32);
    let keeper = process(&root, "1", "job");
    let lead = process(&root, "1", "state");
    let session = |pid: i32| nix::unistd::getsid(Some(Pid::from_raw(pid))).unwrap();
    assert_ne!(session(keeper.pid), session(submitter.id() as i32));
    assert_eq!(session(lead.pid).as_raw(), lead.pid);
    assert_ne!(session(keeper.pid), session(lead.pid));
    // The whole group of the submitter, as a closed terminal would.
    killpg(group, Signal::SIGHUP).ok();
    killpg(group, Signal::SIGKILL).unwrap();
    submitter.wait().unwrap();
    let directory = run.job(1);
    wait_for("the job", || content(&directory.join("started")));
    assert!(!directory.join("done").exists());
    assert_eq!(root.state("1"), JobState::Running);
    std::fs::write(directory.join("go"), "").unwrap();
    let end = ended(&root, "1");
    assert_eq!((end.how, end.because), (How::Exited(0), None));
    assert_eq!(content(&directory.join("done")).unwrap(), "done");
    wait_for("the keeper's end", || {
        (keeper.life() == Life::Dead).then_some(())
    });
}

#[test]
fn the_keeper_tells_the_exit_code_and_leaves_no_process_behind() {
    let root = TestRoot::new();
    let script = "setsid sleep 300 & echo $! > a\n(setsid sh -c 'echo $$ > b; trap \"\" TERM; while :; do sleep 0.1; done' &)\nwhile [ ! -s b ]; do sleep 0.01; done\necho $HAUL_JOB_ID\nexit 3\n";
    let (job, directory) = root.job(script, |request| request.grace_seconds = 0.3);
    let end = ended(&root, &job);
    assert_eq!((end.how, end.because), (How::Exited(3), None));
    for name in ["a", "b"] {
        let pid = number(&directory.join(name)).unwrap();
        assert!(!alive(pid), "{name} runs on");
    }
    assert_eq!(content(&directory.join("job.out")).unwrap(), job);
    assert!(end.started.unwrap() <= end.ended.unwrap());
}

#[test]
fn at_the_limit_a_job_is_warned_then_terminated_then_killed() {
    let root = TestRoot::new();
    let script = "trap 'echo USR1 >> got' USR1\ntrap 'echo TERM >> got' TERM\necho $HAUL_JOB_END > limit\nwhile :; do sleep 0.02; done\n";
    let (job, directory) = root.job(script, |request| {
        request.walltime_seconds = Some(1.0);
        request.warn_seconds = 0.5;
        request.grace_seconds = 0.5;
    });
    let end = ended(&root, &job);
    assert_eq!(end.how, How::Signalled(9));
    assert_eq!(end.because, Some(Because::Walltime));
    assert_eq!(end.words(), "was ended by SIGKILL at the walltime limit");
    let got = std::fs::read_to_string(directory.join("got")).unwrap();
    assert_eq!(got, "USR1\nTERM\n");
    let limit = number(&directory.join("limit")).unwrap();
    assert!(i64::from(limit) >= chrono::Utc::now().timestamp() - 60);
}

#[test]
fn a_job_that_saves_when_warned_ends_by_itself() {
    let root = TestRoot::new();
    let script = "trap 'echo saved > saved; exit 0' USR1\nwhile :; do sleep 0.02; done\n";
    let (job, directory) = root.job(script, |request| {
        request.walltime_seconds = Some(20.0);
        request.warn_seconds = 19.7;
    });
    let end = ended(&root, &job);
    assert_eq!((end.how, end.because), (How::Exited(0), None));
    assert_eq!(content(&directory.join("saved")).unwrap(), "saved");
}

#[test]
fn a_killed_keeper_is_told_and_unknown_until_its_job_is_gone() {
    let root = TestRoot::new();
    let submitted = root.submit("echo $$ > pid\nwhile :; do sleep 0.02; done\n");
    let (run, job) = (submitted.run.clone(), job_id(&submitted));
    let lead = wait_for("the job", || number(&run.job(1).join("pid")));
    kill(
        Pid::from_raw(process(&root, &job, "job").pid),
        Signal::SIGKILL,
    )
    .unwrap();
    wait_for("the keeper's end", || {
        (process(&root, &job, "job").life() == Life::Dead).then_some(())
    });
    assert!(matches!(root.state(&job), JobState::Unwatched(words) if words.contains("killed")));
    let refused = resume::resume(&run, With::Own, &|_, _| Ok(String::new())).unwrap_err();
    assert!(refused.to_string().contains("starting"), "{refused}");
    kill(Pid::from_raw(lead), Signal::SIGKILL).unwrap();
    let end = ended(&root, &job);
    assert!(
        matches!(&end.how, How::Lost(words) if words.contains("keeper") && words.contains("killed"))
    );
    let seen = view::view(&run).unwrap();
    assert_eq!(seen.state, State::Failed);
    assert!(seen.words.contains("keeper"), "{}", seen.words);
    let resumed = resume::resume(&run, With::Own, &|_, _| Ok("exit 0\n".into())).unwrap();
    assert!(matches!(resumed, Resumed::Submitted(s) if s.slot == 2));
}

#[test]
fn a_killed_job_is_told_by_signal() {
    let root = TestRoot::new();
    let submitted = root.submit("kill -SEGV $$\n");
    let end = ended(&root, &job_id(&submitted));
    assert_eq!(end.how, How::Signalled(11));
    let seen = view::view(&submitted.run).unwrap();
    assert_eq!(seen.state, State::Failed);
    assert!(seen.words.contains("SIGSEGV"), "{}", seen.words);
}

#[test]
fn two_runs_at_once_do_not_meet() {
    let root = TestRoot::new();
    let script = "pwd -P > where\necho $$ > pid\nwhile [ ! -e go ]; do sleep 0.02; done\n";
    let submitted: Vec<Submitted> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| root.submit(script)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let mut seen = std::collections::BTreeSet::new();
    for one in &submitted {
        let directory = one.run.job(1);
        let place = wait_for("the job", || content(&directory.join("where")));
        assert_eq!(Path::new(&place), directory.canonicalize().unwrap());
        assert!(seen.insert(place));
        assert!(seen.insert(job_id(one)));
    }
    let cancelled = cancel::cancel(&submitted[0].run, Ending::Now, &mut |_| {}).unwrap();
    assert_eq!(cancelled.state, State::Cancelled);
    for one in &submitted[1..] {
        assert_eq!(root.state(&job_id(one)), JobState::Running);
        assert!(alive(number(&one.run.job(1).join("pid")).unwrap()));
        std::fs::write(one.run.job(1).join("go"), "").unwrap();
        assert_eq!(ended(&root, &job_id(one)).how, How::Exited(0));
    }
}

#[test]
fn a_live_run_is_not_resumed_and_its_holder_is_named() {
    let root = TestRoot::new();
    let submitted = root.submit("while [ ! -e go ]; do sleep 0.02; done\nexit 1\n");
    let (run, job) = (submitted.run.clone(), job_id(&submitted));
    let script: submit::Script = &|_, _| Ok("sleep 0.3\n".into());
    let own = Process::own().unwrap();
    // As the job's supervisor would.
    let owner = Owner {
        job: job.clone(),
        restart: 0,
        epoch: 2,
        process: own.clone(),
    };
    assert_eq!(claim::claim(&run, 1, &owner).unwrap(), Claim::Won);
    let refused = resume::resume(&run, With::Own, script)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&format!("process {}", own.pid)),
        "{refused}"
    );
    assert!(refused.contains(&format!("job {job}")), "{refused}");
    let output = root.haul(&["resume", &run.id()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is running"));
    assert_eq!(run.numbers("jobs"), [1]);
}

#[test]
fn of_many_resumes_at_once_one_opens_the_next_slot() {
    let root = TestRoot::new();
    let submitted = root.submit("exit 1\n");
    ended(&root, &job_id(&submitted));
    let run = &submitted.run;
    let script: submit::Script = &|_, _| Ok("sleep 300\n".into());
    let outcomes: Vec<Result<Resumed, String>> = std::thread::scope(|scope| {
        let one = || resume::resume(run, With::Own, &|_, _| Ok("sleep 300\n".into()));
        let threads: Vec<_> = (0..5).map(|_| scope.spawn(one)).collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap().map_err(|e| e.to_string()))
            .collect()
    });
    let opened = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(opened, 1, "{outcomes:?}");
    assert_eq!(run.numbers("jobs"), [1, 2]);
    assert_eq!(root.jobs().len(), 2);
    assert!(resume::resume(run, With::Own, script).is_err());
    // Whoever comes late for the first slot finds it closed.
    let late = Owner {
        job: "1".into(),
        restart: 0,
        epoch: 99,
        process: Process::own().unwrap(),
    };
    assert!(matches!(
        claim::claim(run, 1, &late).unwrap(),
        Claim::Double(_)
    ));
}

/// A process that is dead for certain.
fn dead() -> Process {
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

#[test]
fn resume_completes_an_intent_that_was_lost() {
    let root = TestRoot::new();
    let submitted = root.submit("exit 0\n");
    ended(&root, &job_id(&submitted));
    // The same run as its submitter would have left it, killed behind the intent.
    let run = select::create(&root.root(), "lost").unwrap();
    submit::open(&run, 1).unwrap();
    std::fs::write(
        run.job(1).join("submitter-1"),
        serde_json::to_vec(&dead()).unwrap(),
    )
    .unwrap();
    let haul = submit::own_binary(&submitted.run).unwrap();
    let script: submit::Script = &|_, _| Ok("echo ran >> ran\n".into());
    submit::prepare(&run, 1, &plan(root.path()), &haul, script).unwrap();
    let mut journal = Journal::open(&run, "submitter").unwrap();
    journal
        .append(Event::Intent {
            slot: 1,
            token: view::token(&run, 1),
        })
        .unwrap();
    let seen = view::view(&run).unwrap();
    assert_eq!(seen.state, State::Planned);
    assert!(seen.words.contains("`haul resume`"), "{}", seen.words);
    let Resumed::Submitted(resumed) = resume::resume(&run, With::Own, script).unwrap() else {
        panic!("not submitted");
    };
    assert_eq!(resumed.slot, 1);
    assert_eq!(ended(&root, &job_id(&resumed)).how, How::Exited(0));
    assert_eq!(content(&run.job(1).join("ran")).unwrap(), "ran");
}

#[test]
fn a_job_whose_submitter_died_before_the_answer_was_written_is_found_not_doubled() {
    let root = TestRoot::new();
    let submitted = root.submit("while [ ! -e go ]; do sleep 0.02; done\n");
    let run = &submitted.run;
    wait_for("the job", || {
        (root.state(&job_id(&submitted)) == JobState::Running).then_some(())
    });
    // Without the line of the answer, and with its writer gone.
    let journal = std::fs::read_dir(run.journal())
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "jsonl"))
        .unwrap();
    let text = std::fs::read_to_string(&journal).unwrap();
    let kept: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains("submitted"))
        .collect();
    assert_eq!(kept.len() + 1, text.lines().count());
    std::fs::write(&journal, kept.join("\n") + "\n").unwrap();
    std::fs::write(
        run.job(1).join("submitter-1"),
        serde_json::to_vec(&dead()).unwrap(),
    )
    .unwrap();
    let seen = view::view(run).unwrap();
    assert_eq!(seen.job, Some(job_id(&submitted)));
    let refused = resume::resume(run, With::Own, &|_, _| Ok(String::new())).unwrap_err();
    assert!(refused.to_string().contains("starting"), "{refused}");
    assert_eq!(root.jobs().len(), 1);
}

#[test]
fn a_submission_given_up_on_cannot_start_late() {
    let root = TestRoot::new();
    let (job, _) = root.job("true\n", |_| {});
    ended(&root, &job);
    // A second job as its submitter would have left it, killed before the keeper was started.
    let late = root.root().local_job("77");
    std::fs::create_dir_all(&late).unwrap();
    let mut asked: serde_json::Value = serde_json::from_slice(
        &std::fs::read(root.root().local_job(&job).join("request")).unwrap(),
    )
    .unwrap();
    asked["submitter"] = serde_json::to_value(dead()).unwrap();
    let script = root.path().join("late.sh");
    std::fs::write(
        &script,
        format!("echo ran > {}/ran\n", root.path().display()),
    )
    .unwrap();
    asked["request"]["script"] = script.display().to_string().into();
    std::fs::write(late.join("request"), asked.to_string()).unwrap();
    let JobState::Ended(end) = root.state("77") else {
        panic!("not given up");
    };
    assert!(matches!(end.how, How::NotStarted(_)));
    let status = Command::new(HAUL)
        .args(["keep", "run"])
        .arg(&late)
        .status()
        .unwrap();
    assert!(status.success());
    assert!(!root.path().join("ran").exists());
}

#[test]
fn cancel_ends_a_job_without_a_supervisor_and_a_second_cancel_is_fine() {
    let root = TestRoot::new();
    let submitted = root.submit("sleep 300 & echo $! > pid\nwait\n");
    let run = &submitted.run;
    let pid = wait_for("the job", || number(&run.job(1).join("pid")));
    let output = root.haul(&["cancel", &run.id()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("cancelled"));
    assert!(!alive(pid));
    let again = root.haul(&["cancel", "last", "--json"]);
    assert_eq!(again.status.code(), Some(0));
    let document: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(document["schema"], "haul.cancel/1");
    assert_eq!(document["run"]["state"], "cancelled");
    let (entries, damaged) = journal::read(run).unwrap();
    let tombstones = entries
        .iter()
        .filter(|entry| matches!(entry.event, Event::Tombstone { .. }));
    assert_eq!((tombstones.count(), damaged), (1, 0));
}

#[test]
fn faults_freeze_heal_and_switch_off_one_node() {
    let root = TestRoot::new();
    let faults = tempfile::tempdir().unwrap();
    let script = "echo 'echo $$ > pid$2; while :; do sleep 0.02; done' > launch\nsh launch --node 0 &\nsh launch --node 1 &\nwait\n";
    let (mut submitter, run) = in_another_process(&root, script, &[("HAUL_FAULTS", faults.path())]);
    submitter.kill().unwrap();
    submitter.wait().unwrap();
    let pid = |node: u32| {
        wait_for("the node", || {
            number(&run.job(1).join(format!("pid{node}")))
        })
    };
    let (first, second) = (pid(0), pid(1));
    let stopped = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    let ask = |word: &str| std::fs::write(faults.path().join("local1"), word).unwrap();
    ask("freeze\n");
    wait_for("the freeze", || stopped(second).then_some(()));
    assert!(!stopped(first));
    ask("heal\n");
    wait_for("the heal", || (!stopped(second)).then_some(()));
    ask("off\n");
    wait_for("the end of the node", || (!alive(second)).then_some(()));
    assert!(alive(first));
}

/// `haul run` of a recipe whose job does `setup` before its supervisor starts.
fn run_command(root: &TestRoot, setup: &str) -> std::process::Child {
    let recipe = root.path().join("run.yaml");
    let indented = setup.replace('\n', "\n    ");
    std::fs::write(
        &recipe,
        format!(
            "name: follow\nprogram: {{command: [\"true\"]}}\ntrain: {{until: {{steps: 3}}}}\njob: {{nodes: 1, ranks_per_node: 1, cores_per_rank: 1}}\nenvironment:\n  setup: |\n    {indented}\n"
        ),
    )
    .unwrap();
    Command::new(HAUL)
        .arg("run")
        .arg(&recipe)
        .env("HAUL_ROOT", root.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn leaving_a_follower_changes_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGKILL] {
        let root = TestRoot::new();
        let go = root.path().join("go");
        let setup = format!(
            "while [ ! -e {} ]; do sleep 0.02; done\nexit 7",
            go.display()
        );
        let follower = run_command(&root, &setup);
        wait_for("the job", || {
            let jobs = root.jobs();
            let job = jobs.first()?;
            (root.state(job) == JobState::Running).then_some(())
        });
        // Long enough to be following, and not needed for the assertions.
        std::thread::sleep(Duration::from_millis(200));
        kill(Pid::from_raw(follower.id() as i32), signal).unwrap();
        let output = follower.wait_with_output().unwrap();
        if signal != Signal::SIGKILL {
            assert_eq!(output.status.code(), Some(5), "{output:?}");
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(words.contains("the run goes on"), "{words}");
            assert!(words.contains("haul cancel follow-"), "{words}");
        }
        assert_eq!(root.state("1"), JobState::Running);
        std::fs::write(&go, "").unwrap();
        assert_eq!(ended(&root, "1").how, How::Exited(7));
    }
}

#[test]
fn a_follower_tells_a_job_that_failed_before_its_supervisor_with_what_it_wrote() {
    let root = TestRoot::new();
    let follower = run_command(&root, "echo no such module >&2\nexit 7");
    let output = follower.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("exited with code 7"), "{told}");
    assert!(told.contains("no such module"), "{told}");
    assert!(told.contains("haul resume follow-"), "{told}");
}

#[test]
fn what_is_kept_of_a_run_that_is_over_is_not_believed_once_it_goes_on() {
    let root = TestRoot::new();
    let (mut submitter, run) = in_another_process(&root, "exit 1\n", &[]);
    ended(&root, "1");
    submitter.kill().unwrap();
    submitter.wait().unwrap();
    assert_eq!(view::view(&run).unwrap().state, State::Failed);
    assert!(run.path().join("summary.json").exists());
    let script: submit::Script = &|_, _| Ok("while [ ! -e go ]; do sleep 0.02; done\n".into());
    resume::resume(&run, With::Own, script).unwrap();
    let seen = view::view(&run).unwrap();
    assert_eq!((seen.slot, seen.job.as_deref()), (2, Some("2")));
    assert!(!seen.state.is_over(), "{seen:?}");
}

#[test]
fn status_and_logs_speak_json_and_name_candidates() {
    let root = TestRoot::new();
    let empty = root.haul(&["status"]);
    assert_eq!(empty.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&empty.stdout).contains("no runs"));
    let mut runs = Vec::new();
    for script in ["echo from the job\nexit 0\n", "exit 0\n"] {
        let (mut submitter, run) = in_another_process(&root, script, &[]);
        submitter.kill().unwrap();
        submitter.wait().unwrap();
        ended(&root, &(runs.len() + 1).to_string());
        runs.push(run);
    }
    let [first, second] = [&runs[0], &runs[1]];
    for _ in 0..2 {
        // The second time from what was kept of runs that are over.
        let output = root.haul(&["status", "--json"]);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["schema"], "haul.status/1");
        assert_eq!(document["total"], 2);
        let ids: Vec<&str> = document["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, [second.id(), first.id()]);
        assert_eq!(document["runs"][0]["state"], "failed");
    }
    assert!(first.path().join("summary.json").exists());
    let output = root.haul(&["status", "te"]);
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains(&first.id()) && words.contains(&second.id()),
        "{words}"
    );
    let output = root.haul(&["logs", "--job", &first.id()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from the job\n");
}
