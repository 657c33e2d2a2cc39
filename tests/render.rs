//! Scripts: what they look like, that a shell reads them, and that any value reaches a program as it is.

#![allow(clippy::unwrap_used)]

use haul::actions::check::{Checked, Request, load};
use haul::actions::render::scripts;
use haul::plan::{Plan, Program, Variable};
use haul::render::{JobContext, LaunchContext, RenderError, Templates, job_script, launch_script};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn checked(text: &str, machine: &str) -> Checked {
    let desk = tempfile::tempdir().unwrap();
    std::fs::create_dir(desk.path().join("data")).unwrap();
    std::fs::write(desk.path().join("data/milton.txt"), "x".repeat(600_000)).unwrap();
    let recipe = desk.path().join("r.yaml");
    std::fs::write(&recipe, text).unwrap();
    let loaded = load(&Request {
        recipe: &recipe,
        set: &[],
        machine: Some(machine),
        root: Some(Path::new("/runs")),
        user_config: None,
        cores: 2,
        memory: None,
    });
    loaded.unwrap_or_else(|faults| panic!("{faults}"))
}

const FOREIGN: &str = r#"
name: foreign
job: {nodes: 2, ranks_per_node: 2, walltime: 1h30m}
environment:
  setup: |
    module load python
    source "$HOME/venv/bin/activate"
  variables: {GREETING: "it's $HOME", LINES: "a\nb", MICRO: "{batch.micro}", DEEP: "{{not a key}}"}
program:
  command: [python3, train.py, "{root}/corpus", --left, "{job.minutes_left}"]
  args: {lr: 0.1, load: "{checkpoint.load}", title: "$(date) `id` é"}
"#;

fn bash_reads(script: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let out = Command::new("bash")
        .arg("-n")
        .arg(file.path())
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}\n{script}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Data stands in a temporary directory, and the version moves on.
fn still(script: &str) -> String {
    script.replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

#[test]
fn scripts_look_as_they_should() {
    let quickstart = include_str!("../recipes/quickstart.yaml");
    for (name, text, machine) in [
        ("quickstart_local", quickstart, "local"),
        ("foreign_local", FOREIGN, "local"),
        ("foreign_slurm", FOREIGN, "frontier"),
        ("foreign_lumi_g", FOREIGN, "lumi-g"),
        ("foreign_slurm_cpu", FOREIGN, "slurm-cpu"),
        ("foreign_slurm_gpu", FOREIGN, "slurm-gpu"),
    ] {
        let scripts = scripts(&checked(text, machine), None).unwrap();
        bash_reads(&scripts.job);
        bash_reads(&scripts.launch);
        let both = format!("{}\n=====\n{}", scripts.job, scripts.launch);
        insta::assert_snapshot!(name, still(&both));
    }
}

#[test]
fn every_ready_recipe_renders_and_bash_reads_it() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes");
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let scripts = scripts(&checked(&text, "local"), None).unwrap();
            bash_reads(&scripts.job);
            bash_reads(&scripts.launch);
        }
    }
}

/// A stand-in for `haul` that writes its arguments and its environment, each ended by NUL.
struct Stage {
    directory: tempfile::TempDir,
}

