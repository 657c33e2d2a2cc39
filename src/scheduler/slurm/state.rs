//! The states of a job in words of Slurm → what they mean: one total table. What is not in it is unknown, never failed.

use crate::scheduler::{Because, End, How, JobState};

/// A job as squeue or sacct tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// `RUNNING`, or `CANCELLED by 1000`.
    pub state: String,
    /// `3:0`: exit code and signal; of sacct only.
    pub exit: Option<String>,
    /// Why it waits; of squeue only.
    pub reason: Option<String>,
    /// Unix seconds.
    pub start: Option<i64>,
    pub end: Option<i64>,
}

/// What the state of a job means.
pub fn meaning(told: &Told) -> JobState {
    let mut words = told.state.split_whitespace();
    let base = words.next().unwrap_or_default().trim_end_matches('+');
    match base {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_FED" | "POWER_UP_NODE" => waiting(told),
        "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => JobState::Waiting(format!(
            "held ({base}): `scontrol release` lets it go on, `haul cancel` ends it"
        )),
        "RUNNING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "SUSPENDED" | "STOPPED" => {
            JobState::Running
        }
        // A flag: the job may yet be requeued.
        "COMPLETING" => JobState::Ending(end(told, How::Told("is completing".into()), None)),
        "COMPLETED" => JobState::Ended(end(told, coded(told), None)),
        "FAILED" => JobState::Ended(end(told, coded(told), None)),
        "CANCELLED" => {
            let by = words
                .nth(1)
                .map_or(String::new(), |uid| format!(" by user {uid}"));
            let how = How::Told(format!("was cancelled{by}"));
            JobState::Ended(end(told, how, Some(Because::Cancelled)))
        }
        "TIMEOUT" => ended(told, "reached its time limit", Because::Walltime),
        "DEADLINE" => ended(told, "reached its deadline", Because::Walltime),
        "NODE_FAIL" => ended(told, "lost a node", Because::Nodes),
        "BOOT_FAIL" | "LAUNCH_FAILED" => {
            ended(told, "could not be started on its nodes", Because::Nodes)
        }
        "OUT_OF_MEMORY" => ended(told, "ran out of memory", Because::Memory),
        "PREEMPTED" => ended(told, "was preempted", Because::Preempted),
        "" => JobState::Unknown("Slurm gives no state".into()),
        other => JobState::Unknown(format!("Slurm says {}", printable(other))),
    }
}

fn ended(told: &Told, words: &str, because: Because) -> JobState {
    JobState::Ended(end(told, How::Told(words.into()), Some(because)))
}

