//! The sections on time and attempts: where it went, how each ended.

use super::{or_unknown, plural};
use crate::report::accounting::{Accounting, NOT_YET};
use crate::report::attempts::class_word;
use crate::report::document::{Block, Figure, Part, Section, Shares};
use crate::report::ledger::Cause;
use crate::report::summary::Summary;
use crate::store::journal::Class;
use crate::ui::table::Table;
use crate::ui::units;

const NOTES_LISTED: usize = 20;

pub(super) fn time(summary: &Summary) -> Section {
    let time = &summary.time;
    let mut blocks = Vec::new();
    if !time.rows.is_empty() {
        let parts = time.rows.iter().map(|row| Part {
            label: row.cause.words().into(),
            seconds: row.seconds,
            share: row.share,
            note: match row.cause {
                Cause::LostSteps => plural(time.lost_steps, "step"),
                _ => String::new(),
            },
            means: row.cause.means(),
            colour: row.cause as usize,
        });
        blocks.push(Block::Shares(Shares {
            title: "time",
            whole: format!(
                "the wall time without queue, {}",
                units::duration(time.wall_seconds)
            ),
            parts: parts.collect(),
        }));
        let mut figures = vec![
            Figure::new("goodput", or_unknown(time.goodput, units::percent))
                .means("productive time / wall time without queue; productive are the steps that count, saves and evaluations taken out"),
            Figure::new("wall time without queue", units::duration(time.wall_seconds))
                .means("sum over jobs, from the start by the scheduler's accounts, else the supervisor's claim, to its last record"),
        ];
        if let Some(seconds) = time.to_first_step_seconds {
            figures.push(
                Figure::new("to the first step", units::duration(seconds))
                    .means("from the first submission to the begin of the first step"),
            );
        }
        let saves = &summary.checkpoints;
        if saves.saved > 0 {
            let mut note = Vec::new();
            if let Some(step) = saves.last_step {
                note.push(format!("newest of step {step}"));
            }
            if let Some(bytes) = saves.bytes {
                note.push(units::bytes(bytes));
            }
            if let Some(seconds) = saves.mean_seconds {
                note.push(format!("{} each", units::duration(seconds)));
            }
            figures.push(Figure::new("checkpoints", saves.saved.to_string()).note(note.join(", ")));
        }
        blocks.push(Block::Figures(figures));
    }
    if let Some(accounting) = &summary.accounting {
        blocks.push(Block::Figures(accounts(accounting)));
    }
    Section {
        id: "time",
        title: "Where the time went",
        blocks,
    }
}

/// Of a run under a scheduler that keeps accounts.
fn accounts(accounting: &Accounting) -> Vec<Figure> {
    let queue = accounting.queue_seconds;
    let mut figures = vec![
        Figure::new("queue time", queue.map_or(NOT_YET.into(), units::duration))
            .means("from eligible to start, of all jobs; by the scheduler's accounts"),
        Figure::new("node-hours", accounting.node_hours())
            .means("nodes x time from start to end, of all jobs; requested: nodes x walltime"),
    ];
    figures.extend(
        accounting
            .charge()
            .map(|charge| Figure::new("charged", charge)),
    );
    figures
}

pub(super) fn attempts(summary: &Summary) -> Section {
    let mut table = Table::new(&[
        ">attempt",
        "job",
        ">from step",
        ">steps",
        ">lost",
        ">time",
        "ended",
        "in words",
    ]);
    let mut logs = Vec::new();
    for one in &summary.attempts {
        let steps = match (one.first_step, one.last_step) {
            (Some(first), Some(last)) => format!("{first}–{last}"),
            _ => "none".into(),
        };
        table.row([
            one.attempt.to_string(),
            one.job.clone().unwrap_or_else(|| "?".into()),
            one.parent.map_or("0".into(), |p| p.step.to_string()),
            steps,
            one.steps_lost.to_string(),
            or_unknown(one.seconds, units::duration),
            class_word(one.class).into(),
            one.words.clone(),
        ]);
        if one.class.is_some_and(|class| class != Class::Done) && !one.log.is_empty() {
            logs.push(Block::Words(format!(
                "Attempt {}, last lines of the rank that ended first:",
                one.attempt
            )));
            logs.push(Block::Log(one.log.clone()));
        }
    }
    let mut blocks = Vec::new();
    if !summary.attempts.is_empty() {
        blocks.push(Block::Table(table));
        blocks.append(&mut logs);
    }
    let refused = &summary.checkpoints.refused;
    blocks.extend(refused.iter().cloned().map(Block::Words));
    if !summary.notes.is_empty() {
        let mut notes = Table::new(&[">attempt", ">step", ">rank", "note"]);
        let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        for note in summary.notes.iter().take(NOTES_LISTED) {
            notes.row([
                note.attempt.to_string(),
                number(note.step),
                number(note.rank),
                note.text.clone(),
            ]);
        }
        blocks.push(Block::Table(notes));
        if summary.notes.len() > NOTES_LISTED {
            blocks.push(Block::Words(format!(
                "and {} more; --json lists all.",
                plural(summary.notes.len() - NOTES_LISTED, "note")
            )));
        }
    }
    Section {
        id: "attempts",
        title: "Attempts",
        blocks,
    }
}
