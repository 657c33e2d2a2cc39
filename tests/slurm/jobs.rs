//! A run from submission to report, from other shells, and its ends.

use crate::field::{Field, TWO_NODES, Told, cluster, shared, slurm, wait_for};
use std::time::{Duration, Instant};

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_run_trains_on_two_nodes_with_few_questions_to_slurm() {
    let _cluster = shared();
    let field = Field::new();
    let recipe = field.recipe("150, 0.05, 20", TWO_NODES);
    let told = field.haul(&["run", &recipe]);
    assert_eq!(told.code, 0, "{told:#?}");
    told.says("finished at step 150");
    field.assert_whole(150);
    let run = field.newest();
    let nodes = run.events("launched")[0]["nodes"].clone();
    for node in nodes.as_array().unwrap() {
        let log = run.0.log(1, node.as_str().unwrap());
        let log = std::fs::read_to_string(log).unwrap();
        assert_eq!(log.matches("starts at step 0").count(), 2, "{log}");
    }
    let calls = std::fs::read_to_string(field.path().join("runs/.slurm/calls")).unwrap();
    println!("{} calls of Slurm", calls.lines().count());
    assert!(calls.lines().count() <= 12, "{calls}");
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn values_reach_the_program_unchanged_for_a_user_without_rights() {
    let _cluster = shared();
    let field = Field::of("ada");
    let program = field.path().join("show.sh");
    std::fs::write(
        &program,
        "#!/bin/bash\n[ $RANK = 0 ] || exit 0\nprintf '%s\\0' \"$ODD\" \"$@\" \"$MASTER_ADDR\" \"$(id -un)\" > \"$HAUL_RUN_DIR/shown\"\n",
    )
    .unwrap();
    let arguments = [
        "a b",
        "it's",
        "$(touch /tmp/x) `id`",
        "é\"\\",
        "",
        "a\nb",
        "1,2",
    ];
    let odd = "x,y=$HOME 'q' \"p\" \\ é";
    let list: Vec<String> = arguments
        .iter()
        .map(|a| serde_json::to_string(a).unwrap())
        .collect();
    let recipe = field.path().join("odd.yaml");
    let text = format!(
        "name: odd\nprogram: {{command: [bash, {}, {}]}}\nenvironment: {{variables: {{ODD: {}}}}}\n{TWO_NODES}\n",
        serde_json::to_string(program.to_str().unwrap()).unwrap(),
        list.join(", "),
        serde_json::to_string(odd).unwrap(),
    );
    std::fs::write(&recipe, text).unwrap();
    let told = field.haul(&["run", recipe.to_str().unwrap()]);
    assert_eq!(told.code, 0, "{told:#?}");
    let shown = std::fs::read(field.newest().0.path().join("shown")).unwrap();
    let shown: Vec<&str> = std::str::from_utf8(&shown).unwrap().split('\0').collect();
    assert_eq!(shown[0], odd);
    assert_eq!(shown[1..=arguments.len()], arguments);
    let master: std::net::Ipv4Addr = shown[arguments.len() + 1].parse().unwrap();
    assert!(!master.is_loopback(), "{master}");
    assert_eq!(shown[arguments.len() + 2], "ada");
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_run_is_cancelled_from_another_shell_with_and_without_a_checkpoint() {
    let _cluster = shared();
    let field = Field::new();
    let recipe = field.recipe("100000, 0.05, 50", TWO_NODES);
    let follower = field.command(&["run", &recipe]).spawn().unwrap();
    let run = wait_for("a run", || {
        field.find().filter(|run| run.steps(1).len() > 5)
    });
    let told = field.haul(&["cancel", "last", "--save"]);
    assert_eq!(told.code, 0, "{told:#?}");
    told.says("saved and stopped on request");
    let followed = Told::of(follower.wait_with_output().unwrap());
    assert_eq!(followed.code, 5, "{followed:#?}");
    let saved = run.events("saved").last().unwrap()["step"]
        .as_u64()
        .unwrap();
    let told = field.haul(&["resume", "last"]);
    assert_eq!(told.code, 0, "{told:#?}");
    run.wait_for_step(2, saved + 10);
    assert_eq!(run.steps(2)[0], saved + 1);
    let told = field.haul(&["cancel", "last"]);
    assert_eq!(told.code, 0, "{told:#?}");
    assert_eq!(field.state().0, "cancelled");
    wait_for("the end of its jobs", || {
        field.live_jobs().is_empty().then_some(())
    });
    field.assert_whole(*run.steps(2).last().unwrap());
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_job_that_somebody_else_cancels_is_told_and_can_be_resumed() {
    let _cluster = shared();
    let field = Field::new();
    let run = field.submit(&field.recipe("200, 0.05, 10", TWO_NODES));
    run.wait_for_step(1, 30);
    slurm(&["scancel", &field.live_jobs()[0]]);
    let begin = Instant::now();
    wait_for("the end", || {
        let (state, words) = field.state();
        matches!(state.as_str(), "failed" | "cancelled").then_some(words)
    });
    println!("told after {:.1} s", begin.elapsed().as_secs_f64());
    wait_for("the end of its jobs", || {
        field.live_jobs().is_empty().then_some(())
    });
    let told = field.haul(&["resume", "last", "--follow"]);
    assert_eq!(told.code, 0, "{told:#?}");
    field.assert_whole(200);
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_run_saves_before_its_time_limit_and_goes_on() {
    let _cluster = shared();
    let field = Field::new();
    // Slurm knows minutes, and warns up to a minute early.
    let more = TWO_NODES.replace("10m", "1m");
    let run = field.submit(&field.recipe("1500, 0.05, 100000", &more));
    let words = field.wait_until("waiting");
    assert!(words.contains("time limit"), "{words}");
    let saved = run.events("saved").last().unwrap()["step"]
        .as_u64()
        .unwrap();
    // The other ranks of a shell trainer may see the request a step later.
    assert!(run.steps(1).last().unwrap() - saved <= 2);
    wait_for("the end of its job", || {
        field.live_jobs().is_empty().then_some(())
    });
    let told = field.haul(&["resume", "last"]);
    assert_eq!(told.code, 0, "{told:#?}");
    run.wait_for_step(2, saved + 20);
    assert_eq!(run.steps(2)[0], saved + 1);
    assert_eq!(field.haul(&["cancel", "last"]).code, 0);
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_waiting_job_says_why() {
    let _cluster = shared();
    let field = Field::new();
    let recipe = field.recipe("5, 0.05, 10", &TWO_NODES.replace("nodes: 2", "nodes: 4"));
    // Half a node is enough to keep a job for four exclusive nodes waiting.
    let holder = slurm(&[
        "sbatch",
        "--parsable",
        "--output=/dev/null",
        "-p",
        "debug",
        "-N",
        "1",
        "--wrap",
        "sleep 60",
    ]);
    wait_for("the holder", || {
        let state = slurm(&["squeue", "-h", "-j", holder.trim(), "-o", "%T"]);
        (state.trim() == "RUNNING").then_some(())
    });
    field.submit(&recipe);
    let words = wait_for("a reason", || {
        let (state, words) = field.state();
        (state == "queued" && words.contains('(')).then_some(words)
    });
    assert!(
        words.contains("Resources") || words.contains("Priority"),
        "{words}"
    );
    slurm(&["scancel", holder.trim()]);
    field.wait_until("finished");
    std::thread::sleep(Duration::from_secs(1));
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn the_debug_qos_refuses_in_words() {
    let _cluster = shared();
    let field = Field::of("bob");
    let profile = std::fs::read_to_string(field.path().join("machine.yaml")).unwrap();
    let with = |options: &str| {
        let text = profile.replace("launch: {", &format!("launch: {{sbatch: [{options}], "));
        std::fs::write(field.path().join("machine.yaml"), text).unwrap();
    };
    let recipe = field.recipe("2000, 0.05, 100", TWO_NODES);
    for (options, advice) in [
        ("\"--account=nobodys\"", "user config"),
        ("\"--qos=nosuch\"", "QOS is not yours"),
        ("\"--partition=nosuch\"", "sinfo -s"),
    ] {
        with(options);
        let told = field.haul(&["submit", &recipe]);
        assert_eq!(told.code, 3, "{told:#?}");
        told.says(advice);
    }
    with("\"--qos=debug\"");
    field.submit(&recipe);
    let told = field.haul(&["submit", &recipe]);
    assert_eq!(told.code, 3, "{told:#?}");
    told.says("no more of your jobs");
    for job in cluster(&["as", "bob", "squeue", "-h", "-u", "bob", "-o", "%A"]).lines() {
        cluster(&["as", "bob", "scancel", job]);
    }
}

/// The tiny recipe of the trainer's tests.
const TINY: &str = "\
name: tiny
model: {layers: 2, hidden: 32, heads: 4, seq_len: 32, vocab: 256}
batch: {micro: 4, global: 64}
train:
  until: {steps: 60}
  warmup_steps: 2
  precision: f32
  optimizer: {lr: 3.0e-3}
  seed: 1
  eval: {every: 10, sequences: 8}
data: {path: text.txt, format: bytes, validation: 0.1}
checkpoint: {every: 10, keep: 100}
restart: {failures: 0}
";

/// Bits of all losses, of training and of evaluation.
fn bits(field: &Field) -> Vec<(u64, u64)> {
    let report = field.haul(&["report", "last", "--json"]).json();
    let mut all = Vec::new();
    for curve in ["train", "validation"] {
        let points = report["loss"][curve].as_array().unwrap().iter();
        all.extend(points.map(|p| (p[0].as_u64().unwrap(), p[1].as_f64().unwrap().to_bits())));
    }
    all
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn the_bundled_trainer_gives_the_bits_of_a_local_run_on_any_nodes() {
    let _cluster = shared();
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/data/milton.txt");
    let text = std::fs::read(text).unwrap();
    let with = |field: &Field, job: &str| {
        std::fs::write(field.path().join("text.txt"), &text[..30_000]).unwrap();
        let recipe = field.path().join("tiny.yaml");
        std::fs::write(&recipe, format!("{TINY}job: {job}\n")).unwrap();
        recipe.to_str().unwrap().to_owned()
    };
    let local = Field::new();
    let recipe = with(&local, "{nodes: 1, ranks_per_node: 4, cores_per_rank: 1}");
    let told = local.haul(&["run", &recipe, "--machine", "local"]);
    assert_eq!(told.code, 0, "{told:#?}");
    let expected = bits(&local);
    assert_eq!(expected.len(), 66);
    for (nodes, ranks) in [(2, 2), (4, 1)] {
        let field = Field::new();
        let job = format!(
            "{{nodes: {nodes}, ranks_per_node: {ranks}, cores_per_rank: 1, walltime: 10m}}"
        );
        let recipe = with(&field, &job);
        let told = field.haul(&["run", &recipe]);
        assert_eq!(told.code, 0, "{told:#?}");
        assert_eq!(bits(&field), expected, "{nodes} nodes");
        let lines = field.newest().lines(1);
        let start = lines.iter().find(|line| line.values.is_some()).unwrap();
        let values = serde_json::to_string(&start.values).unwrap();
        assert!(values.contains("tcp"), "{values}");
    }
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn a_chain_of_jobs_ends_at_the_right_step() {
    let _cluster = shared();
    let field = Field::new();
    // A minute is the shortest that Slurm knows.
    let more = format!("{}\nchain: at-end", TWO_NODES.replace("10m", "1m"));
    let run = field.submit(&field.recipe("2200, 0.05, 100000", &more));
    let begin = Instant::now();
    while field.state().0 != "finished" {
        let (state, words) = field.state();
        assert!(
            !matches!(state.as_str(), "failed" | "waiting" | "cancelled"),
            "{words}"
        );
        assert!(
            begin.elapsed() < Duration::from_secs(420),
            "{state}: {words}"
        );
        std::thread::sleep(Duration::from_secs(1));
    }
    let jobs = run.0.numbers("jobs");
    println!("{} jobs in {} s", jobs.len(), begin.elapsed().as_secs());
    assert!(jobs.len() >= 3, "{jobs:?}");
    assert_eq!(run.events("link").len() + 1, jobs.len());
    field.assert_whole(2200);
    wait_for("the end of its jobs", || {
        field.live_jobs().is_empty().then_some(())
    });
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn an_allocation_that_one_holds_is_used_as_often_as_wanted() {
    let _cluster = shared();
    let field = Field::new();
    let recipe = field.recipe("20, 0.05, 10", TWO_NODES);
    let outside = field.haul(&["run", &recipe, "--here"]);
    assert_eq!(outside.code, 1, "{outside:#?}");
    outside.says("salloc --nodes=2");
    let haul = field.path().join("haul");
    let line = format!(
        "export HAUL_ROOT={0}/runs HAUL_MACHINE={0}/machine.yaml; {1} run {2} --here && {1} run {2} --here && {1} status --all --json",
        field.path().display(),
        haul.display(),
        recipe
    );
    let out = slurm(&[
        "salloc",
        "-Q",
        "-N",
        "2",
        "--exclusive",
        "-t",
        "5",
        "bash",
        "-c",
        &line,
    ]);
    assert_eq!(out.matches("finished at step 20").count(), 4, "{out}");
    field.assert_whole(20);
    let calls = std::fs::read_to_string(field.path().join("runs/.slurm/calls"));
    assert!(calls.is_err(), "{calls:?}");
    let launched = field.newest().events("launched")[0]["nodes"].clone();
    assert!(
        launched[0].as_str().unwrap().starts_with("node"),
        "{launched}"
    );
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn what_a_run_cost_is_told_once_accounting_knows_also_to_a_colleague() {
    let _cluster = shared();
    let field = Field::of("ada");
    let recipe = field.recipe("20, 0.2, 10", TWO_NODES);
    let told = field.haul(&["run", &recipe]);
    assert_eq!(told.code, 0, "{told:#?}");
    let cost = wait_for("the accounts", || {
        let status = field.haul(&["status", "last", "--json"]).json();
        let cost = status["accounting"].clone();
        cost["used_node_hours"].is_number().then_some(cost)
    });
    // Two nodes for some seconds of ten minutes.
    let used = cost["used_node_hours"].as_f64().unwrap();
    assert!(
        used > 2.0 * 2.0 / 3600.0 && used < 2.0 * 120.0 / 3600.0,
        "{cost}"
    );
    let requested = cost["requested_node_hours"].as_f64().unwrap();
    assert!((requested - 1.0 / 3.0).abs() < 1e-9, "{cost}");
    assert!(cost["queue_seconds"].as_f64().unwrap() < 120.0, "{cost}");
    assert_eq!(cost["jobs_not_yet_known"], 0, "{cost}");
    let root = field.path().join("runs");
    let listing = || {
        cluster(&[
            "exec",
            "find",
            root.to_str().unwrap(),
            "-printf",
            "%p %C@\n",
        ])
    };
    // What a look of one's own keeps is kept by now.
    field.haul(&["report", "last"]);
    field.haul(&["status", "--all"]);
    let before = listing();
    let haul = field.path().join("haul");
    cluster(&["exec", "chmod", "755", field.path().to_str().unwrap()]);
    for words in [["status", "last"], ["report", "last"], ["logs", "last"]] {
        let all = [
            &["as", "bob", haul.to_str().unwrap()],
            &words[..],
            &["--root", root.to_str().unwrap()],
        ];
        let told = cluster(&all.concat());
        assert!(!told.is_empty());
    }
    assert_eq!(listing(), before);
}
