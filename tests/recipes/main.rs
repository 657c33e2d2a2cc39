//! Recipes: ready ones are sound, broken ones are told in full, and what a recipe means does not depend on how it is written.

#![allow(clippy::unwrap_used)]

mod any;

use haul::actions::check::{Checked, Request, load, show};
use haul::plan::On;
use haul::recipe::diagnostic::{Faults, Style};
use haul::recipe::yaml::Origin;
use std::path::{Path, PathBuf};

/// A directory with recipes and a text of 64 KiB at data/milton.txt.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Desk {
        let desk = Desk(tempfile::tempdir().unwrap());
        std::fs::create_dir_all(desk.0.path().join("data")).unwrap();
        desk.write(
            "data/milton.txt",
            &"Of Mans First Disobedience\n".repeat(2500),
        );
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn load(&self, text: &str, set: &[&str]) -> Result<Checked, Faults> {
        let recipe = self.write("r.yaml", text);
        self.load_file(&recipe, set, None, None)
    }

    fn load_file(
        &self,
        recipe: &Path,
        set: &[&str],
        machine: Option<&str>,
        user_config: Option<PathBuf>,
    ) -> Result<Checked, Faults> {
        let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
        load(&Request {
            recipe,
            set: &set,
            machine,
            root: Some(&self.path("logs")),
            user_config,
            cores: 2,
            memory: Some(24 << 30),
        })
    }

    /// All faults as people see them, without this directory's name.
    fn told(&self, text: &str, set: &[&str]) -> String {
        match self.load(text, set) {
            Ok(_) => "no faults".into(),
            Err(faults) => self.clean(&faults.render(Style::Plain)),
        }
    }

    fn clean(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

const GOOD: &str = "\
name: good
model: {layers: 2, hidden: 32, heads: 2, seq_len: 16, vocab: 256}
batch: {micro: 2, global: 8}
train:
  until: {steps: 20}
  optimizer: {lr: 1e-3}
data: {path: data/milton.txt, validation: 0.1}
job: {ranks_per_node: 2}
environment: {variables: {B: x, A: \"{batch.micro}\"}}
";

#[test]
fn every_ready_recipe_is_sound_on_this_machine() {
    let desk = Desk::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let checked = desk.load(&text, &[]);
            let told = checked.as_ref().err().map(|f| f.render(Style::Plain));
            assert_eq!(told, None, "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 1);
}

#[test]
fn the_quickstart_is_two_ranks_in_data_parallel_of_a_few_million_parameters() {
    let desk = Desk::new();
    let text = include_str!("../../recipes/quickstart.yaml");
    assert!(text.starts_with("# yaml-language-server: $schema=recipe.schema.json\n"));
    let plan = desk.load(text, &[]).unwrap().plan;
    assert_eq!((plan.world(), plan.mesh.data, plan.threads), (2, 2, 1));
    let parameters = plan.flops.unwrap().parameters;
    assert!(
        (1_000_000..=3_000_000).contains(&parameters),
        "{parameters}"
    );
}

#[test]
fn the_schema_in_the_tree_is_that_of_the_reader() {
    let stored = include_str!("../../recipes/recipe.schema.json");
    assert!(
        stored == haul::recipe::schema::text(),
        "recipes/recipe.schema.json is stale: haul schema > recipes/recipe.schema.json"
    );
    // A key of a later version is no part of it.
    assert!(!stored.contains("\"sweep\"") && !stored.contains("\"recompute\""));
    assert!(stored.contains("\"per_replica\"") && stored.contains("\"decay_steps\""));
}

#[test]
fn all_faults_of_a_recipe_are_told_at_once_with_their_places() {
    let desk = Desk::new();
    insta::assert_snapshot!(desk.told(
        "\
name: Not Good
model: {layers: 2, hidden: 32, heads: 2, seq_len: 16, vocab: 256}
paralel: {tensor: 2}
batch: {micro: two, global: 16, per_replica: 8}
train:
  until: {steps: \"10\"}
  recompute: full
  precision: bf16
data: {path: nowhere.txt, validation: 2}
chain: ahead
checkpoint: {every: 0}
job: {walltime: 90}
environment: {variables: {1X: a, RANK: 3, UID: 0, OK: }}
",
        &["job.nodez=2", "nonsense"],
    ));
}

#[test]
fn rules_between_values_point_at_both() {
    let desk = Desk::new();
    let layouts = GOOD.replace(
        "job: {ranks_per_node: 2}",
        "job: {nodes: 4, ranks_per_node: 4}\nparallel: {tensor: 2, pipeline: 3}",
    );
    let mut told = String::new();
    for (text, set) in [
        (layouts.as_str(), vec![]),
        (GOOD, vec!["parallel.data=4"]),
        (GOOD, vec!["batch.global=9"]),
        (GOOD, vec!["batch.per_replica=3"]),
        (GOOD, vec!["model.heads=5"]),
        (GOOD, vec!["train.until.time=1m"]),
        (GOOD.replace("/milton.txt", "").as_str(), vec![]),
        (GOOD.replace("milton", "none").as_str(), vec![]),
        (GOOD, vec!["model.seq_len=200000"]),
        (GOOD, vec!["model.vocab=100"]),
        (GOOD, vec!["parallel.zero=1"]),
        (GOOD, vec!["environment.variables.C={batch.mikro}"]),
        (GOOD, vec!["environment.variables.C=\"{batch.mikro}\""]),
    ] {
        told.push_str(&desk.told(text, &set));
        told.push('\n');
    }
    insta::assert_snapshot!(told);
}

#[test]
fn every_preset_is_planned_or_refused_for_memory() {
    let desk = Desk::new();
    let mut refused = Vec::new();
    for preset in haul::recipe::model::presets() {
        let set = format!("model={preset}");
        match desk.load(GOOD, &[&set]) {
            Ok(checked) => {
                let parameters = checked.plan.flops.unwrap().parameters;
                assert!(parameters < 1_000_000_000, "{preset}");
            }
            Err(faults) => {
                let codes: Vec<&str> = faults.list.iter().map(|f| f.code).collect();
                assert_eq!(codes, ["memory"], "{preset}");
                assert!(
                    faults.list[0]
                        .message
                        .contains("but this machine has 24.0 GiB")
                );
                refused.push(preset);
            }
        }
    }
    assert!(refused.contains(&"gpt-175b") && refused.contains(&"gpt-1t"));
    assert!(!refused.contains(&"gpt2-124m"));
}

#[test]
fn what_cannot_be_a_recipe_is_refused_in_words() {
    let desk = Desk::new();
    let mut told = String::new();
    std::fs::create_dir(desk.path("dir.yaml")).unwrap();
    desk.write("empty.yaml", "");
    desk.write("comment.yaml", "# nothing\n");
    desk.write("list.yaml", "- a\n- b\n");
    desk.write("tab.yaml", "name: a\njob:\n\tnodes: 1\n");
    desk.write("twice.yaml", "name: a\njob: {nodes: 1, nodes: 2}\n");
    desk.write("two.yaml", "name: a\n---\nname: b\n");
    desk.write("large.yaml", &"a: [\n".repeat(2_000_000));
    std::fs::write(desk.path("latin.yaml"), b"name: a\n# caf\xe9\n").unwrap();
    desk.write("extends.yaml", "name: a\nextends: none.yaml\n");
    desk.write("chain.yaml", "name: a\nextends: chain2.yaml\n");
    desk.write("chain2.yaml", "extends: list.yaml\n");
    desk.write("itself.yaml", "name: a\nextends: ./itself.yaml\n");
    desk.write("loop.yaml", "name: a\nextends: loop2.yaml\n");
    desk.write("loop2.yaml", "extends: loop.yaml\n");
    for name in [
        "none.yaml",
        "dir.yaml",
        "empty.yaml",
        "comment.yaml",
        "list.yaml",
        "tab.yaml",
        "twice.yaml",
        "two.yaml",
        "large.yaml",
        "latin.yaml",
        "extends.yaml",
        "chain.yaml",
        "itself.yaml",
        "loop.yaml",
    ] {
        let faults = desk
            .load_file(&desk.path(name), &[], None, None)
            .unwrap_err();
        // The missing sections of stubs are not the point here.
        let first = faults
            .list
            .iter()
            .find(|f| f.code != "missing-key")
            .unwrap();
        told.push_str(&desk.clean(&first.render(&faults.sources, Style::Plain)));
        told.push_str("\n\n");
    }
    insta::assert_snapshot!(told);
}

#[test]
fn later_keys_are_refused_by_name_and_their_inside_is_not_read() {
    let desk = Desk::new();
    for later in [
        "sweep: {weak: {nodes: [1, 2]}}",
        "hooks: {done: [x]}",
        "after: {ok: 1}",
    ] {
        let told = desk.told(&format!("{GOOD}{later}\n"), &[]);
        let key = later.split(':').next().unwrap();
        let head = format!("error: `{key}` comes with a later version\n");
        assert!(told.starts_with(&head), "{told}");
        assert!(told.ends_with("1 error in the recipe\n"), "{told}");
    }
    for key in [
        "parallel.context",
        "train.recompute",
        "job.spares",
        "environment.conda",
        "program.kind",
    ] {
        let told = desk.told(GOOD, &[&format!("{key}=x")]);
        assert!(
            told.contains(&format!("`{key}` comes with a later version")),
            "{told}"
        );
    }
}

#[test]
fn later_layers_win_and_each_value_knows_where_it_came_from() {
    let desk = Desk::new();
    let base = GOOD
        .replace("name: good\n", "restart: {failures: 7}\n")
        .replace("micro: 2", "micro: 4");
    std::fs::create_dir(desk.path("sub")).unwrap();
    desk.write("base.yaml", &base);
    let recipe = desk.write(
        "sub/r.yaml",
        "name: derived\nextends: ../base.yaml\nbatch: {micro: 2, accumulation: 3}\n",
    );
    let user = desk.write("config.yaml", "machine: local\nroot: runs\n");
    let set: [String; 2] = [
        "train.optimizer.lr=0.5".into(),
        "batch.per_replica=8".into(),
    ];
    let checked = load(&Request {
        recipe: &recipe,
        set: &set,
        machine: None,
        root: None,
        user_config: Some(user),
        cores: 2,
        memory: None,
    })
    .unwrap();
    let origin = |key: &str| {
        let found = checked.resolved.iter().find(|r| r.key == key);
        found.map(|r| r.origin)
    };
    assert_eq!(origin("name"), Some(Origin::File));
    assert_eq!(origin("model.layers"), Some(Origin::Base));
    assert_eq!(origin("train.optimizer.lr"), Some(Origin::Set));
    assert_eq!(origin("train.seed"), Some(Origin::Default));
    assert_eq!(origin("machine"), Some(Origin::User));
    // The file's accumulation put the base's global out of force, and --set's per_replica the file's.
    assert_eq!(origin("batch.per_replica"), Some(Origin::Set));
    assert_eq!(origin("batch.global"), Some(Origin::Default));
    let plan = &checked.plan;
    assert_eq!(plan.restart.failures, 7);
    assert_eq!(plan.values["batch.accumulation"], "4");
    // A path is relative to the file it stands in; so is the root.
    let data = &plan.train_config.as_ref().unwrap().data.path;
    assert_eq!(*data, desk.path("data/milton.txt").display().to_string());
    assert_eq!(checked.root, desk.path("runs"));
    let shown: Vec<String> = desk
        .clean(&show(&checked))
        .lines()
        // Their values hold the directory's name, and widths its length.
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn the_fingerprint_is_that_of_the_meaning() {
    let desk = Desk::new();
    let first = desk.load(GOOD, &[]).unwrap().plan;
    let reordered = "\
# Another order, other quotes, other spelling.
job: {ranks_per_node: 2}
environment:
  variables:
    A: '{batch.micro}'
    B: \"x\"
data:
  validation: 1.0e-1
  path: ./data/../data/milton.txt
train:
  optimizer:
    lr: 0.001
  until: {steps: 2_0}
batch:
  global: 8
  micro: 2
model:
  vocab: 256
  seq_len: 16
  heads: 2
  hidden: 32
  layers: 2
name: good
";
    let second = desk.load(reordered, &[]).unwrap().plan;
    assert_eq!(first, second);
    // As bytes, too, and as a reader of the file finds it.
    let text = serde_json::to_string(&first).unwrap();
    assert_eq!(text, serde_json::to_string(&second).unwrap());
    let read: haul::plan::Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(read, first);
    // What decides results is in it.
    for set in [
        "train.seed=2",
        "batch.global=16",
        "environment.variables.B=y",
        "model.heads=4",
        "name=other",
    ] {
        let other = desk.load(GOOD, &[set]).unwrap().plan;
        assert_ne!(other.fingerprint, first.fingerprint, "{set}");
    }
}

#[test]
fn the_fingerprint_is_the_same_under_any_root_and_on_any_number_of_cores() {
    let desk = Desk::new();
    let text = GOOD.replace("data/milton.txt", "\"{root}/corpus.txt\"");
    let recipe = desk.write("r.yaml", &text);
    let mut fingerprints = Vec::new();
    for (root, cores) in [("one", 1), ("two/deep", 64)] {
        let root = desk.path(root);
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("corpus.txt"), "x".repeat(4096)).unwrap();
        let plan = load(&Request {
            recipe: &recipe,
            set: &[],
            machine: None,
            root: Some(&root),
            user_config: None,
            cores,
            memory: None,
        })
        .unwrap()
        .plan;
        let data = &plan.train_config.as_ref().unwrap().data;
        assert_eq!(data.path, "{root}/corpus.txt");
        assert_eq!(plan.shared_cores, cores == 1);
        fingerprints.push(plan.fingerprint);
    }
    assert_eq!(fingerprints[0], fingerprints[1]);
}

#[test]
fn the_resolved_recipe_is_a_recipe_of_the_same_plan() {
    let desk = Desk::new();
    let foreign = "\
name: foreign
job: {ranks_per_node: 2, walltime: 1h30m}
environment: {variables: {X: \"tab\\tand \\\"quotes\\\" \\u00e9\\U0001f600\", Y: true, Z: ''}, setup: \"a\\nb: c # d\"}
program: {command: [./train.sh, -c, \"echo {job.minutes_left} {{}}\"], args: {a.b: 1.10, flag: true, quoted: \"true\", off: false, list: [x y, '']}}
checkpoint: {every: {steps: 5}, keep: 1}
";
    for text in [GOOD, foreign, include_str!("../../recipes/quickstart.yaml")] {
        let first = desk.load(text, &[]).unwrap();
        let second = desk.load(&first.resolved_yaml, &[]);
        let second = second
            .unwrap_or_else(|f| panic!("{}\n{}", f.render(Style::Plain), first.resolved_yaml));
        assert_eq!(first.plan, second.plan, "{}", first.resolved_yaml);
    }
}

#[test]
fn a_foreign_program_needs_no_model_and_gets_its_arguments() {
    let desk = Desk::new();
    let text = "\
name: shell
program:
  command: [./train.sh, \"{name}\"]
  args: {lr: 0.1, fast: true, slow: false, files: [a, b c]}
";
    let plan = desk.load(text, &[]).unwrap().plan;
    assert!(plan.train_config.is_none() && plan.flops.is_none());
    assert!(plan.memory.is_empty() && plan.checkpoint.is_none());
    let haul::plan::Program::Command { command } = &plan.program else {
        panic!("{:?}", plan.program)
    };
    // A program's relative path is relative to the file it stands in.
    let script = desk.path("train.sh").display().to_string();
    let expected = [
        &script, "{name}", "--fast", "--files", "a", "b c", "--lr", "0.1",
    ];
    assert_eq!(command[..], expected);
}

#[test]
fn a_slurm_profile_has_limits_of_time_and_cores() {
    let desk = Desk::new();
    let recipe = desk.write("r.yaml", GOOD);
    let codes = |set: &[&str]| match desk.load_file(&recipe, set, Some("frontier"), None) {
        Ok(checked) => (checked.plan.job.cores_per_rank, Vec::new()),
        Err(faults) => (0, faults.list.iter().map(|f| f.code).collect()),
    };
    assert_eq!(codes(&[]), (0, vec!["walltime"]));
    assert_eq!(codes(&["job.walltime=2h"]), (7, vec![]));
    assert_eq!(codes(&["job.walltime=3h"]), (0, vec!["walltime"]));
    let wide = ["job.walltime=1h", "job.cores_per_rank=29"];
    assert_eq!(codes(&wide), (0, vec!["cores"]));
    let many = ["job.walltime=1h", "job.nodes=10000", "batch.global=40000"];
    assert_eq!(codes(&many), (0, vec!["ranks", "nodes"]));
}

#[test]
fn the_user_config_takes_machine_root_account_and_notify_only() {
    let desk = Desk::new();
    let recipe = desk.write("r.yaml", GOOD);
    let user = desk.write(
        "config.yaml",
        "machin: local\nnotify: {on: [failed, stuck]}\nroot: [a]\nafter: 1\n",
    );
    let faults = desk.load_file(&recipe, &[], None, Some(user)).unwrap_err();
    let told: Vec<&str> = faults.list.iter().map(|f| f.message.as_str()).collect();
    assert_eq!(
        told,
        [
            "unknown key `machin`",
            "`notify.command` is missing",
            "`notify.on`: `stuck` comes with a later version; expected one of `failed` or `finished`, found `stuck`",
            "`root`: expected a text, found a list of 1",
            "unknown key `after`",
        ]
    );
}

#[test]
fn options_of_slurm_are_taken_over_and_those_of_haul_are_refused() {
    let desk = Desk::new();
    let (text, _) = GOOD.split_once("job:").unwrap();
    let with = |job: &str| format!("{text}job: {{walltime: 1h, {job}}}\n");
    let recipe = desk.write(
        "slurm.yaml",
        &with(
            "qos: debug, partition: small, exclude: ['n[1-2,4]'], extra_sbatch: ['--mail-type=END'], extra_srun: ['-l']",
        ),
    );
    let set = ["environment.modules=[python]", "job.ranks_per_node=2"];
    let checked = desk.load_file(&recipe, &set, Some("frontier"), None);
    let plan = checked
        .map_err(|faults| faults.render(Style::Plain))
        .unwrap()
        .plan;
    assert_eq!(
        plan.launch.sbatch,
        [
            "--exclusive",
            "--core-spec=8",
            "--threads-per-core=1",
            "--partition=small",
            "--qos=debug",
            "--exclude=n[1-2,4]",
            "--mail-type=END"
        ]
    );
    assert_eq!(plan.launch.srun.last().unwrap(), "-l");
    assert_eq!(plan.launch.modules, ["python"]);
    for (extra, words) in [
        ("extra_sbatch: ['--time=1']", "`time` is decided by haul"),
        ("extra_sbatch: [-N4]", "`N` is decided by haul"),
        ("extra_sbatch: ['--wait']", "`wait` is decided by haul"),
        (
            "extra_srun: ['--export=ALL']",
            "`export` is decided by haul",
        ),
        ("extra_sbatch: [mail]", "this is no option"),
        ("exclude: ['n[1']", "bracket without its partner"),
    ] {
        let told = desk.told(&with(extra), &[]);
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn who_is_told_of_the_end_stands_in_the_plan_and_not_in_its_fingerprint() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path("home")).unwrap();
    let user = desk.write(
        "home/config.yaml",
        "notify: {on: [finished], command: [./tell.sh, \"{x}\"]}\n",
    );
    let plan = |recipe: &str, user: Option<&PathBuf>| {
        let recipe = desk.write("r.yaml", recipe);
        let checked = desk.load_file(&recipe, &[], None, user.cloned());
        checked.unwrap().plan
    };
    let bare = plan(GOOD, None);
    assert_eq!(bare.notify, None);
    let told = plan(GOOD, Some(&user));
    assert_eq!(told.fingerprint, bare.fingerprint);
    let notify = told.notify.unwrap();
    assert_eq!(notify.on, [On::Finished]);
    let beside = desk.path("home/tell.sh").display().to_string();
    assert_eq!(notify.command, [beside.as_str(), "{x}"]);
    // The recipe's stands in place of the user's, and in what is resolved of it.
    let own = format!("{GOOD}notify: {{on: [failed, finished], command: [tools/mail, me]}}\n");
    let notify = plan(&own, Some(&user)).notify.unwrap();
    assert_eq!(notify.on, [On::Failed, On::Finished]);
    assert_eq!(
        notify.command[0],
        desk.path("tools/mail").display().to_string()
    );
    let resolved = desk.load(&own, &[]).unwrap().resolved_yaml;
    let again = plan(&resolved, None).notify.unwrap();
    assert_eq!(again, notify);
    for (wrong, words) in [
        (
            "{on: failed, command: [x]}",
            "`notify.on`: expected a list of `failed` or `finished`",
        ),
        (
            "{on: [faild], command: [x]}",
            "expected one of `failed` or `finished`",
        ),
        (
            "{on: [failed], command: []}",
            "the command names no program",
        ),
        ("{command: [x]}", "`notify.on` is missing"),
        ("{on: [failed], comand: [x]}", "did you mean `command`?"),
    ] {
        let told = desk.told(&format!("{GOOD}notify: {wrong}\n"), &[]);
        assert!(told.contains(words), "{wrong}: {told}");
    }
}
