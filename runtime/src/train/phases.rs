//! Seconds of a step by phase.

use crate::contract::metrics::PHASES;
use std::collections::BTreeMap;
use std::time::Instant;

/// Index into [`PHASES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Data = 0,
    Compute = 1,
    DataWait = 5,
    DataTransfer = 6,
    Update = 7,
    Other = 10,
}

/// Adds up seconds by phase; what is in no phase is `other`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Phases([f64; PHASES.len()]);

impl Phases {
    /// Adds seconds to a phase.
    pub fn add(&mut self, phase: Phase, seconds: f64) {
        self.0[phase as usize] += seconds;
    }

    /// Adds the time since `start` to a phase.
    pub fn since(&mut self, phase: Phase, start: Instant) {
        self.add(phase, start.elapsed().as_secs_f64());
    }

    /// Seconds by name, `other` filled up so that the sum is `total`; phases that took no time are left out.
    pub fn finish(mut self, total: f64) -> BTreeMap<String, f64> {
        let other = Phase::Other as usize;
        self.0[other] = (total - self.0.iter().sum::<f64>()).max(0.0);
        let named = PHASES.iter().zip(self.0).filter(|(_, s)| *s > 0.0);
        named.map(|(name, s)| ((*name).to_owned(), s)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_sum_to_the_step() {
        let mut phases = Phases::default();
        phases.add(Phase::Data, 0.25);
        phases.add(Phase::Update, 0.5);
        let map = phases.finish(1.0);
        assert_eq!(map.values().sum::<f64>(), 1.0);
        assert_eq!(
            (map["data"], map["update"], map["other"]),
            (0.25, 0.5, 0.25)
        );
        assert!(!map.contains_key("pipe_wait"));
        for (phase, name) in [
            (Phase::Compute, "compute"),
            (Phase::DataWait, "data_wait"),
            (Phase::DataTransfer, "data_transfer"),
        ] {
            assert_eq!(PHASES[phase as usize], name);
        }
    }
}