impl Stage {
    /// `name` is a directory in which everything stands, to try odd paths.
    fn new(name: &str) -> Stage {
        let stage = Stage {
            directory: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir_all(stage.path(name)).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn printer(&self, at: &str) -> PathBuf {
        let path = self.path(at);
        let script = "#!/bin/bash\nprintf '%s\\0' \"$@\" > \"$STAGE_OUT/args\"\nenv -0 > \"$STAGE_OUT/env\"\n";
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Runs a script with an empty working directory and gives what the stand-in got. Nothing else may be made.
    fn run(&self, script: &str, args: &[&str]) -> (Vec<String>, BTreeMap<String, String>) {
        let work = self.path("work");
        std::fs::create_dir_all(&work).unwrap();
        let file = self.path("script.sh");
        std::fs::write(&file, script).unwrap();
        let out = Command::new("bash")
            .arg(&file)
            .args(args)
            .env("STAGE_OUT", self.directory.path())
            .current_dir(&work)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}\n{script}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert_eq!(
            std::fs::read_dir(&work).unwrap().count(),
            0,
            "something was executed:\n{script}"
        );
        let split = |name: &str| -> Vec<String> {
            let bytes = std::fs::read(self.path(name)).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            text.split_terminator('\0').map(str::to_string).collect()
        };
        let env = split("env")
            .iter()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        (split("args"), env)
    }
}

fn launch_context(stage: &Stage, haul: PathBuf, directory: &str) -> LaunchContext {
    let run_dir = stage.path(directory).join("r-260101-abcd");
    LaunchContext {
        haul,
        root: stage.path(directory),
        slot: 0,
        attempt: 3,
        supervisor: SocketAddr::from(([127, 0, 0, 1], 4242)),
        minutes_left: Some(89),
        save_dir: run_dir.join("checkpoints/3"),
        load_from: None,
        plan_file: run_dir.join("jobs/0/plan.json"),
        run_dir,
    }
}

/// Braces doubled, as a recipe must write a text that has no placeholders.
fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

fn with(plan: &Plan, command: Vec<String>, variables: Vec<Variable>) -> Plan {
    let mut plan = plan.clone();
    plan.program = Program::Command { command };
    plan.environment.variables = variables;
    plan
}

/// Texts that shells take apart, with newline and tab but no other control characters.
fn nasty() -> impl Strategy<Value = String> {
    const PIECES: [&str; 28] = [
        "'",
        "\"",
        "`touch x`",
        "$(touch x)",
        "$HOME",
        "${HOME}",
        "\\",
        "\\'",
        "\n",
        "\t",
        " ",
        "  ",
        ";touch x;",
        "|touch x",
        "&& touch x",
        ">x",
        "*",
        "?",
        "~",
        "!",
        "#",
        "{a,b}",
        "--",
        "A=b",
        "é",
        "\u{1f600}",
        "{{x}}",
        "{% x %}",
    ];
    prop::collection::vec(
        prop_oneof![
            prop::sample::select(&PIECES[..]).prop_map(str::to_string),
            "[ -~]{0,6}",
            "\\PC{0,4}"
        ],
        0..5,
    )
    .prop_map(|pieces| {
        pieces
            .concat()
            .replace(|c: char| c.is_control() && c != '\n' && c != '\t', "")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_time: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn any_value_reaches_arguments_and_environment_unchanged_and_nothing_is_executed(
        words in prop::collection::vec(nasty(), 1..5),
        values in prop::collection::vec(nasty(), 0..4),
        directory in "[a-zA-Z0-9 '\"$()&;%#é-]{1,12}",
    ) {
        // A path component of dots or spaces only is another matter.
        let directory = format!("d{directory}");
        let stage = Stage::new(&directory);
        let haul = stage.printer(&format!("{directory}/haul"));
        let plan = with(
            &checked(FOREIGN, "local").plan,
            words.iter().map(|w| literal(w)).collect(),
            values.iter().enumerate().map(|(i, v)| Variable { name: format!("V{i}"), value: literal(v) }).collect(),
        );
        let context = launch_context(&stage, haul.clone(), &directory);
        let script = launch_script(&plan, &context).unwrap();
        bash_reads(&script);
        let (args, env) = stage.run(&script, &["7"]);
        let run_dir = context.run_dir.display().to_string();
        let head = ["launch", "--run", &run_dir, "--attempt", "3", "--node", "7", "--supervisor", "127.0.0.1:4242", "--"];
        prop_assert_eq!(&args[..head.len()], &head[..]);
        prop_assert_eq!(&args[head.len()..], &words[..]);
        for (i, value) in values.iter().enumerate() {
            prop_assert_eq!(env.get(&format!("V{i}")), Some(value));
        }
        prop_assert_eq!(&env["HAUL_RUN_DIR"], &run_dir);
        prop_assert_eq!(&env["HAUL_LOAD_FROM"], "");

        // The same for job.sh, whose setup lines are data until they are run.
        let context = JobContext { haul, run_dir: context.run_dir, slot: 5, token: "haul-r-260101-abcd-5".into() };
        let script = job_script(&plan, &context).unwrap_or_else(|e| panic!("{e}"));
        bash_reads(&script);
    }

    #[test]
    fn setup_lines_run_as_they_are_written(values in prop::collection::vec(nasty(), 1..4)) {
        let stage = Stage::new("root");
        let haul = stage.printer("root/haul");
        let mut plan = checked(FOREIGN, "local").plan;
        let lines: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(i, v)| format!("export S{i}={} # it's a comment", haul::render::quote::shell(v)))
            .collect();
        plan.environment.setup = Some(lines.join("\n"));
        let run_dir = stage.path("root/run");
        let context = JobContext { haul, run_dir: run_dir.clone(), slot: 5, token: "t".into() };
        let (args, env) = stage.run(&job_script(&plan, &context).unwrap(), &[]);
        let run_dir = run_dir.display().to_string();
        prop_assert_eq!(args, ["supervise", "--run", &run_dir, "--slot", "5"]);
        for (i, value) in values.iter().enumerate() {
            prop_assert_eq!(env.get(&format!("S{i}")), Some(value));
        }
    }
}

#[test]
fn placeholders_get_the_values_of_the_attempt() {
    let stage = Stage::new("root");
    let haul = stage.printer("root/haul");
    let mut context = launch_context(&stage, haul, "root");
    context.load_from = Some(stage.path("root/r-260101-abcd/checkpoints/2/step-10"));
    let plan = with(
        &checked(include_str!("../recipes/quickstart.yaml"), "local").plan,
        [
            "{attempt}-{job.minutes_left}",
            "{checkpoint.save}",
            "{checkpoint.load}",
            "{run_dir}",
            "{parallel.data}x{batch.global}",
        ]
        .map(str::to_string)
        .to_vec(),
        vec![Variable {
            name: "WHERE".into(),
            value: "{root}/{name}".into(),
        }],
    );
    let (args, env) = stage.run(&launch_script(&plan, &context).unwrap(), &["0"]);
    let text = |path: &Path| path.display().to_string();
    let expected = [
        "3-89".to_string(),
        text(&context.save_dir),
        text(context.load_from.as_ref().unwrap()),
        text(&context.run_dir),
        "2x8".into(),
    ];
    assert_eq!(args[args.len() - 5..], expected);
    assert_eq!(env["WHERE"], format!("{}/quickstart", text(&context.root)));
    assert_eq!(env["HAUL_LOAD_FROM"], expected[2]);
    assert_eq!(env["OMP_NUM_THREADS"], "1");
}

#[test]
fn a_failing_setup_line_ends_the_job_and_an_unset_variable_does_not() {
    let stage = Stage::new("root");
    let haul = stage.printer("root/haul");
    let mut plan = checked(FOREIGN, "local").plan;
    let context = JobContext {
        haul,
        run_dir: stage.path("root/run"),
        slot: 0,
        token: "t".into(),
    };
    plan.environment.setup = Some("X=$NEVER_SET".into());
    stage.run(&job_script(&plan, &context).unwrap(), &[]);
    std::fs::remove_file(stage.path("args")).unwrap();
    plan.environment.setup = Some("false\ntrue".into());
    let file = stage.path("script.sh");
    std::fs::write(&file, job_script(&plan, &context).unwrap()).unwrap();
    let status = Command::new("bash")
        .arg(&file)
        .env("STAGE_OUT", stage.path(""))
        .status()
        .unwrap();
    assert!(!status.success() && !stage.path("args").exists());
}

#[test]
fn control_characters_and_unknown_placeholders_are_refused() {
    let stage = Stage::new("root");
    let context = launch_context(&stage, "/h".into(), "root");
    let plan = checked(FOREIGN, "local").plan;
    for text in ["a\0b", "\u{1b}[31m", "a\rb"] {
        let plan = with(&plan, vec![text.into()], vec![]);
        let error = launch_script(&plan, &context).unwrap_err();
        assert!(matches!(error, RenderError::Control { .. }), "{error}");
    }
    let error =
        launch_script(&with(&plan, vec!["{batch.mikro}".into()], vec![]), &context).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown placeholder {batch.mikro} in program.command; did you mean {batch.micro}?"
    );
    // Names that would be arithmetic to bash, or several words.
    for name in ["RANDOM", "A B", "A=$(x)", ""] {
        let variable = Variable {
            name: name.into(),
            value: "a[$(touch x)]".into(),
        };
        let error = launch_script(&with(&plan, vec!["x".into()], vec![variable]), &context);
        assert!(matches!(error, Err(RenderError::Variable(_))), "{name}");
    }
    // A newline in what stands on #SBATCH lines, in srun options or in a path.
    let mut slurm = checked(FOREIGN, "frontier").plan;
    slurm
        .launch
        .sbatch
        .push("--comment=a\n#SBATCH --uid=0".into());
    let job = JobContext {
        haul: "/h".into(),
        run_dir: "/runs/a".into(),
        slot: 0,
        token: "t".into(),
    };
    assert!(matches!(
        job_script(&slurm, &job),
        Err(RenderError::Control { .. })
    ));
    slurm.launch.srun.push("a\nb".into());
    assert!(matches!(
        launch_script(&slurm, &context),
        Err(RenderError::Control { .. })
    ));
    let odd = JobContext {
        run_dir: "/runs/a\nb".into(),
        ..job
    };
    assert!(matches!(
        job_script(&plan, &odd),
        Err(RenderError::Control { .. })
    ));
}

#[test]
fn templates_of_the_user_override_and_cannot_leave_a_value_unquoted() {
    let checked = checked(FOREIGN, "local");
    let desk = tempfile::tempdir().unwrap();
    for none in [desk.path().to_path_buf(), desk.path().join("gone")] {
        let error = scripts(&checked, Some(&none)).unwrap_err().to_string();
        assert!(error.contains("holds no template"), "{error}");
    }
    let job = desk.path().join("job.sh.tera");
    std::fs::write(
        &job,
        "# mine\nexec {{ haul }} supervise --run {{ run_dir }} --slot {{ slot }}\n",
    )
    .unwrap();
    let ours = scripts(&checked, None).unwrap();
    let mine = scripts(&checked, Some(desk.path())).unwrap();
    assert!(
        mine.job
            .starts_with("#!/bin/bash\n# mine\nexec /runs/bin/HASH supervise")
    );
    assert_eq!(mine.launch, ours.launch);
    for (text, told) in [
        ("{{ setup | safe }}", "safe"),
        ("{{ nope }}", "nope"),
        ("{% if %}", "job.sh.tera"),
    ] {
        std::fs::write(&job, text).unwrap();
        let error = match Templates::from_directory(desk.path()) {
            Err(error) => error.to_string(),
            Ok(_) => scripts(&checked, Some(desk.path()))
                .unwrap_err()
                .to_string(),
        };
        assert!(error.contains(told), "{error}");
    }
}
