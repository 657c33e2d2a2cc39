//! Progress lines of ranks → lines of metrics.jsonl.
//!
//! Keys merge by step: the first value stays, a second different one becomes a note. Phases are means over the
//! ranks that tell them, `other` is the remainder; what nobody tells is absent.

use haul_runtime::contract::metrics::{Kind, Line, PHASES, Slowest};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A step is written this long after its first line at the latest; ranks that have not told it by then are no
/// longer waited for until they tell something.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// Disagreements told an attempt; each further one is counted only.
const DISAGREEMENTS: usize = 10;

/// A step some ranks have told.
#[derive(Debug)]
struct Pending {
    line: Line,
    since: Duration,
    ranks: BTreeSet<usize>,
    /// Sum over ranks.
    phases: BTreeMap<String, f64>,
    with_phases: usize,
    slowest: Option<Slowest>,
}

/// The lines of one attempt.
#[derive(Debug)]
pub struct Merge {
    attempt: u32,
    /// Ranks whose line is waited for.
    expected: BTreeSet<usize>,
    pending: BTreeMap<u64, Pending>,
    /// Steps already written and single lines already seen, to find disagreements: newest only.
    written: BTreeMap<(Kind, u64), Line>,
    newest: Option<u64>,
    disagreements: usize,
}

impl Merge {
    pub fn new(attempt: u32, world: usize) -> Merge {
        Merge {
            attempt,
            expected: (0..world).collect(),
            pending: BTreeMap::new(),
            written: BTreeMap::new(),
            newest: None,
            disagreements: 0,
        }
    }

    /// Goes on behind the lines that metrics.jsonl holds.
    pub fn after(attempt: u32, world: usize, held: &[Line]) -> Merge {
        let mut merge = Merge::new(attempt, world);
        for line in held {
            if let (Kind::Step | Kind::Skip | Kind::Eval | Kind::Save, Some(step)) =
                (line.kind, line.step)
            {
                match merge.written.get_mut(&(line.kind, step)) {
                    Some(first) => fill(first, line),
                    None => merge.remember(line.kind, step, line),
                }
                if line.kind == Kind::Step {
                    merge.newest = merge.newest.max(Some(step));
                }
            }
        }
        merge
    }

    /// Takes a line of `rank` that arrived at `now` (since the launch) and returns the lines to write.
    /// `time` is the supervisor's, for lines without one; absent when it is not known when the line came.
    pub fn take(
        &mut self,
        rank: usize,
        mut line: Line,
        now: Duration,
        time: Option<&str>,
    ) -> Vec<Line> {
        line.attempt = Some(self.attempt);
        if let Some(time) = time {
            line.time.get_or_insert_with(|| time.to_owned());
            line.elapsed
                .get_or_insert_with(|| (now.as_secs_f64() * 1000.0).round() / 1000.0);
        }
        line.slowest = None;
        if line.loss_bits.is_none() {
            line.loss_bits = line.loss.map(Line::bits);
        }
        match (line.kind, line.step) {
            (Kind::Unknown, _) => Vec::new(),
            (Kind::Step, Some(step)) => self.step(rank, step, line, now),
            (Kind::Note, _) | (_, None) => {
                let values = line.values.get_or_insert_default();
                values.entry("rank".into()).or_insert(rank.into());
                vec![line]
            }
            (kind, Some(step)) => match self.written.get(&(kind, step)).cloned() {
                None => {
                    self.remember(kind, step, &line);
                    vec![line]
                }
                Some(first) => self.compare(rank, &first, &line),
            },
        }
    }

    /// Lines that have waited long enough.
    pub fn due(&mut self, now: Duration) -> Vec<Line> {
        let late = |pending: &Pending| now.saturating_sub(pending.since) >= PATIENCE;
        let Some(last) = self
            .pending
            .iter()
            .filter(|(_, pending)| late(pending))
            .map(|(step, _)| *step)
            .next_back()
        else {
            return Vec::new();
        };
        if let Some(pending) = self.pending.get(&last) {
            let told = &pending.ranks;
            self.expected.retain(|rank| told.contains(rank));
        }
        self.flush(last)
    }

