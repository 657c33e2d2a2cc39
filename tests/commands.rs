//! Commands around recipes as a shell sees them: exit codes, streams, JSON, files.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `haul` in `directory`, where nobody has a config.
fn haul(directory: &Path, args: &[&str]) -> Output {
    command(directory, args).output().unwrap()
}

fn command(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command
        .args(args)
        .current_dir(directory)
        .env_remove("HAUL_ROOT")
        .env_remove("HAUL_MACHINE")
        .env("XDG_CONFIG_HOME", directory.join("config"));
    command
}

fn code(out: &Output) -> i32 {
    out.status.code().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn init_writes_a_recipe_that_checks_plans_and_renders_and_never_overwrites() {
    let desk = tempfile::tempdir().unwrap();
    let out = haul(desk.path(), &["init", "new"]);
    assert_eq!(code(&out), 0, "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("haul plan new/recipe.yaml"));
    for args in [
        ["check", "new/recipe.yaml"],
        ["plan", "new/recipe.yaml"],
        ["render", "new/recipe.yaml"],
    ] {
        let out = haul(desk.path(), &args);
        assert_eq!(code(&out), 0, "{}", text(&out.stderr));
        assert!(!out.stdout.is_empty());
    }
    let recipe = desk.path().join("new/recipe.yaml");
    std::fs::write(&recipe, "mine").unwrap();
    let out = haul(desk.path(), &["init", "new"]);
    assert_eq!(code(&out), 1);
    assert!(text(&out.stderr).contains("exists and is left as it is"));
    assert_eq!(std::fs::read_to_string(&recipe).unwrap(), "mine");
}

#[test]
fn a_wrong_command_line_is_one_json_document_where_json_is_asked_for() {
    let desk = tempfile::tempdir().unwrap();
    for (args, words) in [
        (
            &["status", "--nonsense", "--json"][..],
            "unexpected argument '--nonsense' found",
        ),
        (&["--json", "sing"], "unrecognized subcommand 'sing'"),
        (
            &["check", "--json"],
            "required arguments were not provided: <RECIPE>",
        ),
        (&["--json"], "a command is missing"),
    ] {
        let out = haul(desk.path(), args);
        assert_eq!(code(&out), 1, "{args:?}");
        let error = json(&out)["error"].as_str().unwrap().to_owned();
        assert!(error.contains(words) && !error.contains("Usage"), "{error}");
    }
    let out = haul(desk.path(), &["status", "--nonsense", "--", "--json"]);
    assert_eq!((code(&out), out.stdout.len()), (1, 0));
    let out = haul(desk.path(), &["completions", "bash", "--json"]);
    assert!(json(&out)["script"].as_str().unwrap().contains("_haul"));
}

#[test]
fn doctor_tells_what_results_are_equal_to_and_on_which_path() {
    let desk = tempfile::tempdir().unwrap();
    let out = haul(desk.path(), &["doctor", "--json"]);
    let isa = haul_runtime::device::cpu::Isa::detect().name();
    let document = json(&out);
    let seen = |name: &str| {
        let checks = document["checks"].as_array().unwrap();
        let check = checks.iter().find(|c| c["name"] == name).unwrap();
        check["seen"].as_str().unwrap().to_owned()
    };
    assert!(seen("instructions").starts_with(&format!("{isa} kernels")));
    let results = seen("results");
    assert!(results.contains("equal to the bit"), "{results}");
    assert!(results.contains(&format!("here: {isa})")), "{results}");
}

#[test]
fn a_program_that_is_not_there_is_warned_about() {
    let desk = tempfile::tempdir().unwrap();
    let recipe = |program: &str| {
        let text = format!(
            "name: own\nprogram: {{command: [{program}]}}\ntrain: {{until: {{steps: 3}}}}\njob: {{nodes: 1, ranks_per_node: 1, cores_per_rank: 1}}\n"
        );
        std::fs::write(desk.path().join("recipe.yaml"), text).unwrap();
        haul(desk.path(), &["check", "recipe.yaml"])
    };
    let out = recipe("./trainer.sh");
    assert_eq!(code(&out), 0, "{}", text(&out.stderr));
    let said = [text(&out.stdout), text(&out.stderr)].concat();
    assert!(said.contains("trainer.sh is not there"), "{said}");
    std::fs::write(desk.path().join("trainer.sh"), "").unwrap();
    for program in ["./trainer.sh", "bash", "\"{root}/trainer\""] {
        let out = recipe(program);
        let said = [text(&out.stdout), text(&out.stderr)].concat();
        assert_eq!(code(&out), 0, "{said}");
        assert!(!said.contains("is not there"), "{said}");
    }
}

#[test]
fn a_run_that_is_all_warm_up_is_warned_about() {
    let desk = tempfile::tempdir().unwrap();
    assert_eq!(code(&haul(desk.path(), &["init"])), 0);
    let told = |steps: &str| {
        let steps = format!("train.until.steps={steps}");
        let sets = ["--set", steps.as_str(), "--set", "train.warmup_steps=7"];
        let out = haul(
            desk.path(),
            &[&["check", "recipe.yaml"], &sets[..]].concat(),
        );
        assert_eq!(code(&out), 0, "{}", text(&out.stderr));
        text(&out.stderr).to_owned()
    };
    assert!(told("7").contains("all 7 steps of the run are warm-up steps"));
    assert!(!told("8").contains("warm-up steps"));
    for (set, exit, words) in [
        (
            "train.schedule.warmup=1000000",
            0,
            "its peak is never reached",
        ),
        ("train.until={}", 2, "an empty map changes nothing"),
        ("job.nodes=100000", 2, "job.nodes"),
    ] {
        let out = haul(desk.path(), &["check", "recipe.yaml", "--set", set]);
        assert_eq!(code(&out), exit, "{set}");
        let told = text(&out.stderr);
        assert!(
            told.contains(words) && !told.contains("parallel.data"),
            "{told}"
        );
    }
}

#[test]
fn check_says_by_its_exit_code_and_as_json_what_is_wrong() {
    let desk = tempfile::tempdir().unwrap();
    assert_eq!(code(&haul(desk.path(), &["init"])), 0);
    let good = haul(desk.path(), &["check", "recipe.yaml", "--json"]);
    let document = json(&good);
    assert_eq!(
        (code(&good), &document["ok"], &document["schema"]),
        (0, &true.into(), &"haul.check/1".into())
    );

    let bad = haul(
        desk.path(),
        &["check", "recipe.yaml", "--set", "batch.micros=1", "--json"],
    );
    assert_eq!(code(&bad), 2);
    let document = json(&bad);
    assert_eq!(document["ok"], false);
    let fault = &document["faults"][0];
    assert_eq!(fault["code"], "unknown-key");
    assert_eq!(
        (&fault["file"], &fault["line"], &fault["column"]),
        (&"--set #1".into(), &1.into(), &7.into())
    );
    assert_eq!(fault["help"], "did you mean `micro`?");

    let told = haul(
        desk.path(),
        &["check", "recipe.yaml", "--set", "batch.micros=1"],
    );
    assert_eq!(code(&told), 2);
    assert!(told.stdout.is_empty());
    // No colours where nobody sees them.
    assert!(!told.stderr.contains(&0x1b));
    assert!(text(&told.stderr).contains("--> --set #1:1:7"));
}

#[test]
fn the_machine_and_root_come_from_flag_environment_and_user_config() {
    let desk = tempfile::tempdir().unwrap();
    assert_eq!(code(&haul(desk.path(), &["init"])), 0);
    let show = |args: &[&str]| {
        let all = [&["check", "recipe.yaml", "--show", "--json"], args].concat();
        let document = json(&haul(desk.path(), &all));
        let find = |key: &str| {
            let list = document["resolved"].as_array().unwrap().clone();
            let row = list.into_iter().find(|r| r["key"] == key).unwrap();
            (
                row["value"].as_str().unwrap().to_string(),
                row["origin"].as_str().unwrap().to_string(),
            )
        };
        (find("machine"), find("root"))
    };
    let here = desk.path().canonicalize().unwrap();
    let path = |name: &str| here.join(name).display().to_string();
    let row = |value: &str, origin: &str| (value.to_string(), origin.to_string());
    assert_eq!(
        show(&[]),
        (row("local", "default"), row(&path("logs"), "default"))
    );
    assert_eq!(show(&["--root", "r"]).1, row(&path("r"), "set"));
    assert_eq!(show(&["--root", "a/../r"]).1, row(&path("r"), "set"));
    // Above a link's place is where the link leads.
    std::fs::create_dir_all(desk.path().join("x/y")).unwrap();
    std::os::unix::fs::symlink("x/y", desk.path().join("link")).unwrap();
    assert_eq!(show(&["--root", "link/../r"]).1, row(&path("x/r"), "set"));
    assert_eq!(show(&["--machine", ""]).0, row("local", "default"));
    let config = desk.path().join("config/haul");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.yaml"), "root: /scratch/me\n").unwrap();
    assert_eq!(show(&[]).1, row("/scratch/me", "user"));
    let out = haul(
        desk.path(),
        &["check", "recipe.yaml", "--machine", "fronteer"],
    );
    assert_eq!(code(&out), 2);
    assert!(text(&out.stderr).contains("did you mean `frontier`?"));
}

#[test]
fn the_plan_as_json_is_the_plan_document() {
    let desk = tempfile::tempdir().unwrap();
    assert_eq!(code(&haul(desk.path(), &["init"])), 0);
    let out = haul(desk.path(), &["plan", "recipe.yaml", "--json"]);
    let plan: haul::plan::Plan = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(plan.fingerprint, haul::plan::fingerprint::of(&plan));
    let document = json(&out);
    for key in [
        "train_config",
        "mesh",
        "checkpoint",
        "fingerprint",
        "threads",
    ] {
        assert!(!document[key].is_null(), "{key}");
    }
    assert_eq!(
        document["checkpoint"],
        serde_json::json!({"every_steps": 50, "keep": 2})
    );
    // The same bytes each time.
    assert_eq!(
        haul(desk.path(), &["plan", "recipe.yaml", "--json"]).stdout,
        out.stdout
    );
}

#[test]
fn schema_and_completions_go_to_standard_output() {
    let desk = tempfile::tempdir().unwrap();
    let out = haul(desk.path(), &["schema"]);
    assert!(text(&out.stdout) == haul::recipe::schema::text());
    for shell in ["bash", "zsh", "fish"] {
        let out = haul(desk.path(), &["completions", shell]);
        assert_eq!(code(&out), 0);
        assert!(text(&out.stdout).contains("haul"), "{shell}");
    }
    assert_eq!(code(&haul(desk.path(), &["completions", "tcsh2"])), 1);
}

#[test]
fn without_sbatch_a_slurm_machine_is_refused_before_anything_is_made() {
    let desk = tempfile::tempdir().unwrap();
    assert_eq!(code(&haul(desk.path(), &["init", "new"])), 0);
    let walltime = ["--machine", "frontier", "--set", "job.walltime=1h"];
    let args = [&["submit", "new/recipe.yaml"], &walltime[..]].concat();
    let out = command(desk.path(), &args)
        .env("PATH", desk.path())
        .output()
        .unwrap();
    assert_eq!(code(&out), 1, "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("no `sbatch` here"));
    assert!(!desk.path().join("logs").exists());
}
