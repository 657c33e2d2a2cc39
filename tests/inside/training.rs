//! The shell trainer from its first step to its last, and what each exit code leads to.

use crate::bench::{Bench, Setup, bash, trainer};
use haul::plan::Binding;
use haul_runtime::contract::metrics::{Kind, Line};

#[test]
fn the_shell_trainer_trains_and_all_of_it_is_recorded() {
    let bench = Bench::new(&trainer(10, "0.02", 5));
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    assert_eq!(bench.steps(1), (1..=10).collect::<Vec<_>>());
    let metrics = bench.metrics(1);
    let first = metrics.iter().find(|l| l.step == Some(1)).unwrap();
    assert_eq!(first.loss, Some(5.0));
    assert_eq!(first.loss_bits.as_deref(), Some(Line::bits(5.0).as_str()));
    assert_eq!(
        (first.attempt, first.step_seconds, &first.phases),
        (Some(1), None, &None)
    );
    assert!(first.elapsed.is_some() && first.time.is_some());
    assert!(metrics.iter().all(|l| l.kind != Kind::Note), "{metrics:?}");
    let saves: Vec<_> = metrics.iter().filter(|l| l.kind == Kind::Save).collect();
    assert_eq!(
        saves.iter().map(|l| l.step.unwrap()).collect::<Vec<_>>(),
        [5, 10, 10][..saves.len()]
    );
    let saved: Vec<u64> = bench
        .events("saved")
        .iter()
        .map(|e| e["step"].as_u64().unwrap())
        .collect();
    assert_eq!(saved, [5, 10]);
    assert!(
        bench
            .run
            .join("checkpoints/1/step-10/manifest.json")
            .exists()
    );

    assert_eq!(bench.verdict(1)["class"], "done");
    let finished = bench.events("finished");
    assert_eq!(finished.len(), 1);
    assert_eq!(finished[0]["outcome"], "finished");
    for rank in 0..2 {
        assert_eq!(bench.rank_event(1, rank, "exit").unwrap()["code"], 0);
        let start = format!(" local0:{rank} rank {rank} of 2 starts at step 0\n");
        assert!(bench.log(1, "local0").contains(&start));
    }
    let secret = bench.attempt(1).join("secret");
    let mode = std::os::unix::fs::PermissionsExt::mode(&secret.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    bench.assert_clean();

    // A finished run is not worked on again.
    let mut again = bench.supervise_as("job-9");
    assert_eq!(again.wait(), 0);
    assert!(
        again.output().contains("double of job job-1"),
        "{}",
        again.output()
    );
    assert!(!bench.attempt(2).exists());
}

#[test]
fn the_recipe_of_the_shell_trainer_runs_wherever_it_is_planned_from() {
    let haul = |args: &[&str], directory: &std::path::Path| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_haul"));
        let output = command.args(args).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/shell-trainer.yaml");
    let text = haul(&["plan", "--json", recipe], &std::env::temp_dir());

    let mut plan: haul::plan::Plan = serde_json::from_str(&text).unwrap();
    let haul::plan::Program::Command { command } = &mut plan.program else {
        panic!("{:?}", plan.program);
    };
    assert_eq!(command[1..], ["200", "0.05", "20"]);
    // Its 10 seconds are not needed here.
    command[2] = "0".into();
    let bench = Bench::with_plan(&plan);
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    assert_eq!(bench.steps(1).len(), 200);
    // A save is written at once, a step when all ranks have told it.
    let lines = bench.metrics(1);
    let mut losses = lines.iter().filter_map(|l| l.loss);
    let (first, last) = (losses.next().unwrap(), losses.next_back().unwrap());
    assert!(first > last && last < 1.2, "{first} {last}");
}

#[test]
fn two_virtual_nodes_have_logs_of_their_own_and_a_contract_environment() {
    let setup = Setup {
        nodes: 2,
        binding: Binding::Even,
        ..bash(
            r#"echo "env $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR [$HAUL_LOAD_FROM] $HAUL_ATTEMPT"
               [ -d "$HAUL_CONTROL" ] && [ -f "$HAUL_PROGRESS" ] && [ -d "$HAUL_SAVE_DIR" ] && [ -d "$HAUL_RUN_DIR" ] && [ "$MASTER_PORT" -gt 1024 ]"#,
        )
    };
    let bench = Bench::new(&setup);
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    for rank in 0..4 {
        let (node, local) = (format!("local{}", rank / 2), rank % 2);
        let line = format!(" {node}:{rank} env {rank} {local} 4 2 127.0.0.1 [] 1\n");
        let log = bench.log(1, &node);
        assert!(log.contains(&line), "{log}");
    }
    let text = std::fs::read_to_string(bench.attempt(1).join("binding.jsonl")).unwrap();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["as_asked"], true, "{line}");
    }
    bench.assert_clean();
}

