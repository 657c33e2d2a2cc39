//! Steps that have no record.

use super::*;

/// One attempt of ten steps that the journal knows to have ended at step 10, with the quickstart's plan.
fn ten_steps() -> Records {
    let plan = include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/report/quickstart-261130-s7nt/jobs/1/plan.json"
    ));
    let mut records = Records::default();
    records
        .plans
        .insert(1, serde_json::from_slice(plan).unwrap());
    let ended = Verdict {
        step: Some(10),
        ..verdict(Class::Done)
    };
    let events = vec![
        (0.0, attempt(1, None)),
        (0.5, launched(1)),
        (
            20.0,
            Event::Judged {
                attempt: 1,
                verdict: ended,
            },
        ),
    ];
    reign(&mut records, 1, "supervisor", events);
    let lines = (1..=10).map(|s| step(s, s as f64, 1.0)).collect();
    let held = Attempt {
        lines,
        ..Attempt::default()
    };
    records.attempts.insert(1, held);
    records
}

#[test]
fn steps_without_a_record_are_told_and_leave_a_gap_in_the_curve() {
    let missing = |records: &Records| {
        let summary = Summary::of(records);
        let page = compose::compose(&summary);
        let told = summary.warnings.iter().any(|w| w.contains("no record"));
        assert_eq!(
            told,
            !summary.steps.missing.is_empty(),
            "{:?}",
            summary.warnings
        );
        let parts = page
            .sections
            .iter()
            .flat_map(|s| &s.blocks)
            .find_map(|b| match b {
                crate::report::document::Block::Loss(chart) => Some(chart.train.len()),
                _ => None,
            });
        (summary.steps.missing.clone(), parts, page, summary)
    };
    let whole = ten_steps();
    let (gaps, parts, _, summary) = missing(&whole);
    assert_eq!((gaps, parts), (vec![], Some(1)));
    assert!(summary.warnings.is_empty(), "{:?}", summary.warnings);

    let mut holed = whole.clone();
    holed.attempts.get_mut(&1).unwrap().lines.drain(3..8);
    let (gaps, parts, page, summary) = missing(&holed);
    assert_eq!((gaps, parts), (vec![(4, 8)], Some(2)));
    let tile = page.tiles.iter().find(|t| t.label == "steps").unwrap();
    assert!(tile.note.contains("5 not on record"), "{tile:?}");
    for form in [
        text::render(&page, Some(100), Style::PLAIN),
        html::render(&page).unwrap(),
        json::render(&summary).unwrap(),
    ] {
        assert!(form.contains("steps 4 to 8 have no record"), "{form}");
    }

    // A step number that was changed: the line is of no known step.
    for (at, wrong) in [(4, 400), (4, 1_000_000), (0, 77), (9, 1_000_000)] {
        let mut changed = whole.clone();
        changed.attempts.get_mut(&1).unwrap().lines[at].step = Some(wrong);
        let (gaps, _, _, summary) = missing(&changed);
        let step = at as u64 + 1;
        assert_eq!(gaps, vec![(step, step)], "{wrong}");
        assert_eq!(summary.steps.last, Some(10.min(9 + u64::from(at != 9))));
        assert!(summary.warnings.iter().any(|w| w.contains("left out")));
    }

    let mut gone = whole.clone();
    gone.attempts.insert(1, Attempt::default());
    let (gaps, parts, page, _) = missing(&gone);
    assert_eq!((gaps, parts), (vec![(1, 10)], None));
    let tile = page.tiles.iter().find(|t| t.label == "steps").unwrap();
    assert_eq!(tile.value, "n/a");

    // It still runs: lines are on their way. A program that reports now and then leaves no gap.
    let mut live = gone.clone();
    live.entries.pop();
    assert_eq!(missing(&live).0, vec![]);
    let mut sparse = whole;
    sparse.plans.clear();
    let lines = &mut sparse.attempts.get_mut(&1).unwrap().lines;
    lines.retain(|line| line.step.is_some_and(|s| s % 3 == 0));
    assert!(Summary::of(&sparse).steps.missing.is_empty());
}
