//! Runs beside each other, slots, resume, cancel.

use crate::harness::*;
use haul::actions::cancel::{self, How as Ending};
use haul::actions::resume::{self, Resumed, With};
use haul::actions::standing::State;
use haul::actions::submit::{self, Submitted};
use haul::actions::view;
use haul::scheduler::{How, JobState};
use haul::store::claim::{self, Claim, Owner};
use haul::store::identity::Process;
use haul::store::journal::{self, Event, Journal};
use haul::store::{StoreError, select};
use std::path::Path;

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

#[test]
fn a_run_goes_on_with_its_own_binary_unless_upgraded() {
    let root = TestRoot::new();
    let submitted = root.submit("exit 1\n");
    ended(&root, &job_id(&submitted));
    let run = &submitted.run;
    let own = submit::own_binary(run).unwrap();
    let script: submit::Script =
        &|_, context| Ok(format!("echo {} > haul\nexit 1\n", context.haul.display()));
    let used = |slot: u32| wait_for("the job", || content(&run.job(slot).join("haul")));
    resume::resume(run, With::Own, script).unwrap();
    assert_eq!(used(2), own.display().to_string());
    ended(&root, "2");
    // Another binary that does the same.
    let other = root.path().join("other");
    let mut bytes = std::fs::read(HAUL).unwrap();
    bytes.push(b'\n');
    std::fs::write(&other, bytes).unwrap();
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    resume::resume(run, With::Upgrade(&other), script).unwrap();
    assert_ne!(used(3), own.display().to_string());
    ended(&root, "3");
    resume::resume(run, With::Own, script).unwrap();
    assert_eq!(used(4), used(3));
    let (entries, _) = journal::read(run).unwrap();
    let upgrades: Vec<bool> = entries
        .iter()
        .filter_map(|entry| match entry.event {
            Event::Reopened { upgrade, .. } => Some(upgrade),
            _ => None,
        })
        .collect();
    assert_eq!(upgrades, [false, true, false]);
}

#[test]
fn resume_completes_an_intent_that_was_lost() {
    let root = TestRoot::new();
    let submitted = root.submit("exit 0\n");
    ended(&root, &job_id(&submitted));
    // The same run as its submitter would have left it, killed behind the intent.
    let run = select::create(&root.root(), "lost", |_, _| Ok::<_, StoreError>(())).unwrap();
    submit::open(&run, 1).unwrap();
    std::fs::write(
        run.job(1).join("submitter-1"),
        serde_json::to_vec(&dead()).unwrap(),
    )
    .unwrap();
    let haul = submit::own_binary(&submitted.run).unwrap();
    let script: submit::Script = &|_, _| Ok("echo ran >> ran\n".into());
    submit::prepare(&run, 1, &plan(), &haul, script).unwrap();
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
