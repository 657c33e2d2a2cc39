//! Roots made by hand: what goes, what stays, and that removal does just that.

use super::*;
use crate::store::checkpoints::search;
use crate::store::journal::{Event, Journal, Outcome};
use haul_runtime::contract::checkpoint::{FileEntry, MANIFEST, Manifest};

const KEEP: Wish = Wish {
    keep: 1,
    runs_older: None,
};

fn attempt(attempt: u32, parent: Option<(u32, u64)>) -> Event {
    let parent = parent.map(|(attempt, step)| Point { attempt, step });
    Event::Attempt {
        attempt,
        slot: 1,
        parent,
    }
}

fn finished(outcome: Outcome) -> Event {
    Event::Finished {
        outcome,
        words: "x".into(),
    }
}

/// A run of the bundled trainer whose journal says this.
fn run(root: &Root, id: &str, events: Vec<Event>) -> RunDir {
    let run = root.run(id);
    std::fs::create_dir_all(run.job(1)).unwrap();
    std::fs::write(
        run.plan(1),
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/report/quickstart-261130-s7nt/jobs/1/plan.json"
        )),
    )
    .unwrap();
    let mut journal = Journal::open(&run, "supervisor").unwrap();
    for event in events {
        journal.append(event).unwrap();
    }
    run
}

/// A whole checkpoint of 1000 bytes and its manifest.
fn save(run: &RunDir, attempt: u32, step: u64) -> PathBuf {
    let directory = directory(run, Point { attempt, step });
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("a.safetensors"), [0; 1000]).unwrap();
    manifest(run, attempt, step, "a.safetensors", 1000);
    directory
}

fn manifest(run: &RunDir, attempt: u32, step: u64, path: &str, bytes: u64) {
    let manifest = Manifest {
        schema: haul_runtime::contract::checkpoint::SCHEMA.into(),
        attempt,
        step,
        parent: None,
        fingerprint: "f".into(),
        files: vec![FileEntry {
            path: path.into(),
            bytes,
            blake3: None,
        }],
        trainer: None,
        pieces: Vec::new(),
    };
    let path = directory(run, Point { attempt, step }).join(MANIFEST);
    std::fs::write(path, manifest.to_text().unwrap()).unwrap();
}

/// First paths within the runs.
fn paths(items: &[Item]) -> Vec<String> {
    let of = |item: &Item| {
        let path = item.paths[0].display().to_string();
        path.split_once('/')
            .map_or(path.clone(), |(_, rest)| rest.to_owned())
    };
    items.iter().map(of).collect()
}

#[test]
fn old_checkpoints_go_and_the_newest_of_the_lineage_stays() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let run = run(
        &root,
        "a-261130-aaaa",
        vec![
            attempt(1, None),
            attempt(2, Some((1, 20))),
            attempt(3, Some((1, 10))),
            finished(Outcome::Failed),
        ],
    );
    // 20 and attempt 2 are another branch; 40 is damaged, 50 was never completed.
    for (attempt, step) in [(1, 5), (1, 10), (1, 20), (2, 30), (3, 20), (3, 30), (3, 40)] {
        save(&run, attempt, step);
    }
    std::fs::write(run.checkpoints(3).join("step-40/a.safetensors"), "torn").unwrap();
    std::fs::create_dir(run.checkpoints(3).join("step-50")).unwrap();
    // Attempt 9 is known to nobody.
    save(&run, 9, 90);
    let before = search(&run, &journal::read(&run).unwrap().0, None).newest;
    let items = find(&root, KEEP).unwrap();
    assert_eq!(
        paths(&items),
        [
            "checkpoints/1/step-10",
            "checkpoints/1/step-20",
            "checkpoints/1/step-5",
            "checkpoints/2/step-30",
            "checkpoints/3/step-20",
            "checkpoints/3/step-50",
        ]
    );
    assert!(items[0].bytes > 1000 && items[0].bytes < 2000, "{items:?}");
    let more = Wish { keep: 3, ..KEEP };
    assert_eq!(find(&root, more).unwrap().len(), 4);
    let done = remove(&root, KEEP, items);
    assert!(done.iter().all(|item| item.error.is_none()), "{done:?}");
    assert!(find(&root, KEEP).unwrap().is_empty());
    let after = search(&run, &journal::read(&run).unwrap().0, None).newest;
    assert_eq!(after, before);
    assert_eq!(
        after,
        Some(Point {
            attempt: 3,
            step: 30
        })
    );
    let left = |attempt| std::fs::read_dir(run.checkpoints(attempt)).unwrap().count();
    assert_eq!((left(1), left(2), left(3), left(9)), (0, 0, 2, 1));
}

#[test]
fn runs_that_are_not_over_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let all = Wish {
        keep: 1,
        runs_older: Some(Duration::ZERO),
    };
    // Without an end; stopped with a checkpoint; opened again.
    let reopened = Event::Reopened {
        slot: 2,
        upgrade: false,
    };
    let ends = [
        vec![],
        vec![finished(Outcome::Stopped)],
        vec![finished(Outcome::Failed), reopened],
    ];
    for (end, id) in ends
        .into_iter()
        .zip(["a-261130-aaaa", "b-261130-bbbb", "c-261130-cccc"])
    {
        let run = run(&root, id, [vec![attempt(1, None)], end].concat());
        save(&run, 1, 5);
        save(&run, 1, 10);
    }
    // Nor where none is whole: a person decides.
    let broken = run(
        &root,
        "d-261130-dddd",
        vec![attempt(1, None), finished(Outcome::Failed)],
    );
    for step in [5, 10] {
        let path = save(&broken, 1, step);
        std::fs::write(path.join("a.safetensors"), "torn").unwrap();
    }
    assert_eq!(find(&root, KEEP).unwrap(), []);
    assert_eq!(paths(&find(&root, all).unwrap()), ["d-261130-dddd"]);
}

