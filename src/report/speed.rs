//! How fast it ran: tokens/s, the spread of step times, phases, FLOP/s, share of the measured GEMM peak.

use super::records::Records;
use super::steps::{Step, Steps};
use haul_runtime::contract::metrics::PHASES;
use serde::Serialize;
use std::collections::BTreeMap;

/// Speed over the counted steps: valid ones after `train.warmup_steps`, without each attempt's first after its launch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speed {
    pub steps_counted: usize,
    pub steps_left_out: usize,
    /// Step times are differences between lines of the program.
    pub derived: bool,
    pub step_seconds: Spread,
    pub tokens_per_second: Option<f64>,
    pub tokens_per_second_per_rank: Option<f64>,
    /// Mean share of the step, in the order of the contract; empty when the program reports none.
    pub phases: Vec<Phase>,
    /// Model FLOP/s of all ranks, full attention square.
    pub flops_full: Option<f64>,
    /// The same with the causal half.
    pub flops_causal: Option<f64>,
    /// Measured GEMM peak of all ranks together, FLOP/s.
    pub gemm_peak: Option<f64>,
    pub gemm_share_full: Option<f64>,
    pub gemm_share_causal: Option<f64>,
    /// The rank that was slowest most often, and in what share of the steps.
    pub slowest: Option<SlowestRank>,
    /// (step, seconds) of all valid steps with a known time, saves and evaluations taken out.
    pub curve: Vec<(u64, f64)>,
}

/// Quantiles by linear interpolation between order statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub p5: f64,
    pub p95: f64,
    pub min: f64,
    pub max: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    pub name: String,
    pub share: f64,
    /// Mean over steps and ranks.
    pub seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SlowestRank {
    pub rank: usize,
    pub share: f64,
}

/// Name of the note value that carries the measured GEMM peak of all ranks together, in GFLOP/s.
pub const GEMM_PEAK: &str = "gemm_peak_gflops";

/// The speed, or in words why none is reported.
pub fn speed(records: &Records, steps: &Steps) -> Result<Speed, String> {
    let plan = records.plan();
    if plan.is_some_and(|plan| plan.shared_cores) {
        return Err("ranks share cores, so times say nothing about speed".into());
    }
    let config = plan.and_then(|plan| plan.train_config.as_ref());
    let warmup = config.map_or(0, |config| config.train.warmup_steps);
    let timed = |s: &&Step| s.kept && !s.skipped && s.seconds.is_some();
    let counted: Vec<&Step> = steps
        .kept()
        .filter(|s| timed(s) && !s.first && s.step > warmup)
        .collect();
    let left_out = steps.kept().count() - counted.len();
    let times: Vec<f64> = counted.iter().filter_map(|s| s.productive()).collect();
    let Some(step_seconds) = Spread::of(&times) else {
        return Err(match steps.kept().any(|s| s.seconds.is_some()) {
            true => "no step after the warm-up steps".into(),
            false => "no step with a known time".into(),
        });
    };
    let total: f64 = times.iter().sum();
    let tokens = tokens(records, steps, &counted);
    let tokens_per_second = tokens.filter(|_| total > 0.0).map(|tokens| tokens / total);
    let flops = plan.and_then(|plan| plan.flops.as_ref());
    let world = plan.map(|plan| plan.world() as f64).filter(|w| *w > 0.0);
    let flops_full = flops.zip(tokens_per_second).map(|(f, t)| f.per_token * t);
    let flops_causal = flops
        .zip(tokens_per_second)
        .map(|(f, t)| f.per_token_causal * t);
    let gemm_peak = gemm_peak(steps);
    let share = |flops: Option<f64>| flops.zip(gemm_peak).map(|(flops, peak)| flops / peak);
    Ok(Speed {
        steps_counted: counted.len(),
        steps_left_out: left_out,
        derived: steps.derived,
        step_seconds,
        tokens_per_second,
        tokens_per_second_per_rank: tokens_per_second.zip(world).map(|(t, w)| t / w),
        phases: phases(&counted),
        flops_full,
        flops_causal,
        gemm_peak,
        gemm_share_full: share(flops_full),
        gemm_share_causal: share(flops_causal),
        slowest: slowest(&counted),
        curve: steps
            .kept()
            .filter(timed)
            .filter_map(|s| Some((s.step, s.productive()?)))
            .collect(),
    })
}

impl Spread {
    /// Absent for no values.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Spread {
            median: quantile(&sorted, 0.5)?,
            p5: quantile(&sorted, 0.05)?,
            p95: quantile(&sorted, 0.95)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }
}

/// Quantile of ascending values.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// Tokens of the counted steps: by plan, else by what the lines say they consumed.
fn tokens(records: &Records, steps: &Steps, counted: &[&Step]) -> Option<f64> {
    let plan = records.plan();
    let config = plan.and_then(|p| p.train_config.as_ref());
    let a_step = config
        .map(|c| c.tokens_per_step())
        .or_else(|| plan?.flops.as_ref().map(|f| f.tokens_per_step));
    if let Some(tokens) = a_step {
        return Some(tokens as f64 * counted.len() as f64);
    }
    let consumed: BTreeMap<u64, u64> = steps
        .kept()
        .filter_map(|s| Some((s.step, s.line.tokens?)))
        .collect();
    counted
        .iter()
        .map(|s| {
            let before = consumed.get(&(s.step.checked_sub(1)?))?;
            Some(consumed.get(&s.step)?.checked_sub(*before)? as f64)
        })
        .sum()
}

fn phases(counted: &[&Step]) -> Vec<Phase> {
    let known: Vec<&&Step> = counted.iter().filter(|s| s.line.phases.is_some()).collect();
    let total: f64 = known.iter().filter_map(|s| s.seconds).sum();
    if known.is_empty() || total <= 0.0 {
        return Vec::new();
    }
    PHASES
        .iter()
        .map(|name| {
            let seconds: f64 = known.iter().map(|s| s.phase(name)).sum();
            Phase {
                name: (*name).to_owned(),
                share: seconds / total,
                seconds: seconds / known.len() as f64,
            }
        })
        .filter(|phase| phase.seconds > 0.0)
        .collect()
}

/// Mean over all notes, that is over attempts; FLOP/s.
fn gemm_peak(steps: &Steps) -> Option<f64> {
    let values: Vec<f64> = steps
        .notes
        .iter()
        .filter_map(|(_, note)| note.values.as_ref()?.get(GEMM_PEAK)?.as_f64())
        .filter(|v| v.is_finite() && *v > 0.0)
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64 * 1e9)
}

fn slowest(counted: &[&Step]) -> Option<SlowestRank> {
    let mut times: BTreeMap<usize, usize> = BTreeMap::new();
    for step in counted {
        if let Some(slowest) = &step.line.slowest {
            *times.entry(slowest.rank).or_default() += 1;
        }
    }
    let known: usize = times.values().sum();
    let (rank, count) = times.into_iter().max_by_key(|(_, count)| *count)?;
    Some(SlowestRank {
        rank,
        share: count as f64 / known as f64,
    })
}