#[test]
fn code_75_starts_again_from_the_checkpoint_and_is_no_failure() {
    let setup = bash(
        r#"step=0; [ -n "$HAUL_LOAD_FROM" ] && read -r step < "$HAUL_LOAD_FROM"
           step=$((step + 3))
           echo "{\"kind\":\"step\",\"step\":$step}" >> "$HAUL_PROGRESS"
           [ "$RANK" = 0 ] && echo $step > "$HAUL_SAVE_DIR/state-$step" && echo state-$step > "$HAUL_SAVE_DIR/latest"
           [ $step -ge 9 ] || exit 75"#,
    );
    let bench = Bench::new(&setup);
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    let steps: Vec<_> = (1..=3).map(|attempt| bench.steps(attempt)).collect();
    assert_eq!(steps, [[3], [6], [9]]);
    assert_eq!(bench.verdict(1)["class"], "again");
    assert_eq!(bench.events("attempt")[2]["parent"]["step"], 6);
}

#[test]
fn code_75_without_anything_saved_is_a_failure() {
    let bench = Bench::new(&Setup {
        failures: 1,
        ..bash("exit 75")
    });
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 3, "{}", supervisor.output());
    assert_eq!(bench.events("judged").len(), 2);
}

#[test]
fn code_76_leads_to_the_checkpoint_before_until_none_is_left() {
    // The second attempt refuses what it is given until it is given step 4.
    let setup = Setup {
        failures: 1,
        ..bash(
            r#"save() { echo $1 > "$HAUL_SAVE_DIR/state-$1"; echo state-$1 > "$HAUL_SAVE_DIR/latest"
                        echo "{\"kind\":\"save\",\"step\":$1,\"path\":\"state-$1\"}" >> "$HAUL_PROGRESS"; }
               if [ -z "$HAUL_LOAD_FROM" ]; then [ $RANK = 0 ] || sleep 1000; save 4; save 8; save 12; exit 1; fi
               read -r step < "$HAUL_LOAD_FROM"; [ "$step" = "${GOOD:-4}" ] || exit 76"#,
        )
    };
    let bench = Bench::new(&setup);
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    let parents: Vec<_> = bench
        .events("attempt")
        .iter()
        .map(|e| e["parent"]["step"].clone())
        .collect();
    assert_eq!(
        serde_json::json!(parents),
        serde_json::json!([null, 12, 8, 4])
    );
    assert_eq!(bench.events("unreadable").len(), 2);
    bench.assert_clean();

    let mut none = setup;
    none.command[2] = none.command[2].replace("${{GOOD:-4}}", "never");
    let bench = Bench::new(&none);
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 3, "{}", supervisor.output());
    let finished = bench.events("finished");
    let words = finished[0]["words"].as_str().unwrap();
    assert!(words.starts_with("no checkpoint can be read"), "{words}");
    assert_eq!(bench.events("attempt").len(), 4);
}

#[test]
fn code_93_and_a_program_that_cannot_start_fail_with_their_reason() {
    let bench = Bench::new(&Setup {
        failures: 3,
        ..bash("echo bad idea >&2; exit 93")
    });
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 3);
    let verdict = bench.verdict(1);
    assert_eq!(verdict["class"], "never");
    assert_eq!(verdict["log"][0], "bad idea");
    assert!(!bench.attempt(2).exists());

    let mut setup = bash("");
    setup.command = vec!["/no/such/program".into()];
    let bench = Bench::new(&setup);
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 3);
    let words = bench.verdict(1)["words"].as_str().unwrap().to_owned();
    assert!(
        words.contains("could not start") && words.contains("/no/such/program"),
        "{words}"
    );
    bench.assert_clean();
}

#[test]
fn a_torn_checkpoint_is_refused_with_its_reason_and_all_torn_stop_the_run() {
    let setup = trainer(12, "0.01", 4);
    let mut bench = Bench::new(&Setup {
        command: trainer(8, "0.01", 4).command,
        ..trainer(8, "0.01", 4)
    });
    assert_eq!(bench.supervise().wait(), 0);
    std::fs::write(bench.run.join("checkpoints/1/state-8"), "").unwrap();
    bench.reopen(&setup);
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 0, "{}", supervisor.output());
    assert!(
        supervisor
            .output()
            .contains("step 8 is refused: data has 0 bytes"),
        "{}",
        supervisor.output()
    );
    assert_eq!(bench.steps(2), (5..=12).collect::<Vec<_>>());

    for (attempt, step) in [(1, 4), (2, 8), (2, 12)] {
        std::fs::write(
            bench
                .run
                .join(format!("checkpoints/{attempt}/state-{step}")),
            "",
        )
        .unwrap();
    }
    bench.reopen(&setup);
    let mut supervisor = bench.supervise();
    assert_eq!(supervisor.wait(), 3);
    assert!(
        supervisor.output().contains("no checkpoint can be read"),
        "{}",
        supervisor.output()
    );
    assert!(!bench.attempt(3).exists());
}

#[test]
fn a_step_beyond_belief_is_a_note() {
    let lines = r#"for s in 1 2 99999999999999999 3; do echo "{\"kind\":\"step\",\"step\":$s}" >> $HAUL_PROGRESS; done"#;
    let bench = Bench::new(&bash(lines));
    assert_eq!(bench.supervise().wait(), 0);
    assert_eq!(bench.steps(1), [1, 2, 3]);
    let notes: Vec<String> = bench
        .metrics(1)
        .into_iter()
        .filter_map(|l| l.text)
        .collect();
    assert!(
        notes[0].contains("tells step 99999999999999999, which is not believed"),
        "{notes:?}"
    );
    assert_eq!(bench.verdict(1)["step"], 3);
    bench.assert_clean();
}
