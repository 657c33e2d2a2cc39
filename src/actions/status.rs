//! Use case: what runs are doing, as tables and as JSON.

use super::accounting;
use super::standing::State;
use super::view::{self, Seen, View};
use crate::report::accounting::{Accounting, NOT_YET};
use crate::report::attempts::ORPHANED;
use crate::scheduler::JobState;
use crate::store::journal::Event;
use crate::store::{Root, RunDir, StoreError, checkpoints, select};
use crate::ui::style::{Style, visible};
use crate::ui::table::Table;
use crate::ui::units;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub const SCHEMA: &str = "haul.status/1";

/// The newest runs of a root, and how many there are in all.
pub struct Runs {
    pub views: Vec<View>,
    pub total: usize,
}

/// Looks at the newest `limit` runs; the others are counted only.
pub fn runs(root: &Root, limit: usize) -> Result<Runs, StoreError> {
    let runs = select::newest_first(root)?;
    let total = runs.len();
    let mut views = view::views(&runs[..total.min(limit)])?;
    views.sort_by(|a, b| (&b.created, &b.id).cmp(&(&a.created, &a.id)));
    Ok(Runs { views, total })
}

impl Runs {
    pub fn to_json(&self, root: &Root) -> Value {
        json!({
            "schema": SCHEMA,
            "root": root.path(),
            "total": self.total,
            "runs": self.views,
        })
    }

    pub fn table(&self, width: Option<usize>, style: Style) -> String {
        let mut table = Table::new(&[
            "run",
            "state",
            ">step",
            ">loss",
            ">tokens/s",
            ">age",
            "what",
        ]);
        for view in &self.views {
            let progress = &view.progress;
            table.row([
                view.id.clone(),
                coloured(view.state, style),
                step(view),
                progress.loss.map_or(String::new(), units::loss),
                progress
                    .tokens_per_second
                    .map_or(String::new(), units::count),
                age(view.created.as_deref()),
                visible(&view.words),
            ]);
        }
        let mut text = table.render(width, style);
        if self.total > self.views.len() {
            let left = self.total - self.views.len();
            text.push_str(&style.dim(&format!("and {left} older; --all shows them")));
            text.push('\n');
        }
        text
    }
}

fn step(view: &View) -> String {
    match (view.progress.step, view.total_steps) {
        (Some(step), Some(total)) => format!("{step}/{total}"),
        (Some(step), None) => step.to_string(),
        (None, _) => String::new(),
    }
}

fn coloured(state: State, style: Style) -> String {
    let word = state.word();
    match state {
        State::Finished => style.green(word),
        State::Failed => style.red(word),
        State::Cancelled | State::Waiting | State::Unknown | State::Planned => style.yellow(word),
        _ => style.cyan(word),
    }
}

/// How long ago, in one unit or two.
fn age(created: Option<&str>) -> String {
    let time = created.and_then(|time| chrono::DateTime::parse_from_rfc3339(time).ok());
    time.map_or(String::new(), |time| {
        let seconds = chrono::Utc::now().signed_duration_since(time).num_seconds();
        units::duration(seconds.max(1) as f64)
    })
}

/// One run in detail.
pub fn details(run: &RunDir) -> Result<Seen, StoreError> {
    view::look(run)
}

pub fn details_json(run: &RunDir, seen: &Seen) -> Value {
    json!({
        "schema": SCHEMA,
        "run": seen.view,
        "directory": run.path(),
        "job": seen.job,
        "journal": seen.entries,
        "accounting": account(run, seen),
        "damaged_journal_lines": seen.damaged,
        "slurm_calls_this_hour": view::slurm_calls(run, seen.view.slot),
    })
}