#[test]
fn a_run_that_goes_on_after_the_look_keeps_all() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let run = run(
        &root,
        "a-261130-aaaa",
        vec![attempt(1, None), finished(Outcome::Cancelled)],
    );
    save(&run, 1, 5);
    save(&run, 1, 10);
    let items = find(&root, KEEP).unwrap();
    assert_eq!(paths(&items), ["checkpoints/1/step-5"]);
    let mut journal = Journal::open(&run, "resumer").unwrap();
    journal
        .append(Event::Reopened {
            slot: 2,
            upgrade: false,
        })
        .unwrap();
    let done = remove(&root, KEEP, items);
    assert_eq!(done[0].error.as_deref(), Some("it is needed by now"));
    assert!(run.checkpoints(1).join("step-5").exists());
    assert!(text(&root, &done, true, None, Style::PLAIN).contains("freed 0"));
}

#[test]
fn what_a_program_of_its_own_wrote_goes_with_its_checkpoint_unless_shared() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let run = run(
        &root,
        "a-261130-aaaa",
        vec![attempt(1, None), finished(Outcome::Finished)],
    );
    let base = run.checkpoints(1);
    for (step, name) in [
        (5, "model-5"),
        (7, "shared"),
        (8, "shared"),
        (10, "model-10"),
        (11, "model-10/part"),
    ] {
        let own = base.join(name);
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("w"), [0; 50]).unwrap();
        let link = base.join(format!("step-{step}"));
        std::fs::create_dir(&link).unwrap();
        std::os::unix::fs::symlink(Path::new("..").join(name), link.join(LINK)).unwrap();
        manifest(&run, 1, step, "data/w", 50);
    }
    let items = find(&root, KEEP).unwrap();
    let extra: Vec<usize> = items.iter().map(|item| item.paths.len()).collect();
    // 10, 5, 7, 8: what 10 wrote holds what 11 needs; 7 and 8 share theirs.
    assert_eq!(paths(&items).len(), 4);
    assert_eq!(extra, [1, 2, 2, 1], "{items:?}");
    let done = remove(&root, KEEP, items);
    assert!(done.iter().all(|item| item.error.is_none()), "{done:?}");
    let mut left: Vec<String> = std::fs::read_dir(&base)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["model-10", "step-11"]);
    assert!(base.join("step-11/data/w").exists());
}

#[test]
fn old_runs_go_whole_and_with_them_their_binary() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let names: Vec<String> = ["a", "b", "c", "d"]
        .iter()
        .map(|letter| letter.repeat(64))
        .collect();
    std::fs::create_dir(root.bins()).unwrap();
    for name in &names {
        let file = std::fs::File::create(root.bin(name)).unwrap();
        file.set_modified(SystemTime::now() - RESTED * 2).unwrap();
    }
    // c is about to be named by a run, d by one that is being made.
    std::fs::File::open(root.bin(&names[2]))
        .unwrap()
        .set_modified(SystemTime::now())
        .unwrap();
    let hidden = root.run(".x-261130-xxxx.1+2.tmp");
    std::fs::create_dir_all(hidden.job(1)).unwrap();
    std::fs::write(hidden.job(1).join(BINARY), &names[3]).unwrap();
    let old = run(
        &root,
        "a-261130-aaaa",
        vec![attempt(1, None), finished(Outcome::Finished)],
    );
    std::fs::write(old.job(1).join(BINARY), &names[0]).unwrap();
    assert_eq!(paths(&find(&root, KEEP).unwrap()), [names[1].clone()]);
    let all = Wish {
        keep: 1,
        runs_older: Some(Duration::ZERO),
    };
    let young = Wish {
        keep: 1,
        runs_older: Some(Duration::from_secs(60)),
    };
    assert_eq!(find(&root, young).unwrap().len(), 1);
    let items = find(&root, all).unwrap();
    assert_eq!(paths(&items), ["a-261130-aaaa", &names[0], &names[1]]);
    assert!(
        text(&root, &items, false, None, Style::PLAIN).contains("nothing is removed without --yes")
    );
    assert!(old.path().exists());
    let done = remove(&root, all, items);
    assert!(done.iter().all(|item| item.error.is_none()), "{done:?}");
    assert!(!old.path().exists() && !root.bin(&names[0]).exists() && !root.bin(&names[1]).exists());
    assert!(root.bin(&names[2]).exists() && root.bin(&names[3]).exists());
    // Copies behind a link may serve other roots.
    let other = Root::new(dir.path().join("other"));
    std::fs::create_dir(other.path()).unwrap();
    std::fs::File::open(root.bin(&names[2]))
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    std::os::unix::fs::symlink(root.bins(), other.bins()).unwrap();
    assert_eq!(find(&other, KEEP).unwrap(), []);
    assert_eq!(find(&Root::new(dir.path().join("none")), KEEP).unwrap(), []);
}
