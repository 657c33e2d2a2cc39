//! From records to figures: a pure function. Absent is unknown; no figure is guessed.

use super::accounting::Accounting;
use super::attempts::{self, Attempt, State};
use super::gaps::{self, Gap};
use super::ledger::Ledger;
use super::lineage::Lineage;
use super::loss::{self, Loss};
use super::origin::{self, Origin};
use super::records::{Records, Sampled};
use super::setup::{self, Setup};
use super::speed::{self, Speed};
use super::steps::Steps;
use crate::store::checkpoints::refused;
use crate::store::journal::Event;
use serde::Serialize;

pub const SCHEMA: &str = "haul.report/1";

/// The whole report as data; also what `--json` prints. Seconds, nats, FLOP/s, bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: &'static str,
    pub run: String,
    pub name: Option<String>,
    pub state: State,
    pub steps: Progress,
    pub loss: Loss,
    /// Absent where no speed is reported; `no_speed` says why.
    pub speed: Option<Speed>,
    pub no_speed: Option<String>,
    pub time: Ledger,
    /// Of a run under a scheduler that keeps accounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounting: Option<Accounting>,
    pub attempts: Vec<Attempt>,
    /// Notes with words, in order.
    pub notes: Vec<Note>,
    pub checkpoints: Checkpoints,
    pub sample: Option<Sampled>,
    pub setup: Setup,
    pub origin: Origin,
    /// What could not be read or does not fit together.
    pub warnings: Vec<String>,
}

/// Something a rank or the supervisor found worth telling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Note {
    pub attempt: u32,
    pub step: Option<u64>,
    pub rank: Option<u64>,
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Progress {
    /// The newest valid step.
    pub last: Option<u64>,
    pub planned: Option<u64>,
    /// Tokens consumed up to it.
    pub tokens: Option<u64>,
    pub skipped: usize,
    pub lost: usize,
    /// Ranges of valid steps without a record, both ends included.
    pub missing: Vec<Gap>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Checkpoints {
    /// Saves of all attempts.
    pub saved: usize,
    pub last_step: Option<u64>,
    pub bytes: Option<u64>,
    pub mean_seconds: Option<f64>,
    /// Those that were not used, in words with the reason.
    pub refused: Vec<String>,
}

impl Summary {
    pub fn of(records: &Records) -> Summary {
        let lineage = Lineage::of(records);
        let steps = Steps::of(records, &lineage);
        let time = Ledger::of(records, &steps);
        let setup = setup::setup(records, lineage.head, &steps);
        let speed = speed::speed(records, &steps);
        let mut warnings = records.warnings.clone();
        if records.plan().is_none() {
            warnings.push("no plan could be read: layout, memory and FLOPs are unknown".into());
        }
        if lineage.guessed {
            warnings.push(
                "no attempt is journalled: which steps count was told from their numbers alone"
                    .into(),
            );
        }
        warnings.extend(steps.warnings.iter().cloned());
        let missing = gaps::gaps(records, &lineage, &steps);
        warnings.extend(gaps::words(&missing));
        warnings.extend(time.warnings.iter().cloned());
        let share = speed.as_ref().ok().and_then(|s| s.gemm_share_causal);
        if share.is_some_and(|share| share > 1.0) {
            warnings.push(
                "speed: more than the measured GEMM peak; its measurement was disturbed, or the steps' times are wrong".into(),
            );
        }
        let differ = setup.ranks.iter().filter(|r| r.agrees() == Some(false));
        let differ: Vec<String> = differ.map(|r| r.rank.to_string()).collect();
        if !differ.is_empty() {
            warnings.push(format!(
                "binding: ranks {} run on other cores than asked for",
                differ.join(", ")
            ));
        }
        Summary {
            schema: SCHEMA,
            run: records.id.clone(),
            name: records.plan().map(|plan| plan.name.clone()),
            state: attempts::state(records, &steps),
            steps: progress(records, &steps, &setup, missing),
            loss: loss::loss(records, &lineage, &steps),
            no_speed: speed.as_ref().err().cloned(),
            speed: speed.ok(),
            accounting: records
                .accounts
                .as_ref()
                .map(|accounts| Accounting::of(&records.plans, accounts)),
            attempts: attempts::attempts(records, &lineage, &steps),
            notes: notes(&steps),
            checkpoints: checkpoints(records, &steps),
            // A run that was resumed since has gone on from what wrote it, or from before.
            sample: records
                .sample
                .clone()
                .filter(|sample| lineage.keeps(sample.attempt, sample.step)),
            time,
            setup,
            origin: origin::origin(records),
            warnings,
        }
    }
}

fn notes(steps: &Steps) -> Vec<Note> {
    let notes = steps.notes.iter().filter_map(|(attempt, line)| {
        let rank = line.values.as_ref().and_then(|v| v.get("rank")?.as_u64());
        Some(Note {
            attempt: *attempt,
            step: line.step,
            rank,
            text: line.text.clone()?,
        })
    });
    notes.collect()
}

fn progress(records: &Records, steps: &Steps, setup: &Setup, missing: Vec<Gap>) -> Progress {
    let newest = steps.kept().max_by_key(|s| s.step);
    let config = records.plan().and_then(|plan| plan.train_config.as_ref());
    Progress {
        last: newest.map(|s| s.step),
        planned: setup.steps_planned,
        tokens: newest
            .and_then(|s| s.line.tokens)
            .or_else(|| newest?.step.checked_mul(config?.tokens_per_step())),
        skipped: steps.kept().filter(|s| s.skipped).count(),
        lost: steps.steps.iter().filter(|s| !s.kept).count(),
        missing,
    }
}

fn checkpoints(records: &Records, steps: &Steps) -> Checkpoints {
    let seconds: Vec<f64> = steps.saves.iter().filter_map(|s| s.line.seconds).collect();
    let refused = records
        .entries
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Unreadable { at, reason } => Some(refused(*at, reason)),
            _ => None,
        });
    Checkpoints {
        refused: refused.collect(),
        saved: steps.saves.len(),
        last_step: steps.saves.iter().filter(|s| s.kept).map(|s| s.step).max(),
        bytes: steps.saves.iter().rev().find_map(|s| s.line.bytes),
        mean_seconds: (!seconds.is_empty())
            .then(|| seconds.iter().sum::<f64>() / seconds.len() as f64),
    }
}
