//! The local scheduler: keepers, limits, kills, faults of nodes.

use crate::harness::*;
use haul::actions::resume::{self, Resumed, With};
use haul::actions::standing::State;
use haul::actions::view;
use haul::scheduler::{Because, How, JobState};
use haul::store::identity::Life;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::process::Command;
use std::time::Duration;

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
fn a_job_holds_no_descriptor_of_the_submitters_shell() {
    let root = TestRoot::new();
    let recipe = root.path().join("run.yaml");
    // Ends by itself, so that a pipe that is held shows as a failure and not as a hang.
    std::fs::write(
        &recipe,
        "name: pipe\nprogram: {command: [\"true\"]}\ntrain: {until: {steps: 3}}\njob: {nodes: 1, ranks_per_node: 1, cores_per_rank: 1}\nenvironment:\n  setup: |\n    for i in $(seq 200); do [ -e go ] || sleep 0.1; done\n    exit 7\n",
    )
    .unwrap();
    let output = Command::new("bash")
        .args(["-c", r#""$0" submit "$1" 3>&1 4>&1 | cat"#, HAUL])
        .arg(&recipe)
        .env("HAUL_ROOT", root.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let state = root.state("1");
    assert!(
        matches!(state, JobState::Running | JobState::Queued),
        "{state:?}"
    );
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
fn faults_freeze_heal_and_switch_off_one_node() {
    let root = TestRoot::new();
    let faults = tempfile::tempdir().unwrap();
    let script = "echo 'echo $$ > pid$2; i=0; while :; do i=$((i+1)); echo $i > count$2; sleep 0.02; done' > launch\nsh launch --node 0 &\nsh launch --node 1 &\nwait\n";
    let (mut submitter, run) = in_another_process(&root, script, &[("HAUL_FAULTS", faults.path())]);
    submitter.kill().unwrap();
    submitter.wait().unwrap();
    let directory = run.job(1);
    let pid = |node: u32| wait_for("the node", || number(&directory.join(format!("pid{node}"))));
    let (first, second) = (pid(0), pid(1));
    // By what it does: a shell whose child is stopped before it executes is not `stopped` itself.
    // It may be stopped between making the file and writing the number, too.
    let count =
        |node: u32| std::fs::read(directory.join(format!("count{node}"))).unwrap_or_default();
    let frozen = |node: u32| {
        let before = count(node);
        std::thread::sleep(Duration::from_millis(300));
        count(node) == before
    };
    let ask = |word: &str| std::fs::write(faults.path().join("local1"), word).unwrap();
    ask("freeze\n");
    wait_for("the freeze", || frozen(1).then_some(()));
    wait_for("the other node", || (!frozen(0)).then_some(()));
    assert!(frozen(1));
    ask("heal\n");
    wait_for("the heal", || (!frozen(1)).then_some(()));
    ask("off\n");
    wait_for("the end of the node", || (!alive(second)).then_some(()));
    assert!(alive(first));
}
