//! `train`: when it ends, the arithmetic, the optimizer, its schedule, evaluation.

use super::diagnostic::Span;
use super::section::{Given, Section};
use haul_runtime::contract::Precision;
use haul_runtime::contract::config::ScheduleKind;

#[derive(Debug, Clone, PartialEq)]
pub struct Train {
    pub until: Option<Until>,
    pub warmup_steps: Given<u64>,
    pub precision: Given<Precision>,
    pub optimizer: Optimizer,
    pub schedule: Schedule,
    pub seed: Given<u64>,
    pub eval: Eval,
}

/// When training ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Until {
    Steps(Given<u64>),
    Tokens(Given<u64>),
    /// Seconds.
    Time(Given<u64>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    pub lr: Given<f64>,
    pub betas: Given<[f64; 2]>,
    pub eps: Given<f64>,
    pub weight_decay: Given<f64>,
    pub clip: Given<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub kind: Given<ScheduleKind>,
    pub warmup: Given<u64>,
    pub min_lr: Given<f64>,
    /// The last step unless given.
    pub decay_steps: Option<Given<u64>>,
    pub at: Option<Span>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Eval {
    /// Steps; 0 is never.
    pub every: Given<u64>,
    pub sequences: Given<u64>,
}

/// Steps, tokens: the largest number that JSON readers keep exact.
const MOST: u64 = 1 << 53;

pub(super) fn read(s: &mut Section, required: bool) -> Train {
    s.later(&[
        "recompute",
        "attention",
        "loss_scale",
        "init_from",
        "trace",
        "on_spike",
        "on_nan",
        "overlap",
    ]);
    let until = s.section(
        "until",
        "When training ends: exactly one of steps, tokens, time.",
        |s| {
            let steps = s.count("steps", "After this many optimizer steps.", 1..=MOST);
            let tokens = s.count(
                "tokens",
                "With the step at which this many tokens are consumed.",
                1..=MOST,
            );
            let time = s.duration(
                "time",
                "With the step at which training has run this long, all attempts together.",
            );
            let one = s.exactly_one(
                &["steps", "tokens", "time"],
                required,
                "for example `until: {steps: 1000}`",
            );
            steps
                .map(Until::Steps)
                .or(tokens.map(Until::Tokens))
                .or(time.map(Until::Time))
                .filter(|_| one)
        },
    );
    Train {
        until,
        warmup_steps: s.count_or(
            "warmup_steps",
            "Steps at the start that speed figures leave out.",
            0..=MOST,
            5,
        ),
        precision: s.choice(
            "precision",
            "Arithmetic: f32, or f64 on the slow reference device, for proofs.",
            &[("f32", Precision::F32), ("f64", Precision::F64)],
            &["bf16", "fp16"],
            ("f32", Precision::F32),
        ),
        optimizer: s.section("optimizer", "AdamW as PyTorch defines it.", |s| {
            s.later(&["kind", "lr_mult"]);
            Optimizer {
                lr: s.number_or("lr", "Peak learning rate.", 0.0..=1e3, 3e-4),
                betas: s.pair_or(
                    "betas",
                    "Decay of the first and second moments.",
                    0.0..=1.0,
                    [0.9, 0.95],
                ),
                eps: s.number_or(
                    "eps",
                    "Added to the root, after bias correction.",
                    1e-30..=1.0,
                    1e-8,
                ),
                weight_decay: s.number_or(
                    "weight_decay",
                    "Decoupled decay of matrices.",
                    0.0..=1e3,
                    0.1,
                ),
                clip: s.number_or(
                    "clip",
                    "Clips gradients to this global norm; 0 is off.",
                    0.0..=1e30,
                    1.0,
                ),
            }
        }),
        schedule: s.section("schedule", "Learning rate over steps.", |s| Schedule {
            kind: s.choice(
                "kind",
                "Shape of the decay.",
                &[
                    ("constant", ScheduleKind::Constant),
                    ("linear", ScheduleKind::Linear),
                    ("cosine", ScheduleKind::Cosine),
                ],
                &["wsd", "inverse-sqrt"],
                ("cosine", ScheduleKind::Cosine),
            ),
            warmup: s.count_or("warmup", "Steps of linear warm-up from 0.", 0..=MOST, 0),
            min_lr: s.number_or(
                "min_lr",
                "Learning rate at the end of decay.",
                0.0..=1e3,
                0.0,
            ),
            decay_steps: s.count(
                "decay_steps",
                "Step at which decay ends; the last step unless given.",
                1..=MOST,
            ),
            at: s.head(),
        }),
        seed: s.count_or("seed", "Seed of weights and sample order.", 0..=MOST, 1),
        eval: s.section("eval", "Evaluation on the held-out split.", |s| Eval {
            every: s.count_or(
                "every",
                "Each so many steps and after the last; 0 is never.",
                0..=MOST,
                0,
            ),
            sequences: s.count_or(
                "sequences",
                "Sequences of one evaluation, at most the held-out split.",
                1..=1_048_576,
                64,
            ),
        }),
    }
}
