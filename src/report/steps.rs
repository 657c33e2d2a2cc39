//! Steps, evaluations and saves of all attempts, merged and marked as valid or abandoned.

use super::lineage::Lineage;
use super::records::Records;
use haul_runtime::contract::Until;
use haul_runtime::contract::metrics::{Kind, Line};
use std::collections::BTreeMap;

/// One step that was computed, or skipped.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub attempt: u32,
    pub step: u64,
    /// In the lineage of the head.
    pub kept: bool,
    /// Data consumed, state untouched.
    pub skipped: bool,
    /// The attempt's first step after its launch.
    pub first: bool,
    /// Barrier to barrier, saves and evaluations included.
    pub seconds: Option<f64>,
    /// Seconds since launch at its end.
    pub elapsed: Option<f64>,
    pub line: Line,
}

/// An evaluation or a save.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub attempt: u32,
    pub step: u64,
    pub kept: bool,
    pub line: Line,
}

/// All lines of all attempts, in order of (attempt, file).
#[derive(Debug, Clone, Default)]
pub struct Steps {
    pub steps: Vec<Step>,
    pub evaluations: Vec<Mark>,
    pub saves: Vec<Mark>,
    /// (attempt, note).
    pub notes: Vec<(u32, Line)>,
    /// Step times are differences between lines, because the program gives none.
    pub derived: bool,
    pub warnings: Vec<String>,
}

impl Step {
    pub fn phase(&self, name: &str) -> f64 {
        let phases = self.line.phases.as_ref();
        phases
            .and_then(|p| p.get(name))
            .copied()
            .filter(|s| s.is_finite() && *s > 0.0)
            .unwrap_or(0.0)
    }

    /// Seconds without saves and evaluations.
    pub fn productive(&self) -> Option<f64> {
        self.seconds
            .map(|s| (s - self.phase("save") - self.phase("eval")).max(0.0))
    }
}

impl Steps {
    pub fn of(records: &Records, lineage: &Lineage) -> Steps {
        let mut all = Steps::default();
        let config = records.plan().and_then(|plan| plan.train_config.as_ref());
        let planned = match config.map(|config| config.train.until) {
            Some(Until::Steps(n)) => n,
            _ => u64::MAX,
        };
        for (number, attempt) in &records.attempts {
            all.take_attempt(*number, &attempt.lines, lineage, planned);
        }
        all
    }

    /// Valid steps by step number.
    pub fn kept(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|s| s.kept)
    }

    fn take_attempt(&mut self, attempt: u32, lines: &[Line], lineage: &Lineage, planned: u64) {
        let mut seen: BTreeMap<(Kind, u64), usize> = BTreeMap::new();
        let mut conflicts = 0;
        let mut merged: Vec<Line> = Vec::new();
        for line in lines {
            let keyed = !matches!(line.kind, Kind::Note | Kind::Unknown);
            match (line.step, keyed) {
                (Some(step), true) => match seen.get(&(line.kind, step)) {
                    Some(at) => conflicts += usize::from(merge(&mut merged[*at], line)),
                    None => {
                        seen.insert((line.kind, step), merged.len());
                        merged.push(line.clone());
                    }
                },
                _ => merged.push(line.clone()),
            }
        }
        if conflicts > 0 {
            self.warnings.push(format!(
                "attempt {attempt}: {conflicts} lines say something else about a step than the line before them; the first counts"
            ));
        }
        for (at, words) in misplaced(&merged, planned).into_iter().rev() {
            self.warnings
                .push(format!("attempt {attempt}: {words}; left out"));
            merged.remove(at);
        }
        let mut before: Option<(u64, Option<f64>)> = None;
        for line in merged {
            match (line.kind, line.step) {
                (Kind::Step | Kind::Skip, Some(step)) => {
                    let elapsed = line.elapsed.filter(|e| e.is_finite());
                    let given = line.step_seconds.filter(|s| s.is_finite() && *s >= 0.0);
                    let between = match (before, elapsed) {
                        (Some((last, Some(then))), Some(now))
                            if last.checked_add(1) == Some(step) && now >= then =>
                        {
                            Some(now - then)
                        }
                        _ => None,
                    };
                    self.derived |= given.is_none() && between.is_some();
                    self.steps.push(Step {
                        attempt,
                        step,
                        kept: lineage.keeps(attempt, step),
                        skipped: line.kind == Kind::Skip,
                        first: before.is_none(),
                        seconds: given.or(between),
                        elapsed,
                        line,
                    });
                    before = Some((step, elapsed));
                }
                (Kind::Eval | Kind::Save, Some(step)) => {
                    let mark = Mark {
                        attempt,
                        step,
                        kept: lineage.keeps(attempt, step),
                        line,
                    };
                    match mark.line.kind {
                        Kind::Eval => self.evaluations.push(mark),
                        _ => self.saves.push(mark),
                    }
                }
                (Kind::Note, _) => self.notes.push((attempt, line)),
                _ => {}
            }
        }
    }
}

/// Lines whose step cannot be right, by their index: steps of an attempt are written in order and end with the plan.
fn misplaced(lines: &[Line], planned: u64) -> Vec<(usize, String)> {
    let steps: Vec<(usize, u64)> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| matches!(line.kind, Kind::Step | Kind::Skip))
        .filter_map(|(at, line)| Some((at, line.step?)))
        .collect();
    let mut found = Vec::new();
    for (i, &(at, step)) in steps.iter().enumerate() {
        let before = i.checked_sub(1).map_or(0, |i| steps[i].1);
        let after = steps.get(i + 1).map(|next| next.1);
        let fits = |next: u64| before >= next || (before <= step && step < next);
        if step > planned {
            found.push((
                at,
                format!("a line of step {step}, beyond the planned {planned}"),
            ));
        } else if let Some(next) = after.filter(|next| !fits(*next)) {
            found.push((
                at,
                format!("a line of step {step} stands between those of {before} and {next}"),
            ));
        }
    }
    found
}

/// Adds to `first` what only `second` knows; true when they disagree on a loss or a time.
fn merge(first: &mut Line, second: &Line) -> bool {
    let differ = |a: Option<f64>, b: Option<f64>| matches!((a, b), (Some(a), Some(b)) if a.to_bits() != b.to_bits());
    let conflict =
        differ(first.loss, second.loss) || differ(first.step_seconds, second.step_seconds);
    first.loss = first.loss.or(second.loss);
    first.tokens = first.tokens.or(second.tokens);
    first.grad_norm = first.grad_norm.or(second.grad_norm);
    first.lr = first.lr.or(second.lr);
    first.step_seconds = first.step_seconds.or(second.step_seconds);
    first.elapsed = first.elapsed.or(second.elapsed);
    first.time = first.time.take().or_else(|| second.time.clone());
    first.phases = first.phases.take().or_else(|| second.phases.clone());
    first.slowest = first.slowest.take().or_else(|| second.slowest.clone());
    first.seconds = first.seconds.or(second.seconds);
    first.bytes = first.bytes.or(second.bytes);
    conflict
}
