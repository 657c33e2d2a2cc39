//! `restart`: what failures cost.

use super::section::{Given, Section};

#[derive(Debug, Clone, PartialEq)]
pub struct Restart {
    pub failures: Given<u64>,
}

pub(super) fn read(s: &mut Section) -> Restart {
    s.later(&["hang", "exclude", "backoff"]);
    Restart {
        failures: s.count_or(
            "failures",
            "Failures within one job that are answered by a new attempt.",
            0..=1000,
            3,
        ),
    }
}
