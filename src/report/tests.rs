//! Figures from constructed records: every second counted once, lost steps, doubles, gaps.

mod gaps;

use super::ledger::Cause;
use super::records::{Attempt, Bound, Records};
use super::summary::Summary;
use super::{compose, html, json, markdown, text};
use crate::store::journal::{Class, Entry, Event, Outcome, Verdict};
use crate::ui::style::Style;
use haul_runtime::contract::checkpoint::Point;
use haul_runtime::contract::metrics::{Kind, Line, Slowest};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn at(seconds: f64) -> String {
    let time =
        chrono::DateTime::from_timestamp_millis(1_700_000_000_000 + (seconds * 1e3).round() as i64);
    time.unwrap()
        .to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// Journals `events` of one process, in order.
fn reign(records: &mut Records, epoch: u64, role: &str, events: Vec<(f64, Event)>) {
    for (i, (time, event)) in events.into_iter().enumerate() {
        records.entries.push(Entry {
            epoch,
            seq: i as u64 + 1,
            time: at(time),
            role: role.into(),
            event,
        });
    }
}

fn step(step: u64, elapsed: f64, seconds: f64) -> Line {
    Line {
        step: Some(step),
        elapsed: Some(elapsed),
        step_seconds: Some(seconds),
        loss: Some(5.0 / step as f64),
        tokens: Some(step * 100),
        ..Line::new(Kind::Step)
    }
}

fn verdict(class: Class) -> Verdict {
    Verdict {
        class,
        words: format!("{class:?}"),
        rank: None,
        node: None,
        code: None,
        signal: None,
        step: None,
        log: Vec::new(),
    }
}

fn judged(attempt: u32, class: Class) -> Event {
    Event::Judged {
        attempt,
        verdict: verdict(class),
    }
}

fn attempt(number: u32, parent: Option<(u32, u64)>) -> Event {
    Event::Attempt {
        attempt: number,
        slot: 1,
        parent: parent.map(|(attempt, step)| Point { attempt, step }),
    }
}

fn launched(attempt: u32) -> Event {
    Event::Launched {
        attempt,
        nodes: vec!["local0".into()],
        world: 2,
    }
}

/// Submitted at 0, claimed at 10; attempt 1 takes 6 steps of 1 s, saves step 4 and is killed; attempt 2 goes on from 4 to 8.
fn restarted() -> Records {
    let mut records = Records {
        id: "r".into(),
        ..Records::default()
    };
    let submitted = Event::Submitted {
        slot: 1,
        job: "7".into(),
    };
    reign(&mut records, 1, "submitter", vec![(0.0, submitted)]);
    let claimed = Event::Claimed {
        slot: 1,
        job: "7".into(),
        restart: 0,
    };
    let finished = Event::Finished {
        outcome: Outcome::Finished,
        words: "done".into(),
    };
    let events = vec![
        (10.0, claimed),
        (10.5, attempt(1, None)),
        (11.0, launched(1)),
        (22.0, judged(1, Class::Failed)),
        (22.5, attempt(2, Some((1, 4)))),
        (23.0, launched(2)),
        (32.0, judged(2, Class::Done)),
        (33.0, finished),
    ];
    reign(&mut records, 2, "supervisor", events);
    let mut first = Attempt::default();
    // First step from 13 to 14; a save of 0.25 s within step 4, told by its phases.
    for s in 1..=6 {
        let mut line = step(s, 2.0 + s as f64, 1.0);
        if s == 4 {
            line.phases = Some(BTreeMap::from([
                ("save".into(), 0.25),
                ("compute".into(), 0.75),
            ]));
        }
        first.lines.push(line);
    }
    let mut second = Attempt::default();
    for s in 5..=8 {
        second.lines.push(step(s, 1.0 + (s - 4) as f64, 1.0));
    }
    // An evaluation of 0.5 s between the last step and the end, in no step's phases.
    second.lines.push(Line {
        step: Some(8),
        elapsed: Some(5.5),
        loss: Some(1.5),
        seconds: Some(0.5),
        ..Line::new(Kind::Eval)
    });
    records.attempts = BTreeMap::from([(1, first), (2, second)]);
    records
}

fn inside(summary: &Summary) -> f64 {
    let rows = summary.time.rows.iter().filter(|row| row.cause.in_job());
    rows.map(|row| row.seconds).sum()
}

#[test]
fn a_restart_is_accounted_to_the_second() {
    let summary = Summary::of(&restarted());
    let time = &summary.time;
    let close = |cause, seconds: f64| {
        let found = time.seconds(cause);
        assert!(
            (found - seconds).abs() < 1e-6,
            "{cause:?}: {found}, not {seconds}"
        );
    };
    close(Cause::Queue, 10.0);
    // Claimed at 10, first step begins at 13.
    close(Cause::StartUp, 3.0);
    // Steps 1 to 4 and 5 to 8, the save taken out.
    close(Cause::Productive, 7.75);
    close(Cause::LostSteps, 2.0);
    close(Cause::Saves, 0.25);
    close(Cause::Evaluation, 0.5);
    // The last step before the kill ends at 19, the next begins at 24.
    close(Cause::Restart, 5.0);
    // From 28 to 33, the evaluation taken out.
    close(Cause::Other, 4.5);
    assert!((time.wall_seconds - 23.0).abs() < 1e-6);
    assert!((inside(&summary) - 23.0).abs() < 1e-6);
    assert!((time.goodput.unwrap() - 7.75 / 23.0).abs() < 1e-9);
    assert!((time.to_first_step_seconds.unwrap() - 13.0).abs() < 1e-6);
    assert_eq!((time.lost_steps, summary.steps.last), (2, Some(8)));
    assert_eq!(summary.loss.resumes, [(2, 4)]);
    assert_eq!(summary.loss.train.len(), 8);
    assert_eq!(summary.loss.abandoned, [vec![(5, 1.0), (6, 5.0 / 6.0)]]);
    assert_eq!(summary.attempts[0].steps_lost, 2);
    assert!(
        summary.warnings.iter().all(|w| w.contains("plan")),
        "{:?}",
        summary.warnings
    );
}

#[test]
fn an_attempt_whose_supervisor_was_killed_is_told_as_its_scheduler_tells_it() {
    let mut records = restarted();
    let over = |e: &Entry| !matches!(e.event, Event::Judged { .. } | Event::Finished { .. });
    records.entries.retain(over);
    let words = |records: &Records| {
        let summary = Summary::of(records);
        let [first, second] = [0, 1].map(|i| summary.attempts[i].words.clone());
        (summary.state.words, first, second)
    };
    let (state, first, second) = words(&records);
    assert!(state.starts_with("not finished"), "{state}");
    assert_eq!(first, "its supervisor was gone first; last step seen: 6");
    assert_eq!(second, "no verdict yet; last step seen: 8");
    let killed = "the supervisor was killed by SIGKILL (job 7)";
    records.ended = Some((Outcome::Failed, killed.into()));
    let (state, first, second) = words(&records);
    assert_eq!(state, killed);
    assert_eq!(first, "its supervisor was gone first; last step seen: 6");
    assert_eq!(second, format!("{killed}; last step seen: 8"));
}

#[test]
fn a_later_step_is_not_called_the_first() {
    let mut records = restarted();
    let note = |records: &Records| markdown::render(&compose::compose(&Summary::of(records)));
    assert!(note(&records).contains("first step 5.0000"));
    records.attempts.insert(1, Attempt::default());
    let told = note(&records);
    assert!(told.contains("first known, of step 5: 1.0000"), "{told}");
    assert_eq!(Summary::of(&records).time.to_first_step_seconds, None);
}

#[test]
fn time_between_jobs_is_no_wall_time() {
    let mut records = restarted();
    let resubmitted = Event::Submitted {
        slot: 2,
        job: "8".into(),
    };
    reign(&mut records, 3, "submitter", vec![(1000.0, resubmitted)]);
    let claimed = Event::Claimed {
        slot: 2,
        job: "8".into(),
        restart: 0,
    };
    let again = Event::Attempt {
        attempt: 3,
        slot: 2,
        parent: Some(Point {
            attempt: 2,
            step: 8,
        }),
    };
    let events = vec![(1005.0, claimed), (1006.0, again), (1007.0, launched(3))];
    reign(&mut records, 4, "supervisor", events);
    let mut third = Attempt::default();
    third.lines.push(step(9, 2.0, 1.0));
    records.attempts.insert(3, third);
    let summary = Summary::of(&records);
    assert!((summary.time.seconds(Cause::NoJob) - 967.0).abs() < 1e-6);
    assert!((summary.time.seconds(Cause::Queue) - 15.0).abs() < 1e-6);
    assert!((summary.time.wall_seconds - 27.0).abs() < 1e-6);
    assert_eq!(summary.state.outcome, None, "the run was opened again");
    assert_eq!(summary.steps.last, Some(9));
}

#[test]
fn a_fenced_attempt_of_an_older_epoch_is_not_the_head() {
    let mut records = restarted();
    // A supervisor of a lower epoch, thought dead, launched a later attempt.
    for entry in &mut records.entries {
        if entry.epoch == 2 {
            entry.epoch = 9;
        }
    }
    reign(
        &mut records,
        5,
        "supervisor",
        vec![(40.0, attempt(3, Some((1, 2)))), (40.5, launched(3))],
    );
    let mut zombie = Attempt::default();
    zombie.lines.push(step(3, 1.5, 1.0));
    zombie.lines.push(step(99, 2.5, 1.0));
    records.attempts.insert(3, zombie);
    records.entries.sort_by_key(|e| (e.epoch, e.seq));
    let summary = Summary::of(&records);
    assert_eq!(summary.steps.last, Some(8));
    assert!(!summary.attempts[2].in_lineage);
    assert_eq!(summary.time.lost_steps, 4);
}

#[test]
fn lines_of_one_step_merge_and_the_first_value_stays() {
    let mut records = restarted();
    let lines = &mut records.attempts.get_mut(&2).unwrap().lines;
    lines[0].loss = None;
    let mut again = step(5, 2.0, 1.0);
    again.loss = Some(1.25);
    lines.insert(1, again);
    let mut other = step(6, 3.0, 7.0);
    other.loss = Some(9.0);
    lines.push(other);
    let summary = Summary::of(&records);
    assert_eq!(summary.loss.train[4], (5, 1.25));
    assert_eq!(summary.loss.train[5], (6, 5.0 / 6.0));
    assert!((summary.time.seconds(Cause::Productive) - 7.75).abs() < 1e-6);
    let told = |w: &String| w.contains("attempt 2: 1 line");
    assert!(summary.warnings.iter().any(told), "{:?}", summary.warnings);
}

#[test]
fn what_a_foreign_program_means_by_loss_is_not_guessed() {
    let summary = Summary::of(&restarted());
    assert_eq!((summary.loss.nats, summary.loss.perplexity), (false, None));
    let page = text::render(&compose::compose(&summary), Some(100), Style::PLAIN);
    assert!(
        !page.contains("nats") && page.contains("as the program reports it"),
        "{page}"
    );
}

#[test]
fn step_times_of_programs_that_give_none_are_differences() {
    let mut records = restarted();
    for attempt in records.attempts.values_mut() {
        for line in &mut attempt.lines {
            line.step_seconds = None;
            line.phases = None;
        }
    }
    let summary = Summary::of(&records);
    let speed = summary.speed.unwrap();
    assert!(speed.derived);
    assert_eq!(
        speed.steps_counted, 6,
        "the first of each attempt has no time"
    );
    assert!((speed.tokens_per_second.unwrap() - 100.0).abs() < 1e-6);
    assert_eq!(speed.flops_full, None);
    assert!((inside_of(&records) - 23.0).abs() < 1e-6);
}

fn inside_of(records: &Records) -> f64 {
    inside(&Summary::of(records))
}

#[test]
fn without_times_nothing_is_claimed() {
    let mut records = restarted();
    for attempt in records.attempts.values_mut() {
        for line in &mut attempt.lines {
            (line.step_seconds, line.elapsed, line.phases) = (None, None, None);
        }
    }
    let summary = Summary::of(&records);
    assert_eq!(summary.speed, None);
    assert_eq!(
        summary.no_speed.as_deref(),
        Some("no step with a known time")
    );
    assert_eq!(summary.time.goodput, None);
    let page = text::render(&compose::compose(&summary), Some(100), Style::PLAIN);
    assert!(page.contains("No speed is reported: no step with a known time."));
}

#[test]
fn without_journal_the_numbers_of_steps_tell_the_lineage() {
    let mut records = restarted();
    records.entries.clear();
    let summary = Summary::of(&records);
    assert_eq!(summary.steps.lost, 2);
    assert_eq!(summary.loss.train.len(), 8);
    assert!(
        summary
            .warnings
            .iter()
            .any(|w| w.contains("no attempt is journalled"))
    );
}

#[test]
fn a_binding_that_differs_is_told() {
    let mut records = restarted();
    records.attempts.get_mut(&2).unwrap().bound = vec![
        Bound {
            rank: 0,
            node: "n".into(),
            cores: Some(vec![1, 0]),
            asked: Some(vec![0, 1]),
        },
        Bound {
            rank: 1,
            node: "n".into(),
            cores: Some(vec![0, 1, 2, 3]),
            asked: Some(vec![2, 3]),
        },
    ];
    let summary = Summary::of(&records);
    let told: Vec<_> = summary
        .warnings
        .iter()
        .filter(|w| w.contains("binding"))
        .collect();
    assert_eq!(told, ["binding: ranks 1 run on other cores than asked for"]);
    let page = text::render(&compose::compose(&summary), Some(100), Style::PLAIN);
    assert!(page.contains("DIFFERS"), "{page}");
}

#[test]
fn an_empty_record_is_a_report_too() {
    let summary = Summary::of(&Records::default());
    let document = compose::compose(&summary);
    assert!(text::render(&document, Some(80), Style::PLAIN).contains("no step yet"));
    assert!(html::render(&document).unwrap().contains("n/a"));
    assert!(markdown::render(&document).starts_with("# "));
    assert!(
        json::render(&summary)
            .unwrap()
            .contains("\"schema\": \"haul.report/1\"")
    );
}

fn any_number() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        1 => Just(None),
        6 => (0.0..5.0f64).prop_map(Some),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300, 1e-300]).prop_map(Some),
    ]
}

