//! The section on speed: step times, rates, phases.

use super::{or_empty, or_unknown, points};
use crate::report::document::{Block, Figure, Part, Section, Shares, StepChart};
use crate::report::speed::Speed;
use crate::report::summary::Summary;
use crate::ui::units;

pub(super) fn speed(summary: &Summary) -> Section {
    let blocks = match (&summary.speed, &summary.no_speed) {
        (Some(speed), _) => speed_blocks(speed),
        (None, Some(why)) => vec![Block::Words(format!("No speed is reported: {why}."))],
        (None, None) => Vec::new(),
    };
    Section {
        id: "speed",
        title: "Speed",
        blocks,
    }
}

fn speed_blocks(speed: &Speed) -> Vec<Block> {
    let spread = &speed.step_seconds;
    let rank = or_empty(speed.tokens_per_second_per_rank, |t| {
        format!("{} a rank", units::rate(t, "tokens/s"))
    });
    let derived = if speed.derived {
        "differences between lines of the program"
    } else {
        ""
    };
    let mut figures = vec![
        Figure::new(
            "tokens/s",
            or_unknown(speed.tokens_per_second, units::count),
        )
        .note(rank)
        .means("tokens of the counted steps / their seconds, saves and evaluations taken out; all ranks together"),
        Figure::new("steps counted", speed.steps_counted.to_string())
            .note(format!("{} left out", speed.steps_left_out))
            .means("valid steps after train.warmup_steps, without each attempt's first after its launch"),
        Figure::new("step time, median", units::duration(spread.median))
            .note(derived)
            .means("wall time from barrier to barrier, saves and evaluations taken out, over the counted steps"),
        Figure::new(
            "step time, p5 to p95",
            format!("{} to {}", units::duration(spread.p5), units::duration(spread.p95)),
        )
        .note(format!(
            "min {}, max {}",
            units::duration(spread.min),
            units::duration(spread.max)
        )),
        Figure::new(
            "model FLOP/s, full",
            or_unknown(speed.flops_full, |f| units::rate(f, "FLOP/s")),
        )
        .means("matrix products of forward and backward a token, with the whole attention square, x tokens/s; recomputation not counted"),
        Figure::new(
            "model FLOP/s, causal",
            or_unknown(speed.flops_causal, |f| units::rate(f, "FLOP/s")),
        )
        .means("the same with the half of the attention square that a causal model needs"),
        Figure::new(
            "share of measured GEMM peak",
            or_unknown(speed.gemm_share_causal, units::percent),
        )
        .note(match speed.gemm_peak {
            Some(peak) => format!(
                "causal; {} full; peak {}",
                or_unknown(speed.gemm_share_full, units::percent),
                units::rate(peak, "FLOP/s")
            ),
            None => "no peak was measured".into(),
        })
        .means("model FLOP/s (causal) / the speed of matrix products that all ranks measure together before their first step; unknown without it"),
    ];
    if let Some(slowest) = speed.slowest.filter(|s| s.share < 1.0) {
        figures.push(
            Figure::new("slowest rank", format!("rank {}", slowest.rank))
                .note(format!("in {} of the steps", units::percent(slowest.share)))
                .means("the rank with the largest compute time most often"),
        );
    }
    let mut blocks = vec![
        Block::StepTimes(StepChart {
            points: points(&speed.curve),
            median: spread.median,
            p5: spread.p5,
            p95: spread.p95,
        }),
        Block::Figures(figures),
    ];
    if !speed.phases.is_empty() {
        let parts = speed.phases.iter().map(|phase| {
            let (means, colour) = phase_words(&phase.name);
            Part {
                label: phase.name.replace('_', " "),
                seconds: phase.seconds,
                share: Some(phase.share),
                note: String::new(),
                means,
                colour,
            }
        });
        blocks.push(Block::Shares(Shares {
            title: "phase",
            whole: "the mean counted step".into(),
            parts: parts.collect(),
        }));
    }
    blocks
}

fn phase_words(name: &str) -> (&'static str, usize) {
    match name {
        "compute" => ("forward and backward", 0),
        "data" => ("waiting for samples", 4),
        "tensor_wait" => ("waiting for tensor peers", 3),
        "tensor_transfer" => ("moving data between tensor peers", 5),
        "pipe_wait" => ("waiting for the neighbour stage", 6),
        "data_wait" => ("waiting for the other replicas", 1),
        "data_transfer" => ("summing gradients over replicas", 2),
        "update" => ("optimizer", 7),
        "save" => ("checkpoints", 8),
        "eval" => ("held-out split", 6),
        _ => ("the remainder", 9),
    }
}