    /// The end of the attempt: all that is left.
    pub fn finish(&mut self) -> Vec<Line> {
        self.flush(u64::MAX)
    }

    fn step(&mut self, rank: usize, step: u64, line: Line, now: Duration) -> Vec<Line> {
        self.expected.insert(rank);
        if self.newest.is_some_and(|newest| step <= newest) {
            let Some(mut first) = self.written.get(&(Kind::Step, step)).cloned() else {
                return Vec::new();
            };
            let mut lines = self.compare(rank, &first, &line);
            if tells_more(&line, &first) {
                let mut more = Line::new(Kind::Step);
                (more.attempt, more.step) = (line.attempt, line.step);
                more.time.clone_from(&line.time);
                (more.tokens, more.loss) = (line.tokens, line.loss);
                more.loss_bits.clone_from(&line.loss_bits);
                (more.grad_norm, more.lr) = (line.grad_norm, line.lr);
                fill(&mut first, &line);
                self.remember(Kind::Step, step, &first);
                lines.push(more);
            }
            return lines;
        }
        let mut notes = Vec::new();
        if let Some(pending) = self.pending.get(&step) {
            let first = pending.line.clone();
            notes = self.compare(rank, &first, &line);
        }
        let pending = self.pending.entry(step).or_insert_with(|| Pending {
            line: Line {
                phases: None,
                ..line.clone()
            },
            since: now,
            ranks: BTreeSet::new(),
            phases: BTreeMap::new(),
            with_phases: 0,
            slowest: None,
        });
        let first_of_rank = pending.ranks.insert(rank);
        if let Some(phases) = line.phases.as_ref().filter(|_| first_of_rank) {
            pending.with_phases += 1;
            for (name, seconds) in phases {
                *pending.phases.entry(name.clone()).or_default() += seconds;
            }
            if let Some(&seconds) = phases.get("compute")
                && pending.slowest.as_ref().is_none_or(|s| seconds > s.seconds)
            {
                pending.slowest = Some(Slowest { rank, seconds });
            }
        }
        fill(&mut pending.line, &line);
        let complete = self.expected.iter().all(|r| pending.ranks.contains(r));
        if complete {
            notes.extend(self.flush(step));
        }
        notes
    }

    /// Writes every pending step up to `last`.
    fn flush(&mut self, last: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        while let Some(entry) = self.pending.first_entry() {
            let step = *entry.key();
            if step > last {
                break;
            }
            let pending = entry.remove();
            let mut line = pending.line;
            line.phases = means(&pending.phases, pending.with_phases, line.step_seconds);
            line.slowest = pending.slowest;
            self.newest = self.newest.max(Some(step));
            self.remember(Kind::Step, step, &line);
            lines.push(line);
        }
        lines
    }

    fn remember(&mut self, kind: Kind, step: u64, line: &Line) {
        self.written.insert((kind, step), line.clone());
        while self.written.len() > 256 {
            // Ordered by kind first, so drop the oldest step of any kind.
            let Some(oldest) = self.written.keys().min_by_key(|(_, step)| *step).copied() else {
                break;
            };
            self.written.remove(&oldest);
        }
    }

    /// A note for every figure that differs from the first value told.
    fn compare(&mut self, rank: usize, first: &Line, second: &Line) -> Vec<Line> {
        let mut notes = Vec::new();
        let step = first.step.unwrap_or_default();
        for (key, a, b) in [
            ("loss", first.loss, second.loss),
            ("grad_norm", first.grad_norm, second.grad_norm),
            ("lr", first.lr, second.lr),
            (
                "tokens",
                first.tokens.map(|t| t as f64),
                second.tokens.map(|t| t as f64),
            ),
        ] {
            let (Some(a), Some(b)) = (a, b) else { continue };
            if a.to_bits() == b.to_bits() {
                continue;
            }
            self.disagreements += 1;
            if self.disagreements > DISAGREEMENTS {
                continue;
            }
            let last = match self.disagreements {
                DISAGREEMENTS => "; further ones are not told",
                _ => "",
            };
            let mut note = Line::new(Kind::Note);
            note.attempt = Some(self.attempt);
            note.step = Some(step);
            note.time.clone_from(&second.time);
            note.text = Some(format!(
                "rank {rank} tells {key} {b} for step {step}, {a} was told before and stays{last}"
            ));
            notes.push(note);
        }
        notes
    }
}