/// One run in detail, for people.
pub fn details_text(run: &RunDir, seen: &Seen, width: Option<usize>, style: Style) -> String {
    let view = &seen.view;
    let mut text = format!(
        "{}  {}: {}\n\n",
        style.bold(&view.id),
        coloured(view.state, style),
        visible(&view.words)
    );
    let mut facts = Table::new(&["", ""]);
    for (name, value) in figures(view) {
        facts.row([name.to_owned(), value]);
    }
    facts.row(["job".to_owned(), job(view, seen.job.as_ref())]);
    if let Some(account) = account(run, seen) {
        let queue = account.queue_seconds;
        facts.row(["queue time", &queue.map_or(NOT_YET.into(), units::duration)]);
        facts.row(["node-hours", &account.node_hours()]);
        if let Some(charge) = account.charge() {
            facts.row(["charged", &charge]);
        }
    }
    if let Some(calls) = view::slurm_calls(run, seen.view.slot) {
        facts.row([
            "Slurm calls",
            &format!("{calls} this hour, by all who use this root"),
        ]);
    }
    facts.row(["files", &run.path().display().to_string()]);
    text.push_str(&facts.render(width, style));
    let attempts = attempts(seen);
    if !attempts.rows.is_empty() {
        text.push('\n');
        text.push_str(&attempts.render(width, style));
    }
    for entry in &seen.entries {
        if let Event::Unreadable { at, reason } = &entry.event {
            let words = visible(&checkpoints::refused(*at, reason));
            text.push_str(&format!("\n{words}\n"));
        }
    }
    if seen.damaged > 0 {
        text.push_str(&format!(
            "\n{} journal lines are damaged and were left out\n",
            seen.damaged
        ));
    }
    text.push_str(&format!("\n{}\n", next(run, view)));
    text
}

fn account(run: &RunDir, seen: &Seen) -> Option<Accounting> {
    let over = matches!(seen.job, Some(JobState::Ended(_)));
    accounting::accounting(run, &seen.entries, over)
}

