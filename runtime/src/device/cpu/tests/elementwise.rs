//! Operations on elements: GELU gradient, AdamW, sums of squares, zeroing.

use super::{Random, Rig, widen};
use crate::blueprint::program::{AdamScalars, Op, SQUARES_BLOCK};

#[test]
fn gelu_gradient_equals_the_naive_one() {
    let mut random = Random::new(14);
    for len in [1, 9, 40_003] {
        let pre: Vec<f32> = random.reals(len).iter().map(|x| 6.0 * x).collect();
        let d = random.reals(len);
        let root = (2.0 / std::f64::consts::PI).sqrt();
        let wide = widen(&pre);
        let want = wide.iter().zip(&d).map(|(&x, &d)| {
            let t = (root * (x + 0.044715 * x * x * x)).tanh();
            let slope =
                0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
            f64::from(d) * slope
        });
        let want = want.collect();
        let mut rig = Rig::default();
        let (pre, d) = (rig.reals(&pre), rig.reals(&d));
        rig.check(&Op::GeluGrad { pre, d, len }, &[(d, want)], 1e-6);
    }
}

#[test]
fn a_nan_gradient_is_seen_by_the_sum_of_its_block_alone() {
    let mut random = Random::new(15);
    let len = 2 * SQUARES_BLOCK + 77;
    let mut x = random.reals(len);
    let mut want: Vec<f64> = x
        .chunks(SQUARES_BLOCK)
        .map(|c| c.iter().map(|&x| f64::from(x) * f64::from(x)).sum())
        .collect();
    for poison in [0.0, f32::NAN, f32::INFINITY] {
        if poison != 0.0 {
            x[SQUARES_BLOCK + 5] = poison;
            want[1] = f64::from(poison);
        }
        let mut rig = Rig::default();
        let (x, out) = (rig.reals(&x), rig.sums(&[1.0; 3]));
        rig.check(
            &Op::SumSquares { x, out, len },
            &[(out, want.clone())],
            1e-12,
        );
    }
}

#[test]
fn adamw_equals_the_naive_one_and_zeroes_the_gradient() {
    let mut random = Random::new(16);
    let scalars = AdamScalars {
        gscale: 0.7,
        lr: 1e-2,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        bc1: 1.0 - 0.9f64.powi(3),
        bc2: 1.0 - 0.95f64.powi(3),
    };
    for (len, decay, lr_mult) in [(1, true, 1.0f32), (70_001, false, 0.5), (13, true, 2.0)] {
        let (p, g, m) = (random.reals(len), random.reals(len), random.reals(len));
        let v: Vec<f32> = random.reals(len).iter().map(|x| x * x).collect();
        let (mut p2, mut m2, mut v2) = (widen(&p), widen(&m), widen(&v));
        let a = scalars;
        let lr = a.lr * f64::from(lr_mult);
        for i in 0..len {
            let grad = a.gscale * f64::from(g[i]);
            m2[i] = a.beta1 * m2[i] + (1.0 - a.beta1) * grad;
            v2[i] = a.beta2 * v2[i] + (1.0 - a.beta2) * grad * grad;
            if decay {
                p2[i] -= lr * a.weight_decay * p2[i];
            }
            p2[i] -= lr / a.bc1 * m2[i] / (v2[i].sqrt() / a.bc2.sqrt() + a.eps);
        }
        let mut rig = Rig::default();
        let (p, g, m, v) = (rig.reals(&p), rig.reals(&g), rig.reals(&m), rig.reals(&v));
        let scalars = rig.sums(&scalars.to_array());
        let op = Op::AdamW {
            p,
            g,
            m,
            v,
            scalars,
            len,
            decay,
            lr_mult,
        };
        rig.check(&op, &[(p, p2), (g, vec![0.0; len]), (m, m2), (v, v2)], 1e-6);
    }
}

#[test]
fn zeroing_covers_the_length_exactly() {
    for len in [0, 1, 33_000] {
        let mut rig = Rig::default();
        let x = rig.reals(&vec![3.0; len]);
        rig.check(&Op::Zero { x, len }, &[(x, vec![0.0; len])], 0.0);
    }
}