/// Whether `line` has a figure of the step that `first` lacks.
pub fn tells_more(line: &Line, first: &Line) -> bool {
    let figures = |line: &Line| {
        [
            line.loss.is_some(),
            line.tokens.is_some(),
            line.grad_norm.is_some(),
            line.lr.is_some(),
        ]
    };
    let has = figures(first);
    figures(line)
        .iter()
        .zip(has)
        .any(|(more, has)| *more && !has)
}

/// Puts what `line` tells where `first` tells nothing.
pub fn fill(first: &mut Line, line: &Line) {
    fn put<T: Clone>(first: &mut Option<T>, second: &Option<T>) {
        if first.is_none() {
            first.clone_from(second);
        }
    }
    put(&mut first.tokens, &line.tokens);
    if first.loss.is_none() {
        first.loss = line.loss;
        first.loss_bits.clone_from(&line.loss_bits);
    }
    put(&mut first.grad_norm, &line.grad_norm);
    put(&mut first.lr, &line.lr);
    put(&mut first.step_seconds, &line.step_seconds);
    put(&mut first.seconds, &line.seconds);
    put(&mut first.bytes, &line.bytes);
    put(&mut first.path, &line.path);
    put(&mut first.text, &line.text);
    put(&mut first.values, &line.values);
}

