//! Answers of sbatch that are not clear, and jobs that exist twice: one of a slot trains.

use crate::field::{Field, TWO_NODES, shared, slurm, wait_for};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A directory with an `sbatch` that runs these lines; `real` is the real one.
fn wrapper(field: &Field, lines: &str) -> PathBuf {
    let directory = field.path().join("wrapped");
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("sbatch");
    let text = format!(
        "#!/bin/bash\nreal=/usr/bin/sbatch count={}\n{lines}\n",
        directory.join("count").display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Times that sbatch was asked.
fn asked(field: &Field) -> usize {
    let text = std::fs::read_to_string(field.path().join("wrapped/count")).unwrap();
    text.lines().count()
}

const LOST: &str = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1";

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn an_answer_that_is_lost_after_the_job_was_taken_gives_one_job() {
    let _cluster = shared();
    let mut field = Field::new();
    field.path = Some(wrapper(
        &field,
        &format!("echo x >> $count\n\"$real\" \"$@\" >/dev/null\n{LOST}"),
    ));
    let told = field.haul(&["run", &field.recipe("30, 0.05, 10", TWO_NODES)]);
    assert_eq!(told.code, 0, "{told:#?}");
    assert_eq!(asked(&field), 1);
    let run = field.newest();
    assert_eq!(run.events("submitted").len(), 1);
    assert!(run.events("double").is_empty());
    field.assert_whole(30);
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn an_answer_that_is_lost_before_the_job_was_taken_leads_to_another_try() {
    let _cluster = shared();
    let mut field = Field::new();
    let lines =
        format!("echo x >> $count\n[ $(wc -l < $count) -gt 1 ] && exec \"$real\" \"$@\"\n{LOST}");
    field.path = Some(wrapper(&field, &lines));
    let told = field.haul(&["run", &field.recipe("30, 0.05, 10", TWO_NODES)]);
    assert_eq!(told.code, 0, "{told:#?}");
    assert_eq!(asked(&field), 2);
    assert_eq!(field.newest().events("submitted").len(), 1);
    field.assert_whole(30);
}

#[test]
#[ignore = "needs a real Slurm: .ci/slurm"]
fn of_two_jobs_of_a_slot_one_trains_and_the_other_says_whose_double_it_is() {
    let _cluster = shared();
    let field = Field::new();
    let run = field.submit(&field.recipe("200, 0.05, 20", TWO_NODES));
    run.wait_for_step(1, 5);
    let owner = field.live_jobs().remove(0);
    let script = run.0.job(1).join("job.sh");
    let double = slurm(&["sbatch", "--parsable", script.to_str().unwrap()]);
    let double = double.trim();
    wait_for("the double's end", || {
        (!field.live_jobs().iter().any(|job| job == double)).then_some(())
    });
    let told = run.events("double");
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0]["job"].as_str(), told[0]["of"].as_str()),
        (Some(double), Some(owner.as_str()))
    );
    assert!(
        run.output(1)
            .contains(&format!("job {double} is a double of job {owner}")),
        "{}",
        run.output(1)
    );
    field.wait_until("finished");
    field.assert_whole(200);
    assert_eq!(run.0.numbers("attempts"), [1]);
}
