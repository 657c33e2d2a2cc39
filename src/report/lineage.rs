//! Which steps count: those of the head attempt and of its ancestors up to the checkpoint the next one started from.
//!
//! The head is the newest attempt of the highest supervisor epoch.

use super::records::Records;
use crate::store::journal::Event;
use haul_runtime::contract::checkpoint::Point;
use std::collections::BTreeMap;

/// The valid part of a run's history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineage {
    pub head: Option<u32>,
    /// Attempt → its valid steps, both ends included.
    ranges: BTreeMap<u32, (u64, u64)>,
    /// No attempt is journalled: the lineage follows from step numbers alone.
    pub guessed: bool,
}

impl Lineage {
    pub fn of(records: &Records) -> Lineage {
        let attempts: BTreeMap<u32, (u64, Option<Point>)> = records
            .entries
            .iter()
            .filter_map(|entry| match &entry.event {
                Event::Attempt {
                    attempt, parent, ..
                } => Some((*attempt, (entry.epoch, *parent))),
                _ => None,
            })
            .collect();
        match attempts.iter().max_by_key(|(n, (epoch, _))| (*epoch, **n)) {
            Some((head, _)) => Lineage::from_head(*head, &attempts),
            None => Lineage::from_steps(records),
        }
    }

    fn from_head(head: u32, attempts: &BTreeMap<u32, (u64, Option<Point>)>) -> Lineage {
        let mut ranges = BTreeMap::new();
        let (mut attempt, mut last) = (head, u64::MAX);
        loop {
            let parent = attempts.get(&attempt).and_then(|(_, parent)| *parent);
            let first = parent.map_or(1, |point| point.step.saturating_add(1));
            ranges.insert(attempt, (first, last));
            match parent {
                // Parents are older; anything else is a damaged record and would not end.
                Some(point) if point.attempt < attempt => {
                    (attempt, last) = (point.attempt, point.step);
                }
                _ => break,
            }
        }
        Lineage {
            head: Some(head),
            ranges,
            guessed: false,
        }
    }

    /// Without journal: a later attempt replaces what an earlier one did from its own first step on.
    fn from_steps(records: &Records) -> Lineage {
        let mut ranges = BTreeMap::new();
        let mut last = u64::MAX;
        for (number, attempt) in records.attempts.iter().rev() {
            let Some(first) = attempt.lines.iter().filter_map(|line| line.step).min() else {
                continue;
            };
            if first <= last {
                ranges.insert(*number, (first, last));
                last = first.saturating_sub(1);
            }
        }
        Lineage {
            head: ranges.keys().next_back().copied(),
            guessed: !ranges.is_empty(),
            ranges,
        }
    }

    /// Whether step `step` of `attempt` counts.
    pub fn keeps(&self, attempt: u32, step: u64) -> bool {
        self.ranges
            .get(&attempt)
            .is_some_and(|(first, last)| (*first..=*last).contains(&step))
    }

    /// The step of the checkpoint that `attempt` of the lineage began with.
    pub fn begins(&self, attempt: u32) -> Option<u64> {
        let (first, _) = self.ranges.get(&attempt)?;
        first.checked_sub(1).filter(|step| *step > 0)
    }

    /// Steps from which an attempt of the lineage went on, with that attempt.
    pub fn resumes(&self) -> impl Iterator<Item = (u32, u64)> {
        self.ranges
            .iter()
            .filter(|(_, (first, _))| *first > 1)
            .map(|(attempt, (first, _))| (*attempt, first - 1))
    }
}