fn end(told: &Told, how: How, because: Option<Because>) -> End {
    let time = |seconds: Option<i64>| {
        let time = chrono::DateTime::from_timestamp(seconds?, 0)?;
        Some(time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
    };
    End {
        how,
        because,
        started: time(told.start),
        ended: time(told.end),
    }
}

/// Of `ExitCode`; without it only the state is known.
fn coded(told: &Told) -> How {
    let exit = told.exit.as_deref().and_then(|text| {
        let (code, signal) = text.split_once(':')?;
        Some((code.parse::<i32>().ok()?, signal.parse::<i32>().ok()?))
    });
    match exit {
        // How slurmd tells that it could not open the output file or enter the directory.
        Some((0, 53)) => How::Told(
            "could not start: its output file or directory cannot be used from the compute node"
                .into(),
        ),
        Some((0, signal)) if signal > 0 => How::Signalled(signal),
        Some((code, _)) => How::Exited(code),
        None => How::Told(match told.state.as_str() {
            "COMPLETED" => "ended with code 0".into(),
            _ => "failed".into(),
        }),
    }
}

/// Why it waits, and until when at the earliest, in words and in local time.
fn waiting(told: &Told) -> JobState {
    let estimate = told
        .start
        .and_then(|at| chrono::DateTime::from_timestamp(at, 0));
    let estimate = estimate.map(|at| {
        let at = at.with_timezone(&chrono::Local);
        format!(
            "Slurm expects it to start on {}",
            at.format("%Y-%m-%d at %H:%M")
        )
    });
    match (why(told), estimate) {
        (JobState::Queued, Some(estimate)) => JobState::Waiting(estimate),
        (JobState::Waiting(why), Some(estimate)) => JobState::Waiting(format!("{why}; {estimate}")),
        (state, _) => state,
    }
}

fn why(told: &Told) -> JobState {
    let reason = told.reason.as_deref().map(str::trim).unwrap_or_default();
    let name = reason.split([',', ' ']).next().unwrap_or_default();
    let words = match name {
        "" | "None" => return JobState::Queued,
        "Priority" => "jobs of higher priority are before it",
        "Resources" => "it waits for nodes to become free",
        "Dependency" => "it waits for the job it depends on",
        "DependencyNeverSatisfied" => {
            return JobState::Waiting(
                "the job it depends on ended otherwise (DependencyNeverSatisfied): it never starts; `haul cancel` ends it".into(),
            );
        }
        "BeginTime" => "it may not begin yet",
        "JobHeldUser" => "it is held; `scontrol release` lets it go on",
        "JobHeldAdmin" => "an administrator holds it",
        "JobHoldMaxRequeue" => "it was requeued too often and is held",
        "PartitionTimeLimit" => {
            "its walltime is over the limit of the partition: it never starts so"
        }
        "PartitionNodeLimit" => {
            "it asks for more nodes than the partition gives: it never starts so"
        }
        "ReqNodeNotAvail" => {
            "nodes it needs are not available: maintenance ahead, or nodes that are down"
        }
        "Reservation" => "its reservation has not begun",
        "ReservationDeleted" => "its reservation was deleted: it never starts so",
        "BadConstraints" => "no node meets its constraints: it never starts so",
        "InvalidAccount" | "InvalidQOS" => {
            "its account or QOS is not valid any more: it never starts so"
        }
        "Cleaning" | "Prolog" => "its nodes are being prepared",
        _ if name.starts_with("QOSMax")
            || name.starts_with("Assoc")
            || name.starts_with("QOSGrp") =>
        {
            "the limit of your jobs is reached; it follows when others end"
        }
        _ => return JobState::Waiting(format!("Slurm says {}", printable(reason))),
    };
    JobState::Waiting(format!("{words} ({})", printable(name)))
}

/// Short and without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(state: &str, exit: Option<&str>, reason: Option<&str>) -> JobState {
        meaning(&Told {
            state: state.into(),
            exit: exit.map(str::to_owned),
            reason: reason.map(str::to_owned),
            ..Told::default()
        })
    }

    fn how(state: JobState) -> (How, Option<Because>) {
        match state {
            JobState::Ended(end) => (end.how, end.because),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_state_has_one_meaning() {
        assert_eq!(told("RUNNING", None, None), JobState::Running);
        assert_eq!(told("PENDING", None, Some("None")), JobState::Queued);
        assert!(matches!(
            told("COMPLETING", None, None),
            JobState::Ending(_)
        ));
        assert_eq!(
            how(told("COMPLETED", Some("0:0"), None)),
            (How::Exited(0), None)
        );
        assert_eq!(
            how(told("FAILED", Some("3:0"), None)),
            (How::Exited(3), None)
        );
        assert_eq!(
            how(told("FAILED", Some("0:9"), None)),
            (How::Signalled(9), None)
        );
        let (how_, because) = how(told("FAILED", Some("0:53"), None));
        assert!(matches!(how_, How::Told(words) if words.contains("output file")));
        assert_eq!(because, None);
        for (state, because) in [
            ("TIMEOUT", Because::Walltime),
            ("CANCELLED by 1000", Because::Cancelled),
            ("CANCELLED+", Because::Cancelled),
            ("NODE_FAIL", Because::Nodes),
            ("OUT_OF_MEMORY", Because::Memory),
            ("PREEMPTED", Because::Preempted),
        ] {
            assert_eq!(
                how(told(state, Some("0:0"), None)).1,
                Some(because),
                "{state}"
            );
        }
        for state in ["", "NEW_STATE", "REVOKED", "RECONFIG_FAIL"] {
            assert!(
                matches!(told(state, None, None), JobState::Unknown(_)),
                "{state}"
            );
        }
    }

    #[test]
    fn reasons_are_told_in_words_and_cut_at_nothing_but_their_name() {
        let words = |reason| match told("PENDING", None, Some(reason)) {
            JobState::Waiting(words) => words,
            other => panic!("{other:?}"),
        };
        assert!(words("Priority").contains("higher priority"));
        assert!(words("DependencyNeverSatisfied").contains("never starts"));
        assert!(words("ReqNodeNotAvail, UnavailableNodes:node3").contains("not available"));
        assert!(words("QOSMaxJobsPerUserLimit").contains("limit of your jobs"));
        let odd = "Nodes required for job are DOWN, DRAINED or reserved";
        assert!(words(odd).contains(odd));
    }

    #[test]
    fn when_it_is_expected_to_start_is_told() {
        let words = |reason: &str, start| {
            let told = Told {
                state: "PENDING".into(),
                reason: Some(reason.into()),
                start,
                ..Told::default()
            };
            meaning(&told)
        };
        let at = Some(1_764_590_000);
        let local = chrono::DateTime::from_timestamp(1_764_590_000, 0).unwrap();
        let local = local
            .with_timezone(&chrono::Local)
            .format("%H:%M")
            .to_string();
        for (reason, why) in [
            ("Resources", "nodes to become free (Resources); "),
            ("None", ""),
        ] {
            let JobState::Waiting(words) = words(reason, at) else {
                panic!("{reason}")
            };
            assert!(words.contains(why) && words.ends_with(&local), "{words}");
        }
        assert_eq!(words("None", None), JobState::Queued);
    }

    proptest! {
        #[test]
        fn a_text_that_is_no_state_is_never_an_end(state in "[A-Z_]{1,20}") {
            let known = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "OUT_OF_MEMORY", "PREEMPTED"];
            if !known.contains(&state.as_str()) {
                prop_assert!(!matches!(told(&state, Some("1:0"), None), JobState::Ended(_)));
            }
        }
    }
}
