//! Products: all transpositions, epilogues and edges, against naive f64 and the `gemm` crate.
#![allow(unsafe_code)]

use super::{Random, Rig, widen};
use crate::blueprint::program::{Epilogue, Op};
use crate::device::cpu::Isa;

fn product(a: &[f64], b: &[f64], (m, n, k): (usize, usize, usize), ta: bool, tb: bool) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for p in 0..k {
            let x = if ta { a[p * m + i] } else { a[i * k + p] };
            for j in 0..n {
                c[i * n + j] += x * if tb { b[j * k + p] } else { b[p * n + j] };
            }
        }
    }
    c
}

fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

const SHAPES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (1, 33, 5),
    (7, 1, 130),
    (5, 17, 3),
    (6, 16, 8),
    (13, 31, 40),
    (100, 47, 65),
    (97, 130, 385),
    (14, 32, 800),
    (3, 5, 1201),
    (203, 70, 19),
    (2, 3, 0),
];

#[test]
fn products_of_every_transposition_equal_the_naive_ones() {
    let mut random = Random::new(1);
    for (m, n, k) in SHAPES {
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            for accumulate in [false, true] {
                let (x, y) = (random.reals(m * k), random.reals(k * n));
                let z = random.reals(m * n);
                let mut rig = Rig::default();
                let (a, b, c) = (rig.reals(&x), rig.reals(&y), rig.reals(&z));
                let mut want = product(&widen(&x), &widen(&y), (m, n, k), ta, tb);
                if accumulate {
                    want.iter_mut()
                        .zip(&z)
                        .for_each(|(w, z)| *w += f64::from(*z));
                }
                let epilogue = Epilogue::None;
                let op = Op::Gemm {
                    a,
                    b,
                    c,
                    m,
                    n,
                    k,
                    ta,
                    tb,
                    accumulate,
                    epilogue,
                };
                rig.check(&op, &[(c, want)], 2e-6);
            }
        }
    }
}

#[test]
fn epilogues_add_bias_and_residual_and_keep_what_goes_into_gelu() {
    let mut random = Random::new(2);
    for (m, n, k) in [(5, 17, 3), (100, 47, 65), (25, 40, 900)] {
        let (x, y) = (random.reals(m * k), random.reals(k * n));
        let (u, r) = (random.reals(n), random.reals(m * n));
        let mut rig = Rig::default();
        let (a, b, bias) = (rig.reals(&x), rig.reals(&y), rig.reals(&u));
        let (residual, pre, c) = (rig.reals(&r), rig.reals(&r), rig.reals(&r));
        let mut plus = product(&widen(&x), &widen(&y), (m, n, k), false, true);
        for (i, w) in plus.iter_mut().enumerate() {
            *w += f64::from(u[i % n]);
        }
        let with: Vec<f64> = plus
            .iter()
            .zip(&r)
            .map(|(w, r)| w + f64::from(*r))
            .collect();
        let active: Vec<f64> = plus.iter().map(|x| gelu(*x)).collect();
        let op = |epilogue| {
            let (ta, tb, accumulate) = (false, true, false);
            Op::Gemm {
                a,
                b,
                c,
                m,
                n,
                k,
                ta,
                tb,
                accumulate,
                epilogue,
            }
        };
        rig.check(&op(Epilogue::Bias { bias }), &[(c, plus.clone())], 3e-6);
        rig.check(
            &op(Epilogue::BiasGelu { bias, pre }),
            &[(c, active), (pre, plus)],
            3e-6,
        );
        rig.check(
            &op(Epilogue::BiasResidual { bias, residual }),
            &[(c, with.clone())],
            3e-6,
        );
        rig.check(
            &op(Epilogue::BiasResidual { bias, residual: c }),
            &[(c, with)],
            3e-6,
        );
    }
}

#[test]
fn large_products_equal_the_gemm_crate() {
    // Several shared panels along the columns, along the depth, and along the rows.
    let mut random = Random::new(3);
    for (m, n, k) in [
        (60, 3000, 390),
        (30, 200, 9000),
        (1500, 64, 400),
        (40, 900, 3000),
    ] {
        let (x, y) = (random.reals(m * k), random.reals(k * n));
        let mut want = vec![0.0f32; m * n];
        let (k, n) = (k as isize, n as isize);
        // SAFETY: dense row-major matrices of these shapes.
        unsafe {
            gemm::gemm(
                m,
                n as usize,
                k as usize,
                want.as_mut_ptr(),
                1,
                n,
                false,
                x.as_ptr(),
                1,
                k,
                y.as_ptr(),
                1,
                n,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
        let (k, n) = (k as usize, n as usize);
        let mut rig = Rig::default();
        let (a, b, c) = (
            rig.reals(&x),
            rig.reals(&y),
            rig.reals(&vec![f32::NAN; m * n]),
        );
        let (ta, tb, accumulate, epilogue) = (false, false, false, Epilogue::None);
        let op = Op::Gemm {
            a,
            b,
            c,
            m,
            n,
            k,
            ta,
            tb,
            accumulate,
            epilogue,
        };
        rig.check(&op, &[(c, widen(&want))], 4e-6);
    }
}

#[test]
fn edges_have_the_bits_of_full_tiles() {
    let mut random = Random::new(4);
    let (m, n, k) = (61, 75, 420);
    let (x, y) = (random.reals(84 * k), random.reals(k * 96));
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        let run = |m: usize, n: usize| {
            let mut rig = Rig::default();
            let columns: Vec<f32> = y
                .iter()
                .enumerate()
                .filter(|(i, _)| i % 96 < n)
                .map(|(_, y)| *y)
                .collect();
            let (a, b) = (rig.reals(&x[..m * k]), rig.reals(&columns));
            let c = rig.reals(&vec![0.0; m * n]);
            let (ta, tb, accumulate, epilogue) = (false, false, false, Epilogue::None);
            let op = Op::Gemm {
                a,
                b,
                c,
                m,
                n,
                k,
                ta,
                tb,
                accumulate,
                epilogue,
            };
            let after = rig.try_run(isa, 1, &op).unwrap();
            rig.get(&after, c)
        };
        let (part, full) = (run(m, n), run(84, 96));
        for i in 0..m {
            assert_eq!(part[i * n..i * n + n], full[i * 96..i * 96 + n], "row {i}");
        }
    }
}

#[test]
fn nan_and_infinity_reach_the_result() {
    let (m, n, k) = (7, 18, 9);
    let mut x = vec![1.0f32; m * k];
    x[2 * k + 3] = f32::NAN;
    x[5 * k] = f32::INFINITY;
    let mut rig = Rig::default();
    let (a, b, c) = (
        rig.reals(&x),
        rig.reals(&vec![1.0; k * n]),
        rig.reals(&vec![0.0; m * n]),
    );
    let want = (0..m * n).map(|i| match i / n {
        2 => f64::NAN,
        5 => f64::INFINITY,
        _ => k as f64,
    });
    let (ta, tb, accumulate, epilogue) = (false, false, false, Epilogue::None);
    let op = Op::Gemm {
        a,
        b,
        c,
        m,
        n,
        k,
        ta,
        tb,
        accumulate,
        epilogue,
    };
    rig.check(&op, &[(c, want.collect())], 0.0);
}
