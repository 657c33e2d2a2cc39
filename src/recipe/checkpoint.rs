//! `checkpoint`: how often state is saved, and how much of it is kept.

use super::scalar;
use super::section::{Either, Given, Kind, Section, duration};
use super::yaml::{Node, Origin};

/// `None`: off.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub every: Given<Every>,
    pub keep: Given<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    Steps(u64),
    Seconds(u64),
}

/// Work is worth more than the disk it takes.
const DEFAULT: Every = Every::Seconds(1800);
const KEEP: u64 = 2;
const STEPS: std::ops::RangeInclusive<u64> = 1..=1 << 53;

/// `default` is what an absent key means: saved, for the bundled trainer.
pub(super) fn read(s: &mut Section, default: bool) -> Option<Checkpoint> {
    let either = s.either(
        "checkpoint",
        "How often state is saved: `off`, or every and keep.",
        Kind::Choice(vec!["off"]),
        Some(format!(
            "{{every: {}, keep: {KEEP}}}",
            scalar::show_duration(1800)
        )),
        |s| {
            s.later(&["dir", "budget", "async", "verify"]);
            let every = every(s);
            let keep = s.count_or(
                "keep",
                "Newest checkpoints of an attempt that are kept.",
                1..=10_000,
                KEEP,
            );
            Checkpoint { every, keep }
        },
    );
    match either {
        Either::Map(checkpoint) => Some(checkpoint),
        Either::Wrong => None,
        Either::Scalar(node) if node.text() == Some("off") => {
            s.seen("checkpoint", "off", &node);
            None
        }
        Either::Scalar(node) => {
            s.wrong(
                "checkpoint",
                &node,
                "expected `off` or a map with every and keep",
            );
            None
        }
        Either::Absent if default => {
            s.derived("checkpoint.every", scalar::show_duration(1800));
            s.derived("checkpoint.keep", KEEP);
            Some(Checkpoint {
                every: Given::default(DEFAULT),
                keep: Given::default(KEEP),
            })
        }
        Either::Absent => {
            s.derived("checkpoint", "off");
            None
        }
    }
}

fn every(s: &mut Section) -> Given<Every> {
    let either = s.either(
        "every",
        "Steps as a number, or a duration, such as 30m.",
        Kind::Any(vec![Kind::Count { range: STEPS }, Kind::Duration]),
        Some(scalar::show_duration(1800)),
        |s| s.count("steps", "Steps.", STEPS),
    );
    let given = |value: Every, node: &Node| Given {
        value,
        at: Some(node.span),
        origin: node.origin,
    };
    match either {
        Either::Map(Some(steps)) => steps.map(Every::Steps),
        Either::Map(None) => {
            let dotted = s.dotted("every");
            s.fault(
                super::diagnostic::Diagnostic::error(
                    "missing-key",
                    format!("`{dotted}` needs `steps`"),
                )
                .at(s.head(), "")
                .help("write `every: 100` for steps, `every: 30m` for time"),
            );
            Given::default(DEFAULT)
        }
        Either::Absent => {
            s.derived("every", scalar::show_duration(1800));
            Given::default(DEFAULT)
        }
        Either::Wrong => Given::default(DEFAULT),
        Either::Scalar(node) => {
            let text = node.text().unwrap_or_default();
            if let Ok(steps) = scalar::count(text)
                && STEPS.contains(&steps)
            {
                s.seen("every", steps, &node);
                given(Every::Steps(steps), &node)
            } else if let Ok(seconds) = duration(text) {
                s.seen("every", scalar::show_duration(seconds), &node);
                given(Every::Seconds(seconds), &node)
            } else {
                s.wrong(
                    "every",
                    &node,
                    "expected steps (100) or a duration (30m), above 0",
                );
                Given {
                    origin: Origin::Default,
                    ..given(DEFAULT, &node)
                }
            }
        }
    }
}
