//! Learning rate over steps, the scalars of an optimizer step, and initial weights.

pub mod init;
pub mod philox;
pub mod schedule;

use crate::blueprint::program::AdamScalars;
use crate::contract::Optimizer;

/// Added to the norm before dividing, as PyTorch's `clip_grad_norm_` does.
const CLIP_EPS: f64 = 1e-6;

/// Factor min(1, clip / (norm + 1e-6)) on gradients; 1 when `clip` is 0.
pub fn clip_factor(clip: f64, norm: f64) -> f64 {
    if clip == 0.0 {
        1.0
    } else {
        (clip / (norm + CLIP_EPS)).min(1.0)
    }
}

/// Scalars of the update that is applied as number `t`, from 1.
pub fn adam(o: &Optimizer, lr: f64, gscale: f64, t: u64) -> AdamScalars {
    let [beta1, beta2] = o.betas;
    AdamScalars {
        gscale,
        lr,
        beta1,
        beta2,
        eps: o.eps,
        weight_decay: o.weight_decay,
        bc1: 1.0 - libm::pow(beta1, t as f64),
        bc2: 1.0 - libm::pow(beta2, t as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_only_ever_shrinks() {
        assert_eq!(clip_factor(0.0, 100.0), 1.0);
        assert_eq!(clip_factor(1.0, 0.5), 1.0);
        assert!((clip_factor(1.0, 4.0) - 1.0 / (4.0 + 1e-6)).abs() < 1e-15);
    }

    #[test]
    fn bias_corrections_are_one_minus_powers() {
        let o = Optimizer {
            lr: 1.0,
            betas: [0.9, 0.99],
            eps: 1e-8,
            weight_decay: 0.0,
            clip: 0.0,
        };
        let s = adam(&o, 0.5, 1.0, 3);
        assert!((s.bc1 - (1.0 - 0.729)).abs() < 1e-15 && (s.bc2 - (1.0 - 0.970299)).abs() < 1e-15);
    }
}
