//! What one does with a run that is over: report, sample, logs, status; JSON documents; the shell trainer.

use crate::field::{Field, STEPS, Told};
use serde_json::Value;

/// The schema of the one document that a command prints with `--json`.
#[track_caller]
fn document(field: &Field, code: i32, arguments: &[&str]) -> Value {
    let told = Told::of(field.haul(&[arguments, &["--json"]].concat()));
    assert_eq!(told.code, code, "{arguments:?} {told:#?}");
    let document = told.json();
    let name = document["schema"].as_str().unwrap_or_default();
    let (name, version) = name
        .split_once('/')
        .unwrap_or_else(|| panic!("{document:#}"));
    assert!(name.starts_with("haul."), "{arguments:?} {name}");
    assert!(version.parse::<u32>().is_ok(), "{arguments:?} {version}");
    document
}

#[test]
fn a_run_that_is_over_is_reported_sampled_and_read() {
    let field = Field::new();
    let run = field.run(&[]);
    run.says("step 60/60").says("validation loss");
    let of = field.newest();
    let id = of.id();

    let report = Told::of(field.haul(&["report", "last"]));
    assert_eq!(report.code, 0, "{report:#?}");
    report.says(&id).says("finished at step 60");
    let page = std::fs::read_to_string(of.dir.report().join("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
    assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"));
    let fetched = ["src=\"http", "href=\"http", "url(http", "@import"];
    assert!(fetched.iter().all(|word| !page.contains(word)));
    let markdown = Told::of(field.haul(&["report", "last", "--md"]));
    markdown.says("# ").says("| ");

    let sample = Told::of(field.haul(&["sample", "last", "--tokens", "64", "--prompt", "Of "]));
    assert_eq!(sample.code, 0, "{sample:#?}");
    assert!(sample.out.starts_with("Of "), "{sample:#?}");
    // Bytes that are no UTF-8 count as one character each.
    assert!(sample.out.chars().count() > 32, "{sample:#?}");
    sample.says("checkpoint of step 60");
    let again = Told::of(field.haul(&["sample", "last", "--tokens", "64", "--prompt", "Of "]));
    assert_eq!(again.out, sample.out);
    let early = [
        "sample",
        "last",
        "--tokens",
        "64",
        "--prompt",
        "Of ",
        "--checkpoint",
        "5",
    ];
    let early = Told::of(field.haul(&early));
    early.says("checkpoint of step 5");
    assert_ne!(early.out, sample.out);

    let logs = Told::of(field.haul(&["logs", "last"]));
    assert_eq!(logs.code, 0, "{logs:#?}");
    let job = Told::of(field.haul(&["logs", "last", "--job"]));
    job.says("haul: finished at step 60");
    let status = Told::of(field.haul(&["status"]));
    status.says(&id).says("finished");
    let one = Told::of(field.haul(&["status", &id]));
    one.says("finished at step 60");
    field.assert_clean();
}

#[test]
fn pruned_checkpoints_leave_what_the_run_goes_on_from() {
    let field = Field::new();
    field.run(&[]);
    let of = field.newest();
    let sample = ["sample", "last", "--tokens", "32", "--prompt", "Of "];
    let before = Told::of(field.haul(&sample));
    let saved = || {
        let listing = std::fs::read_dir(of.dir.checkpoints(1)).unwrap();
        listing.count() as u64
    };
    let all = saved();
    let dry = document(&field, 0, &["prune"]);
    assert_eq!(dry["items"].as_array().unwrap().len() as u64, all - 1);
    assert!(dry["bytes"].as_u64() > Some(100_000), "{dry:#}");
    assert_eq!((saved(), all >= STEPS / 5), (all, true));
    let kept = Told::of(field.haul(&["prune", "--keep", "3", "--yes"]));
    kept.says("freed");
    assert_eq!((kept.code, saved()), (0, 3), "{kept:#?}");
    Told::of(field.haul(&["prune", "--yes"])).says("checkpoints/1/step-55");
    assert_eq!(saved(), 1);
    Told::of(field.haul(&["prune"])).says("nothing to free");
    assert_eq!(Told::of(field.haul(&sample)).out, before.out);
}

#[test]
fn an_archive_is_reported_like_the_run_and_holds_no_checkpoint_and_no_secret() {
    let field = Field::new();
    field.run(&["train.until.steps=20"]);
    let of = field.newest();
    let desk = tempfile::tempdir().unwrap();
    let path = |name: &str| desk.path().join(name).to_str().unwrap().to_owned();
    let report = |arguments: &[&str]| {
        let told = Told::of(field.haul(&[&["report", "--md"], arguments].concat()));
        assert_eq!(told.code, 0, "{told:#?}");
        told.out
    };
    let told = document(&field, 0, &["archive", "last", &path("a.tar")]);
    assert!(told["files"].as_u64() > Some(15), "{told:#}");
    let unpacked = std::process::Command::new("tar")
        .args(["-xf", &path("a.tar"), "-C", desk.path().to_str().unwrap()])
        .status()
        .unwrap();
    assert!(unpacked.success());
    let copy = path(&of.id());
    assert_eq!(report(&["--dir", &copy]), report(&["last"]));
    let kept = std::fs::read_to_string(format!("{copy}/report/report.md")).unwrap();
    assert_eq!(kept, report(&["last"]));

    Told::of(field.haul(&["archive", "last", &path("b")])).says("without checkpoints");
    let names = |directory: &str| {
        let out = std::process::Command::new("find")
            .args([directory, "-type", "f", "-printf", "%P %s\n"])
            .output()
            .unwrap();
        let mut names: Vec<String> = String::from_utf8(out.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        names.retain(|name| !name.starts_with("report/"));
        names.sort();
        names
    };
    assert_eq!(names(&path("b")), names(&copy));
    let all = names(&copy).join("\n");
    for part in [
        "recipe.yaml ",
        "provenance.json ",
        "jobs/1/plan.json ",
        "journal/",
        "attempts/1/metrics.jsonl ",
        "attempts/1/verdict.json ",
        "attempts/1/binding.jsonl ",
        "attempts/1/logs/",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    assert!(of.dir.attempt(1).join("secret").exists());
    assert!(
        !all.contains("secret") && !all.contains("safetensors"),
        "{all}"
    );

    // What stands is left alone, other kinds are refused, and nothing half made is left.
    let again = Told::of(field.haul(&["archive", "last", &path("a.tar")]));
    again.says("exists and is left as it is");
    let other = Told::of(field.haul(&["archive", "last", &path("a.tar.gz")]));
    other.says("neither a tar file");
    let nowhere = Told::of(field.haul(&["archive", "last", &path("none/a.tar")]));
    assert_eq!((again.code, other.code, nowhere.code), (1, 1, 1));
    assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 3);
}

#[test]
fn every_command_with_json_prints_one_document_with_its_schema() {
    let field = Field::new();
    let recipe = field.recipe().to_owned();
    document(&field, 0, &["check", &recipe]);
    document(&field, 0, &["check", &recipe, "--show"]);
    document(&field, 2, &["check", &recipe, "--set", "model.layers=0"]);
    document(&field, 0, &["plan", &recipe]);
    document(&field, 2, &["plan", &recipe, "--set", "batch.micro=x"]);
    document(&field, 0, &["render", &recipe]);
    document(&field, 0, &["status"]);
    // A machine may lack something, which it says too.
    let told = Told::of(field.haul(&["doctor", "--json"]));
    assert!(told.json()["schema"].is_string(), "{told:#?}");

    let run = document(&field, 0, &["run", &recipe]);
    assert_eq!(run["run"]["view"]["progress"]["step"], STEPS);
    let report = document(&field, 0, &["report", "last"]);
    assert_eq!(report["steps"]["last"], STEPS);
    document(&field, 0, &["status"]);
    document(&field, 0, &["status", "last"]);
    document(&field, 0, &["logs", "last"]);
    document(&field, 0, &["cancel", "last"]);
    let submitted = document(&field, 0, &["submit", &recipe]);
    let second = submitted["run"].as_str().unwrap();
    let cancelled = document(&field, 0, &["cancel", second]);
    assert_eq!(cancelled["run"]["state"], "cancelled", "{cancelled:#}");
    let resumed = document(&field, 0, &["resume", second]);
    assert_eq!(resumed["slot"], 2);
    assert_eq!(Told::of(field.haul(&["logs", "-f", second])).code, 0);
    let finished = document(&field, 0, &["resume", second]);
    assert_eq!(finished["job"], Value::Null);
    document(&field, 0, &["sample", second, "--tokens", "8"]);
    field.assert_clean();
}

#[test]
fn the_recipe_of_the_shell_trainer_runs_to_its_end() {
    let field = Field::new();
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/shell-trainer.yaml");
    // Its steps without their pauses.
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/shell-trainer.sh");
    let command = format!("program.command=[{script}, 200, 0, 20]");
    let told = Told::of(field.haul(&["run", recipe, "--set", &command]));
    assert_eq!(told.code, 0, "{told:#?}");
    let run = field.newest();
    assert_eq!(run.bench.steps(1), (1..=200).collect::<Vec<_>>());
    let report = document(&field, 0, &["report", "last"]);
    assert_eq!(report["loss"]["train"][0][1], 5.0);
    assert!(report["loss"]["last_train"].as_f64().unwrap() < 1.2);
    Told::of(field.haul(&["logs", "last"])).says("rank 1 of 2 starts at step 0");
    Told::of(field.haul(&["status", "last"])).says("finished at step 200");
    let sample = Told::of(field.haul(&["sample", "last"]));
    assert_ne!(sample.code, 0, "{sample:#?}");
    println!("{}", sample.err);
    assert!(run.dir.report().join("report.html").exists());
    field.assert_clean();
}
