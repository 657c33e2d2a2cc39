//! Steps that count and of which no record is left, as ranges.

use super::lineage::Lineage;
use super::records::Records;
use super::steps::Steps;
use crate::store::journal::Event;
use crate::ui::units::grouped;
use std::collections::BTreeSet;

/// First and last step of a gap.
pub type Gap = (u64, u64);

/// The gaps in ascending order. What a program of the user's reports is its own choice, so gaps are looked for between
/// its steps only, and only where it reports nearly every one.
pub fn gaps(records: &Records, lineage: &Lineage, steps: &Steps) -> Vec<Gap> {
    let known: BTreeSet<u64> = steps.kept().map(|s| s.step).collect();
    let config = records.plan().and_then(|plan| plan.train_config.as_ref());
    let from_to = match config {
        Some(_) => Some((1, last_told(records, lineage).max(known.last().copied()))),
        None if known.is_empty() => lineage
            .head
            .and_then(|head| records.verdict(head)?.step)
            .map(|last| (1, Some(last))),
        None if dense(&known) => known.first().map(|first| (*first, known.last().copied())),
        None => None,
    };
    let Some((first, Some(last))) = from_to else {
        return Vec::new();
    };
    let mut gaps = Vec::new();
    let mut next = first;
    for step in known.into_iter().chain([last.saturating_add(1)]) {
        if step > next {
            gaps.push((next, step - 1));
        }
        next = next.max(step.saturating_add(1));
    }
    gaps
}

/// What the warning says; absent without gaps.
pub fn words(gaps: &[Gap]) -> Option<String> {
    const SHOWN: usize = 5;
    let one = |(first, last): &Gap| match first == last {
        true => grouped(*first),
        false => format!("{} to {}", grouped(*first), grouped(*last)),
    };
    let mut parts: Vec<String> = gaps.iter().take(SHOWN).map(one).collect();
    if gaps.len() > SHOWN {
        parts.push(format!("and {} more ranges", gaps.len() - SHOWN));
    }
    let (noun, verb) = match gaps {
        [] => return None,
        [(first, last)] if first == last => ("step", "has"),
        _ => ("steps", "have"),
    };
    Some(format!(
        "{noun} {} {verb} no record: curve, speed and goodput are without them",
        parts.join(", ")
    ))
}

/// How many steps are in `gaps`.
pub fn count(gaps: &[Gap]) -> u64 {
    gaps.iter()
        .map(|(first, last)| (last - first).saturating_add(1))
        .fold(0, u64::saturating_add)
}

/// Points in parts that no gap lies in.
pub fn parts(points: &[(u64, f64)], gaps: &[Gap]) -> Vec<Vec<(f64, f64)>> {
    let apart =
        |a: &(u64, f64), b: &(u64, f64)| gaps.iter().any(|(first, _)| (a.0..b.0).contains(first));
    points
        .chunk_by(|a, b| !apart(a, b))
        .map(|part| part.iter().map(|(x, y)| (*x as f64, *y)).collect())
        .collect()
}

/// The newest step of the head attempt that the journal tells of, once that attempt is judged; lines come after the
/// journal while it runs.
fn last_told(records: &Records, lineage: &Lineage) -> Option<u64> {
    let head = lineage.head?;
    let verdict = records.verdict(head)?;
    let saved = records
        .entries
        .iter()
        .filter_map(|entry| match entry.event {
            Event::Saved { attempt, step, .. } if attempt == head => Some(step),
            _ => None,
        });
    // A verdict of a program that never stepped has no step; its lineage may.
    saved.chain(verdict.step).max().or(lineage.begins(head))
}

/// Whether nine of ten steps follow the one before.
fn dense(steps: &BTreeSet<u64>) -> bool {
    let pairs = steps.iter().zip(steps.iter().skip(1));
    let follow = pairs.filter(|(a, b)| a.checked_add(1) == Some(**b)).count();
    steps.len() > 1 && 10 * follow >= 9 * (steps.len() - 1)
}
