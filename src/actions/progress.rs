//! How far a run is: the newest figures of its metrics, from the end of the file only.

use crate::store::RunDir;
use crate::store::checkpoints::unfinished;
use crate::store::tail::newest_lines;
use crate::supervise::merge::fill;
use haul_runtime::contract::metrics::{Kind, Line};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes read from the end of metrics.jsonl: some hundred lines.
const END: u64 = 64 << 10;
/// Newest steps the speed is the mean of.
const SPEED_STEPS: usize = 20;

/// Absent means unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The attempt the figures are of.
    pub attempt: Option<u32>,
    pub step: Option<u64>,
    pub tokens: Option<u64>,
    pub loss: Option<f64>,
    pub validation_loss: Option<f64>,
    /// Mean over the newest steps.
    pub tokens_per_second: Option<f64>,
    pub step_seconds: Option<f64>,
    pub saved_step: Option<u64>,
    /// The step that is being saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving_step: Option<u64>,
    /// RFC 3339 UTC: when the newest line was written.
    pub updated: Option<String>,
}

/// Figures of the newest attempt that has any.
pub fn newest(run: &RunDir) -> Progress {
    run.numbers("attempts")
        .into_iter()
        .rev()
        .map(|attempt| {
            let lines = newest_lines(&run.metrics(attempt), END);
            let lines: Vec<Line> = lines
                .iter()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect();
            of(attempt, &lines)
        })
        .find(|progress| progress.updated.is_some() || progress.step.is_some())
        .unwrap_or_default()
}

/// The step that the bundled trainer is saving.
pub fn saving(run: &RunDir, progress: &Progress) -> Option<u64> {
    // A directory of an older step is being tidied away.
    unfinished(run, progress.attempt?).filter(|saving| Some(*saving) >= progress.step)
}

fn of(attempt: u32, lines: &[Line]) -> Progress {
    let newest = |kind| lines.iter().rev().find(move |line| line.kind == kind);
    // What a rank told late of a step is a line of its own.
    let mut steps: BTreeMap<u64, Line> = BTreeMap::new();
    for line in lines {
        if let (Kind::Step | Kind::Skip, Some(step)) = (line.kind, line.step) {
            steps
                .entry(step)
                .and_modify(|first| fill(first, line))
                .or_insert_with(|| line.clone());
        }
    }
    let steps: Vec<&Line> = steps.values().collect();
    let recent = &steps[steps.len().saturating_sub(SPEED_STEPS)..];
    let last = recent.last();
    let seconds: Vec<f64> = recent.iter().filter_map(|line| line.step_seconds).collect();
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    let mean = Some(mean).filter(|mean| *mean > 0.0);
    let step = last.and_then(|line| line.step);
    Progress {
        attempt: Some(attempt),
        step,
        tokens: last.and_then(|line| line.tokens),
        loss: steps.iter().rev().find_map(|line| line.loss),
        validation_loss: newest(Kind::Eval).and_then(|line| line.loss),
        tokens_per_second: tokens_per_step(recent).zip(mean).map(|(t, s)| t / s),
        step_seconds: mean,
        saved_step: newest(Kind::Save).and_then(|line| line.step),
        saving_step: None,
        updated: lines.iter().rev().find_map(|line| line.time.clone()),
    }
}

fn tokens_per_step(recent: &[&Line]) -> Option<f64> {
    let (first, last) = (recent.first()?, recent.last()?);
    let steps = last.step?.checked_sub(first.step?)?;
    let tokens = last.tokens?.checked_sub(first.tokens?)?;
    (steps > 0).then(|| tokens as f64 / steps as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_is_seen_until_its_manifest_stands() {
        let root = tempfile::tempdir().unwrap();
        let run = RunDir::new(root.path());
        let progress = Progress {
            attempt: Some(2),
            step: Some(40),
            ..Progress::default()
        };
        assert_eq!(saving(&run, &progress), None);
        for (attempt, step) in [(1, 90), (2, 20), (2, 40)] {
            let directory = run.checkpoints(attempt).join(format!("step-{step}"));
            std::fs::create_dir_all(directory).unwrap();
        }
        assert_eq!(saving(&run, &progress), Some(40));
        std::fs::write(run.checkpoints(2).join("step-40/manifest.json"), "{}").unwrap();
        assert_eq!(saving(&run, &progress), None);
    }

    #[test]
    fn speed_is_the_mean_of_the_newest_steps_and_absent_stays_unknown() {
        let step = |step: u64, seconds| Line {
            step: Some(step),
            tokens: Some(step * 1000),
            loss: Some(1.0 / step as f64),
            step_seconds: Some(seconds),
            time: Some(format!("t{step}")),
            ..Line::new(Kind::Step)
        };
        let mut lines: Vec<Line> = (1..=30)
            .map(|s| step(s, if s <= 10 { 9.0 } else { 0.5 }))
            .collect();
        lines.push(Line {
            step: Some(30),
            loss: Some(2.5),
            ..Line::new(Kind::Eval)
        });
        let progress = of(2, &lines);
        assert_eq!(progress.step, Some(30));
        assert_eq!(progress.step_seconds, Some(0.5));
        assert_eq!(progress.tokens_per_second, Some(2000.0));
        assert_eq!(progress.validation_loss, Some(2.5));
        assert_eq!(progress.saved_step, None);
        assert_eq!(progress.updated.as_deref(), Some("t30"));
        assert_eq!(of(1, &[Line::new(Kind::Step)]).tokens_per_second, None);
    }
}
