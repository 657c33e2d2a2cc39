//! `chain` and `limits`: whether a job that ends at its time limit has a successor, and when that stops.

use super::section::{Given, Section};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    None,
    /// A job that has saved before its time limit submits its successor.
    AtEnd,
}

/// What all jobs of a run together may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    pub node_hours: Option<Given<f64>>,
    pub jobs: Option<Given<u64>>,
    /// `YYYY-MM-DD`: no job is submitted after this day (UTC).
    pub until: Option<Given<String>>,
}

pub(super) fn chain(s: &mut Section) -> Given<Chain> {
    s.choice(
        "chain",
        "Does a job that ends at its time limit have a successor?",
        &[("none", Chain::None), ("at-end", Chain::AtEnd)],
        &["ahead"],
        ("none", Chain::None),
    )
}

pub(super) fn limits(s: &mut Section) -> Limits {
    let until = s.text(
        "until",
        "The last day on which a job is submitted, such as 2027-02-15.",
        None,
    );
    if let Some(given) = &until
        && chrono::NaiveDate::parse_from_str(&given.value, "%Y-%m-%d").is_err()
    {
        s.fault(
            super::diagnostic::Diagnostic::error("until", "this is no day")
                .at(given.at, "")
                .help("write it as 2027-02-15"),
        );
    }
    Limits {
        node_hours: s.number(
            "node_hours",
            "Node-hours of all jobs of the run together.",
            0.0..=1e9,
        ),
        jobs: s.count("jobs", "Jobs of the run.", 1..=100_000),
        until,
    }
}