prop_compose! {
    fn any_line()(
        kind in prop::sample::select(vec![Kind::Step, Kind::Step, Kind::Step, Kind::Eval, Kind::Save, Kind::Skip, Kind::Note]),
        step in prop::option::weighted(0.9, prop_oneof![8 => 0..30u64, 1 => Just(u64::MAX)]),
        (elapsed, loss, seconds) in (any_number(), any_number(), any_number()),
        step_seconds in any_number(),
        tokens in prop::option::of(any::<u64>()),
        save in any_number(),
        rank in prop::option::of(0..4usize),
    ) -> Line {
        Line {
            step, elapsed, loss, seconds, step_seconds, tokens,
            phases: save.map(|s| BTreeMap::from([("save".to_owned(), s), ("compute".to_owned(), 0.5)])),
            slowest: rank.map(|rank| Slowest { rank, seconds: 0.1 }),
            ..Line::new(kind)
        }
    }
}

prop_compose! {
    fn any_event()(
        what in 0..9,
        number in 1..5u32,
        parent in prop::option::of((0..5u32, 0..30u64)),
        class in prop::sample::select(vec![Class::Done, Class::Failed, Class::Again, Class::Unknown]),
    ) -> Event {
        match what {
            0 => Event::Submitted { slot: number, job: "1".into() },
            1 => Event::Claimed { slot: number, job: "1".into(), restart: 0 },
            2 | 3 => attempt(number, parent),
            4 | 5 => launched(number),
            6 => judged(number, class),
            7 => Event::Reopened { slot: number, upgrade: false },
            _ => Event::Finished { outcome: Outcome::Failed, words: "w".into() },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_time: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the records say, every form is made, every number drawn is finite, no row is negative.
    #[test]
    fn any_records_give_a_report(
        events in prop::collection::vec((1..6u64, 0.0..100.0f64, any_event()), 0..14),
        lines in prop::collection::vec((1..5u32, any_line()), 0..60),
    ) {
        let mut records = Records::default();
        for (i, (epoch, time, event)) in events.into_iter().enumerate() {
            records.entries.push(Entry { epoch, seq: i as u64, time: at(time), role: "supervisor".into(), event });
        }
        records.entries.sort_by_key(|e| (e.epoch, e.seq));
        for (number, line) in lines {
            records.attempts.entry(number).or_default().lines.push(line);
        }
        let summary = Summary::of(&records);
        for row in &summary.time.rows {
            prop_assert!(row.seconds.is_finite() && row.seconds >= 0.0, "{row:?}");
        }
        let wall = summary.time.wall_seconds;
        prop_assert!((inside(&summary) - wall).abs() <= 1e-9 * wall.max(1.0));
        if let Some(goodput) = summary.time.goodput {
            prop_assert!((0.0..=1.0 + 1e-9).contains(&goodput), "{goodput}");
        }
        let document = compose::compose(&summary);
        text::render(&document, Some(60), Style::COLOURED);
        markdown::render(&document);
        let page = html::render(&document).unwrap();
        prop_assert!(!page.contains("NaN") && !page.contains("inf\""), "{page}");
        let data: serde_json::Value = serde_json::from_str(&json::render(&summary).unwrap()).unwrap();
        prop_assert_eq!(&data["schema"], "haul.report/1");
    }
}

#[test]
fn queue_time_is_from_eligible_to_start_where_accounting_tells() {
    use crate::store::accounts::Account;
    let mut records = Records::default();
    let submitted = Event::Submitted {
        slot: 1,
        job: "7".into(),
    };
    reign(&mut records, 1, "submitter", vec![(0.0, submitted)]);
    let claimed = Event::Claimed {
        slot: 1,
        job: "7".into(),
        restart: 0,
    };
    let events = vec![(110.0, claimed)];
    reign(&mut records, 2, "supervisor", events);
    let without = Summary::of(&records).time;
    assert_eq!(without.seconds(Cause::Queue), 110.0);
    let account = Account {
        job: "7".into(),
        eligible: Some(1_700_000_000 + 30),
        started: Some(1_700_000_000 + 100),
        ..Account::default()
    };
    records.accounts = Some(BTreeMap::from([(1, vec![account])]));
    let with = Summary::of(&records).time;
    assert_eq!(with.seconds(Cause::Queue), 70.0);
    // Held, and then the job's own begin: not the queue's.
    assert_eq!(with.seconds(Cause::NoJob), 30.0);
    assert_eq!(with.wall_seconds, 10.0);
}