/// Means over the ranks that told phases; names outside the closed list fall into `other`.
fn means(
    sums: &BTreeMap<String, f64>,
    ranks: usize,
    step_seconds: Option<f64>,
) -> Option<BTreeMap<String, f64>> {
    if ranks == 0 {
        return None;
    }
    let mut phases: BTreeMap<String, f64> = sums
        .iter()
        .filter(|(name, _)| *name != "other" && PHASES.contains(&name.as_str()))
        .map(|(name, sum)| (name.clone(), sum / ranks as f64))
        .collect();
    if let Some(seconds) = step_seconds {
        let known: f64 = phases.values().sum();
        phases.insert("other".into(), (seconds - known).max(0.0));
    } else if let Some(other) = sums.get("other") {
        phases.insert("other".into(), other / ranks as f64);
    }
    Some(phases)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Option<&str> = Some("2026-01-01T00:00:00.000Z");

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn step(json: &str) -> Line {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn ranks_merge_into_one_line_a_step_with_mean_phases_and_the_slowest_rank() {
        let mut merge = Merge::new(2, 2);
        let a = step(
            r#"{"kind":"step","step":1,"loss":2.5,"step_seconds":1.0,"phases":{"compute":0.5,"data":0.1}}"#,
        );
        let b = step(
            r#"{"kind":"step","step":1,"lr":0.1,"step_seconds":1.1,"phases":{"compute":0.7,"odd":0.2}}"#,
        );
        assert!(merge.take(0, a, ms(1000), T).is_empty());
        let lines = merge.take(1, b, ms(1001), T);
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert_eq!(
            (line.loss, line.lr, line.step_seconds),
            (Some(2.5), Some(0.1), Some(1.0))
        );
        assert_eq!(line.loss_bits.as_deref(), Some(Line::bits(2.5).as_str()));
        assert_eq!(
            (line.attempt, line.elapsed, line.time.as_deref()),
            (Some(2), Some(1.0), T)
        );
        let phases = line.phases.as_ref().unwrap();
        assert!((phases["compute"] - 0.6).abs() < 1e-12);
        assert!((phases["data"] - 0.05).abs() < 1e-12);
        assert!((phases.values().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(
            line.slowest,
            Some(Slowest {
                rank: 1,
                seconds: 0.7
            })
        );
        assert_eq!(line.grad_norm, None);
    }

    #[test]
    fn a_second_different_value_is_a_note_and_the_first_stays() {
        let mut merge = Merge::new(1, 2);
        merge.take(0, step(r#"{"kind":"step","step":1,"loss":2.5}"#), ms(0), T);
        let lines = merge.take(1, step(r#"{"kind":"step","step":1,"loss":2.75}"#), ms(1), T);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0].kind, Kind::Note);
        assert!(
            lines[0]
                .text
                .as_ref()
                .unwrap()
                .contains("rank 1 tells loss 2.75")
        );
        assert_eq!((lines[1].kind, lines[1].loss), (Kind::Step, Some(2.5)));
        // After the step is written as well.
        let lines = merge.take(1, step(r#"{"kind":"step","step":1,"loss":3.0}"#), ms(1), T);
        assert_eq!((lines.len(), lines[0].kind), (1, Kind::Note));
    }

    #[test]
    fn a_rank_that_tells_nothing_is_waited_for_once() {
        let mut merge = Merge::new(1, 2);
        let line = |n: u64| step(&format!(r#"{{"kind":"step","step":{n}}}"#));
        assert!(merge.take(0, line(1), ms(0), T).is_empty());
        assert!(merge.due(ms(100)).is_empty());
        assert_eq!(merge.due(ms(600)).len(), 1);
        assert_eq!(merge.take(0, line(2), ms(700), T).len(), 1);
        // It speaks after all: from now on it is waited for.
        assert!(merge.take(1, line(3), ms(800), T).is_empty());
        assert_eq!(merge.take(0, line(3), ms(801), T).len(), 1);
        assert!(merge.take(0, line(4), ms(900), T).is_empty());
        assert_eq!(merge.finish().len(), 1);
    }

    #[test]
    fn figures_that_come_late_are_added() {
        let mut merge = Merge::new(1, 2);
        let second = step(r#"{"kind":"step","step":1,"step_seconds":1.0}"#);
        merge.take(1, second.clone(), ms(0), T);
        let written = merge.due(ms(600));
        assert_eq!((written.len(), written[0].loss), (1, None));
        let first = step(r#"{"kind":"step","step":1,"loss":2.5,"step_seconds":1.5}"#);
        for mut merge in [merge, Merge::after(1, 2, &written)] {
            let lines = merge.take(0, first.clone(), ms(700), T);
            let [line] = &lines[..] else {
                panic!("{lines:?}")
            };
            assert_eq!(
                (line.step, line.loss, line.step_seconds),
                (Some(1), Some(2.5), None)
            );
            assert!(merge.take(0, first.clone(), ms(701), T).is_empty());
            assert!(merge.take(1, second.clone(), ms(701), T).is_empty());
        }
    }

    #[test]
    fn steps_are_written_in_order_and_once() {
        let mut merge = Merge::new(1, 2);
        let line = |n: u64| step(&format!(r#"{{"kind":"step","step":{n}}}"#));
        assert!(merge.take(0, line(1), ms(0), T).is_empty());
        assert!(merge.take(0, line(2), ms(1), T).is_empty());
        assert!(
            merge
                .take(1, line(1), ms(2), T)
                .iter()
                .map(|l| l.step)
                .eq([Some(1)])
        );
        assert!(merge.take(1, line(1), ms(2), T).is_empty());
        assert!(
            merge
                .take(1, line(2), ms(3), T)
                .iter()
                .map(|l| l.step)
                .eq([Some(2)])
        );
        assert!(merge.finish().is_empty());
        let save = step(r#"{"kind":"save","step":2,"path":"step-2"}"#);
        assert_eq!(merge.take(0, save.clone(), ms(4), T).len(), 1);
        assert!(merge.take(1, save, ms(4), T).is_empty());
    }
}
