//! Lines of squeue and sacct → rows. Text formats only: their fields are asked for one by one and do not change with the version.

use super::state::{Told, meaning};
use crate::scheduler::JobState;
use crate::store::accounts::Account;
use serde::{Deserialize, Serialize};

/// Of `squeue -h -o`: the name comes last, because it alone may hold the separator.
pub const QUEUE_FORMAT: &str = "%A|%T|%S|%r|%j";
/// Of `sacct -P -n -X -D -o`.
pub const PAST_FORMAT: &str =
    "JobIDRaw,State,ExitCode,Start,End,Submit,Eligible,ElapsedRaw,AllocNodes,JobName";

/// One job as it was told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub job: String,
    pub name: String,
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Unix seconds; of a waiting job when Slurm expects it to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
    /// Of sacct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
}

impl Row {
    /// It has ended.
    pub fn is_over(&self) -> bool {
        matches!(meaning(&self.told()), JobState::Ended(_))
    }

    pub fn told(&self) -> Told {
        Told {
            state: self.state.clone(),
            exit: self.exit.clone(),
            reason: self.reason.clone(),
            start: self.start,
            end: self.end,
        }
    }
}

/// Rows of squeue in [`QUEUE_FORMAT`]; lines of another shape are left out.
pub fn queue(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut fields = line.splitn(5, '|');
        let (job, state, start, reason) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        let name = fields.next()?;
        Some(Row {
            job: number(job)?,
            name: name.trim_end().to_owned(),
            state: state.trim().to_owned(),
            exit: None,
            reason: Some(reason.trim().to_owned()),
            start: seconds(start),
            end: None,
            account: None,
        })
    };
    text.lines().filter_map(row).collect()
}

/// Rows of sacct in [`PAST_FORMAT`]; of a job that was requeued the last one counts, and comes last.
pub fn past(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut fields = line.splitn(10, '|');
        let (job, state, exit) = (fields.next()?, fields.next()?, fields.next()?);
        let (start, end) = (seconds(fields.next()?), seconds(fields.next()?));
        let (submitted, eligible) = (fields.next()?, fields.next()?);
        let (elapsed, nodes, name) = (fields.next()?, fields.next()?, fields.next()?);
        let job = number(job)?;
        let account = Account {
            job: job.clone(),
            submitted: seconds(submitted),
            eligible: seconds(eligible),
            started: start,
            ended: end,
            elapsed_seconds: elapsed.trim().parse().ok(),
            nodes: nodes.trim().parse().ok(),
        };
        Some(Row {
            job,
            name: name.trim_end().to_owned(),
            state: state.trim().to_owned(),
            exit: Some(exit.trim().to_owned()),
            reason: None,
            start,
            end,
            account: Some(account),
        })
    };
    text.lines().filter_map(row).collect()
}

/// The job id that `sbatch --parsable` prints: `123` or `123;cluster`, on the last line that is one.
pub fn submitted(text: &str) -> Option<String> {
    let id = |line: &str| number(line.trim().split(';').next()?);
    text.lines().rev().find_map(id)
}

fn number(text: &str) -> Option<String> {
    let text = text.trim();
    let digits = !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.to_owned())
}

/// Seconds since the epoch; `Unknown`, `N/A`, `None` are absent.
fn seconds(text: &str) -> Option<i64> {
    text.trim().parse().ok().filter(|seconds| *seconds > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_reasons_may_hold_anything() {
        let rows = queue(
            "1003|PENDING|N/A|Nodes required for job are DOWN, DRAINED|haul-a-261201-abcd-1\n\
             1004|RUNNING|1764580000|None|a|b\nslurm_load_jobs error: x\n12_3|RUNNING|1|None|array\n",
        );
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((rows[0].job.as_str(), rows[0].start), ("1003", None));
        assert!(rows[0].reason.as_ref().unwrap().contains("DOWN, DRAINED"));
        assert_eq!(
            (rows[1].name.as_str(), rows[1].start),
            ("a|b", Some(1764580000))
        );
    }

    #[test]
    fn requeued_jobs_have_several_rows() {
        let rows = past(
            "7|NODE_FAIL|0:0|1764580000|1764580100|1764579000|1764579500|100|4|haul-x-1\n\
             7|CANCELLED by 0|0:0|1764580200|Unknown|Unknown|Unknown||0|haul-x-1\n\
             7.batch|FAILED|1:0|1|2|1|1|1|1|batch\n",
        );
        assert_eq!(rows.len(), 2, "{rows:?}");
        let account = rows[0].account.clone().unwrap();
        assert_eq!(account.queue_seconds(), Some(500.0));
        assert_eq!(account.node_hours(), Some(400.0 / 3600.0));
        let account = rows[1].account.clone().unwrap();
        assert_eq!(
            (account.queue_seconds(), account.node_hours()),
            (None, None)
        );
        assert_eq!(rows[1].state, "CANCELLED by 0");
        assert_eq!((rows[0].end, rows[1].end), (Some(1764580100), None));
    }

    #[test]
    fn the_answer_of_sbatch() {
        assert_eq!(submitted("123\n").as_deref(), Some("123"));
        assert_eq!(
            submitted("a site's greeting\n77;frontier\n").as_deref(),
            Some("77")
        );
        assert_eq!(submitted("Submitted batch job x"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text in "\\PC{0,200}|([0-9|:A-Z \n]{0,200})") {
            let _ = (queue(&text), past(&text), submitted(&text));
        }
    }
}
