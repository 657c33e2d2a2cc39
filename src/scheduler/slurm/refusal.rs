//! What sbatch says when it does not submit: whether there may be a job all the same, and what to do.

use crate::scheduler::SubmitError;

/// After these the job may exist: the request was sent, the answer was lost. Or nothing is decided yet.
const UNCLEAR: &[&str] = &[
    "timed out",
    "unexpected message received",
    "zero bytes were transmitted",
    "send failure",
    "receive failure",
    "connect failure",
    "unable to contact slurm controller",
    "connection refused",
    "connection reset",
    "rate limit exceeded",
    "sleeping and retrying",
    "temporarily disabled",
    "temporarily unable",
    "resource temporarily unavailable",
];

/// Words of Slurm → what to do.
const ADVICE: &[(&str, &str)] = &[
    (
        "QOSMaxSubmitJob",
        "the QOS allows no more of your jobs at a time: wait until one has ended, or use another QOS",
    ),
    (
        "MaxSubmitJob",
        "your account allows no more jobs at a time: wait until one has ended",
    ),
    (
        "MaxWallDurationPerJob",
        "`job.walltime` is over the limit of the QOS or account: shorten it",
    ),
    (
        "MaxNodePerJob",
        "`job.nodes` is over the limit of the QOS or account",
    ),
    (
        "account/partition",
        "set `account:` in the user config (~/.config/haul/config.yaml) to one of `sacctmgr show assoc user=$USER`",
    ),
    (
        "invalid account",
        "set `account:` in the user config (~/.config/haul/config.yaml) to one of `sacctmgr show assoc user=$USER`",
    ),
    (
        "invalid partition",
        "the partition of the machine profile is not there: `sinfo -s` lists them",
    ),
    (
        "invalid qos",
        "the QOS is not yours: `sacctmgr show assoc user=$USER format=qos` lists them",
    ),
    (
        "time limit",
        "`job.walltime` is over the limit of the partition: `sinfo -o '%P %l'` shows it",
    ),
    (
        "node count",
        "`job.nodes` is over the limit of the partition: `sinfo -o '%P %s'` shows it",
    ),
    (
        "node configuration is not available",
        "no node has what is asked for: see `job.ranks_per_node`, `job.cores_per_rank` and the profile's options",
    ),
    (
        "invalid feature",
        "a constraint of the profile names a feature no node has: `sinfo -o '%f'` lists them",
    ),
    (
        "reservation",
        "the reservation is not there or not yours: `scontrol show reservation`",
    ),
    (
        "submissions disabled",
        "the site takes no jobs at present: try again when maintenance is over",
    ),
    (
        "dependency problem",
        "a job it depends on ended too long ago or never was",
    ),
    (
        "accounting/QOS policy",
        "a limit of your account or QOS is reached: `sacctmgr show qos` and `squeue -u $USER` show which",
    ),
];

/// The error for what sbatch wrote on standard error.
pub fn refusal(said: &str) -> SubmitError {
    let lower = said.to_lowercase();
    let words = one_line(said);
    if UNCLEAR.iter().any(|text| lower.contains(text)) {
        return SubmitError::Ambiguous(words);
    }
    let advice = ADVICE
        .iter()
        .find(|(text, _)| lower.contains(&text.to_lowercase()));
    SubmitError::Refused(match advice {
        Some((_, advice)) => format!("{words}; {advice}"),
        None if words.is_empty() => "sbatch failed and said nothing".into(),
        None => words,
    })
}

/// What was written, in one line without prefixes.
pub fn one_line(said: &str) -> String {
    let lines = said.lines().map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("sbatch: ").unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line)
    });
    let kept: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let text = kept.join("; ");
    text.chars().filter(|c| !c.is_control()).take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_after_which_a_job_may_exist_are_unclear() {
        for said in [
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
            "sbatch: error: Batch job submission failed: Unexpected message received",
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        ] {
            assert!(matches!(refusal(said), SubmitError::Ambiguous(_)), "{said}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        for (said, advice) in [
            (
                "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
                "user config",
            ),
            (
                "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
                "no more of your jobs",
            ),
            (
                "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
                "job.walltime",
            ),
            (
                "sbatch: error: Batch job submission failed: Invalid qos specification",
                "QOS is not yours",
            ),
            ("", "said nothing"),
        ] {
            let SubmitError::Refused(words) = refusal(said) else {
                panic!("{said}")
            };
            assert!(words.contains(advice), "{words}");
            assert!(!words.contains("sbatch: error"), "{words}");
        }
    }
}
