//! Learning rate as a function of the number of the applied update; f64 arithmetic and no system libm, so equal everywhere.

use crate::contract::Schedule;
use crate::contract::config::ScheduleKind;

/// Learning rate of the update that is applied as number `t`, from 1: linear warm-up to `peak`, then decay to `min_lr` at `decay_steps`.
pub fn learning_rate(s: &Schedule, peak: f64, t: u64) -> f64 {
    if t < s.warmup {
        return peak * t as f64 / s.warmup as f64;
    }
    let span = s.decay_steps.saturating_sub(s.warmup);
    let progress = if span == 0 {
        1.0
    } else {
        ((t - s.warmup) as f64 / span as f64).min(1.0)
    };
    let left = match s.kind {
        ScheduleKind::Constant => return peak,
        ScheduleKind::Linear => 1.0 - progress,
        ScheduleKind::Cosine => 0.5 * (1.0 + libm::cos(std::f64::consts::PI * progress)),
    };
    s.min_lr + (peak - s.min_lr) * left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: ScheduleKind) -> Schedule {
        Schedule {
            kind,
            warmup: 10,
            decay_steps: 110,
            min_lr: 0.1,
        }
    }

    #[test]
    fn warm_up_decay_and_floor() {
        for (kind, middle, end) in [
            (ScheduleKind::Constant, 1.0, 1.0),
            (ScheduleKind::Linear, 0.55, 0.1),
            (ScheduleKind::Cosine, 0.55, 0.1),
        ] {
            let lr = |t| learning_rate(&schedule(kind), 1.0, t);
            assert_eq!((lr(1), lr(5), lr(10)), (0.1, 0.5, 1.0));
            assert!((lr(60) - middle).abs() < 1e-12, "{kind:?}");
            assert!((lr(110) - end).abs() < 1e-12 && lr(1000) == lr(110));
        }
    }

    #[test]
    fn degenerate_spans_are_defined() {
        let s = Schedule {
            warmup: 0,
            decay_steps: 0,
            ..schedule(ScheduleKind::Cosine)
        };
        assert!((learning_rate(&s, 1.0, 1) - 0.1).abs() < 1e-12);
    }
}
