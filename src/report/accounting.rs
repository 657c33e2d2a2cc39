//! Node-hours and queue time of a run under a scheduler that keeps accounts. What it has not told yet is not known.

use crate::plan::{NODE_HOURS, Plan};
use crate::store::accounts::Account;
use serde::Serialize;
use std::collections::BTreeMap;

/// Accounts of each slot; a slot that is not there is not known yet.
pub type Accounts = BTreeMap<u32, Vec<Account>>;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Accounting {
    /// Nodes x walltime of all jobs; absent where one has no walltime.
    pub requested_node_hours: Option<f64>,
    /// Nodes x time from start to end, of the jobs that are known.
    pub used_node_hours: Option<f64>,
    /// The same in the unit of the site; absent where the profile does not say what an hour of a node costs.
    pub charged: Option<f64>,
    pub unit: Option<String>,
    /// From eligible to start, of the jobs that are known.
    pub queue_seconds: Option<f64>,
    /// Jobs that accounting has not told of yet, or that go on.
    pub jobs_not_yet_known: usize,
}

impl Accounting {
    /// Of `plans` by slot.
    pub fn of(plans: &BTreeMap<u32, Plan>, accounts: &Accounts) -> Accounting {
        let cost = plans.values().next_back().map(|plan| &plan.cost);
        let requested = plans.values().map(|plan| plan.cost.node_hours);
        let starts = || accounts.values().flatten();
        let sum = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>());
        let used = sum(starts().filter_map(Account::node_hours).collect());
        let charged = cost.zip(used).and_then(|(cost, used)| cost.charged(used));
        Accounting {
            requested_node_hours: requested.sum::<Option<f64>>().filter(|_| !plans.is_empty()),
            used_node_hours: used,
            charged,
            unit: cost.and_then(|cost| cost.charge.clone()),
            queue_seconds: sum(starts().filter_map(Account::queue_seconds).collect()),
            jobs_not_yet_known: plans
                .keys()
                .filter(|slot| !accounts.contains_key(slot))
                .count(),
        }
    }

    /// Such as "1.50 of 4.00 requested".
    pub fn node_hours(&self) -> String {
        let requested = self.requested_node_hours;
        let requested = requested.map(|hours| format!("{} requested", self::hours(hours)));
        let Some(used) = self.used_node_hours else {
            let requested = requested.map_or(String::new(), |words| format!("; {words}"));
            return format!("{NOT_YET}{requested}");
        };
        let of = requested.map_or(String::new(), |words| format!(" of {words}"));
        let more = match self.jobs_not_yet_known {
            0 => "",
            _ => "; those of the newest jobs are not yet known",
        };
        format!("{}{of}{more}", hours(used))
    }

    /// Such as "6.00 gpu-hours"; absent where the unit is node-hours.
    pub fn charge(&self) -> Option<String> {
        let unit = self.unit.as_deref().filter(|unit| *unit != NODE_HOURS)?;
        Some(match self.charged {
            Some(charged) => format!("{} {unit}", hours(charged)),
            None if self.used_node_hours.is_none() => NOT_YET.into(),
            None => {
                format!("in {unit}; the machine profile does not say how many an hour of a node is")
            }
        })
    }
}

pub const NOT_YET: &str = "not yet known";

fn hours(hours: f64) -> String {
    match hours < 0.1 {
        true => format!("{hours:.4}"),
        false => format!("{hours:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(job: &str, nodes: u64, elapsed: u64, queued: i64) -> Account {
        Account {
            job: job.into(),
            eligible: Some(1000),
            started: Some(1000 + queued),
            ended: Some(1000 + queued + elapsed as i64),
            elapsed_seconds: Some(elapsed),
            nodes: Some(nodes),
            ..Account::default()
        }
    }

    #[test]
    fn starts_are_summed_and_what_is_missing_is_not_yet_known() {
        let none = Accounting::of(&BTreeMap::new(), &Accounts::new());
        assert_eq!(none, Accounting::default());
        let never = Account {
            nodes: Some(0),
            elapsed_seconds: Some(0),
            ..start("2", 0, 0, 500)
        };
        let starts = vec![start("1", 4, 1800, 60), start("1", 4, 900, 30), never];
        let some = Accounting::of(&BTreeMap::new(), &Accounts::from([(1, starts)]));
        assert_eq!(some.used_node_hours, Some(3.0));
        assert_eq!(some.queue_seconds, Some(90.0));
        assert_eq!(some.node_hours(), "3.00");
    }
}