fn figures(view: &View) -> Vec<(&'static str, String)> {
    let progress = &view.progress;
    let rows = [
        (
            "started",
            view.created
                .as_deref()
                .map(|time| format!("{time} ({} ago)", age(Some(time)))),
        ),
        ("step", Some(step(view)).filter(|s| !s.is_empty())),
        ("loss", progress.loss.map(units::loss)),
        ("validation loss", progress.validation_loss.map(units::loss)),
        (
            "speed",
            progress
                .tokens_per_second
                .map(|s| units::rate(s, "tokens/s")),
        ),
        ("step time", progress.step_seconds.map(units::duration)),
        (
            "checkpoint",
            progress.saved_step.map(|step| format!("step {step}")),
        ),
    ];
    rows.into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

fn job(view: &View, state: Option<&JobState>) -> String {
    let Some(job) = &view.job else {
        return "none".into();
    };
    let state = match state {
        Some(JobState::Queued) => "queued".into(),
        Some(JobState::Waiting(why)) => format!("queued: {why}"),
        Some(JobState::Running) => "running".into(),
        Some(JobState::Unwatched(reason)) => format!("running; {reason}"),
        Some(JobState::Ending(end)) => format!("{}, being cleaned up", end.words()),
        Some(JobState::Ended(end)) => end.words(),
        Some(JobState::Unknown(reason)) => format!("unknown: {reason}"),
        None => "unknown".into(),
    };
    format!("{job} (slot {}): {state}", view.slot)
}

fn attempts(seen: &Seen) -> Table {
    let mut table = Table::new(&[">attempt", "from", "checkpoints", "how it ended"]);
    for entry in &seen.entries {
        let Event::Attempt {
            attempt, parent, ..
        } = &entry.event
        else {
            continue;
        };
        let saved: Vec<u64> = seen
            .entries
            .iter()
            .filter_map(|entry| match &entry.event {
                Event::Saved {
                    attempt: a, step, ..
                } if a == attempt => Some(*step),
                _ => None,
            })
            .collect();
        let verdict = view::verdicts(&seen.entries)
            .into_iter()
            .find(|(a, _)| a == attempt)
            .map(|(_, verdict)| visible(&verdict.words));
        let newest = view::attempts(&seen.entries).last() == Some(*attempt);
        let verdict = verdict.unwrap_or_else(|| match (newest, seen.view.state) {
            (true, State::Failed | State::Cancelled) => visible(&seen.view.words),
            (true, state) if !state.is_over() => String::new(),
            _ => ORPHANED.into(),
        });
        table.row([
            attempt.to_string(),
            parent.map_or("nothing".into(), |at| {
                format!("step {} of attempt {}", at.step, at.attempt)
            }),
            match saved.as_slice() {
                [] => "none".into(),
                [one] => format!("step {one}"),
                [first, .., last] => format!("{}: step {first} to {last}", saved.len()),
            },
            verdict,
        ]);
    }
    table
}

/// States as lines, for somebody who watches them where nothing can be drawn: one when a state changes, and one now
/// and then when only the words do.
#[derive(Debug, Default)]
pub struct Ticker {
    told: BTreeMap<String, (State, String, Instant)>,
}

impl Ticker {
    const PAUSE: Duration = Duration::from_secs(10);

    /// Lines, each ended, for what is new in `views`.
    pub fn news(&mut self, views: &[View], now: Instant) -> String {
        let mut text = String::new();
        for view in views {
            let told = self.told.get(&view.id);
            let due = told.is_none_or(|(state, words, at)| {
                let later = now.saturating_duration_since(*at) >= Self::PAUSE;
                *state != view.state || *words != view.words && later
            });
            if due {
                let words = visible(&view.words);
                text.push_str(&format!("{}  {}: {words}\n", view.id, view.state.word()));
                let kept = (view.state, view.words.clone(), now);
                self.told.insert(view.id.clone(), kept);
            }
        }
        text
    }
}

/// The command somebody who reads this would want next.
pub fn next(run: &RunDir, view: &View) -> String {
    let id = &view.id;
    if view.unreadable {
        let recipe = run.resolved();
        return format!(
            "next: haul report {id} · haul submit {} (none of its checkpoints can be read, so it cannot be resumed)",
            recipe.display()
        );
    }
    match view.state {
        State::Finished if view.bundled => format!("next: haul report {id} · haul sample {id}"),
        State::Finished => format!("next: haul report {id}"),
        State::Failed => format!("next: haul logs {id} · haul resume {id}"),
        State::Cancelled | State::Waiting | State::Planned => format!("next: haul resume {id}"),
        State::Unknown => format!("next: haul logs {id}"),
        _ => format!("next: haul logs -f {id} · haul cancel {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::journal::{Journal, Outcome};

    #[test]
    fn lines_come_with_states_at_once_and_with_words_now_and_then() {
        let view = |state: &str, words: &str| -> View {
            serde_json::from_value(serde_json::json!({
                "id": "own-261130-aaaa", "state": state, "words": words, "slot": 1, "bundled": false, "progress": {},
            }))
            .unwrap()
        };
        let begin = Instant::now();
        let mut ticker = Ticker::default();
        let mut at = |second, state, words| {
            ticker.news(&[view(state, words)], begin + Duration::from_secs(second))
        };
        assert_eq!(
            at(0, "training", "step 1"),
            "own-261130-aaaa  training: step 1\n"
        );
        assert_eq!(at(2, "training", "step 2"), "");
        assert!(at(3, "saving", "step 2").contains("saving"));
        assert_eq!(at(12, "saving", "step 3"), "");
        assert!(at(13, "saving", "step 3").contains("step 3"));
        assert_eq!(at(99, "saving", "step 3"), "");
    }

    #[test]
    fn a_run_without_a_readable_checkpoint_is_not_sent_to_resume() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::new(dir.path().join("own-261130-aaaa"));
        let mut journal = Journal::open(&run, "supervisor").unwrap();
        let finished = Event::Finished {
            outcome: Outcome::Failed,
            words: "so it ended".into(),
        };
        let attempt = Event::Attempt {
            attempt: 1,
            slot: 1,
            parent: None,
        };
        for event in [attempt, finished] {
            journal.append(event).unwrap();
        }
        let told = || next(&run, &details(&run).unwrap().view);
        assert!(told().contains("haul resume"), "{}", told());
        let directory = run.checkpoints(1).join("step-5");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("manifest.json"), "{torn").unwrap();
        assert!(!told().contains("haul resume"), "{}", told());
        assert!(told().contains("haul submit"), "{}", told());
    }
}
