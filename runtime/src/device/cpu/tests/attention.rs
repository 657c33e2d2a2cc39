//! Attention forward, backward and decoding against naive f64.

use super::{Random, Rig, widen};
use crate::blueprint::program::Op;
use crate::device::cpu::Isa;

#[derive(Clone, Copy)]
struct Shape {
    batch: usize,
    seq: usize,
    heads: usize,
    head_dim: usize,
}

impl Shape {
    fn qkv(&self, b: usize, t: usize, part: usize, h: usize) -> usize {
        (((b * self.seq + t) * 3 + part) * self.heads + h) * self.head_dim
    }

    fn out(&self, b: usize, t: usize, h: usize) -> usize {
        ((b * self.seq + t) * self.heads + h) * self.head_dim
    }

    fn rows(&self) -> usize {
        self.batch * self.seq
    }

    fn len(&self) -> usize {
        self.rows() * self.heads * self.head_dim
    }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// Probabilities of query `t` over keys 0..=t, and the log of their denominator.
fn weights(
    q: &[f64],
    s: Shape,
    b: usize,
    h: usize,
    t: usize,
    seg: Option<&[u32]>,
) -> (Vec<f64>, f64) {
    let d = s.head_dim;
    let scale = 1.0 / (d as f64).sqrt();
    let own = s.qkv(b, t, 0, h);
    let scores: Vec<f64> = (0..=t)
        .map(|k| {
            let key = s.qkv(b, k, 1, h);
            let apart = seg.is_some_and(|seg| seg[b * s.seq + k] != seg[b * s.seq + t]);
            if apart {
                f64::NEG_INFINITY
            } else {
                scale * dot(&q[own..own + d], &q[key..key + d])
            }
        })
        .collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|x| (x - max).exp()).sum();
    let lse = max + sum.ln();
    (scores.iter().map(|x| (x - lse).exp()).collect(), lse)
}

fn forward(q: &[f64], s: Shape, seg: Option<&[u32]>) -> (Vec<f64>, Vec<f64>) {
    let (mut out, mut sums) = (vec![0.0; s.len()], vec![0.0; s.rows() * s.heads]);
    for b in 0..s.batch {
        for h in 0..s.heads {
            for t in 0..s.seq {
                let (p, lse) = weights(q, s, b, h, t, seg);
                sums[(b * s.heads + h) * s.seq + t] = lse;
                for (k, p) in p.iter().enumerate() {
                    for i in 0..s.head_dim {
                        out[s.out(b, t, h) + i] += p * q[s.qkv(b, k, 2, h) + i];
                    }
                }
            }
        }
    }
    (out, sums)
}

/// (dqkv, delta).
fn backward(
    q: &[f64],
    out: &[f64],
    dout: &[f64],
    s: Shape,
    seg: Option<&[u32]>,
) -> (Vec<f64>, Vec<f64>) {
    let d = s.head_dim;
    let scale = 1.0 / (d as f64).sqrt();
    let (mut grad, mut deltas) = (vec![0.0; q.len()], vec![0.0; s.rows() * s.heads]);
    for b in 0..s.batch {
        for h in 0..s.heads {
            for t in 0..s.seq {
                let o = s.out(b, t, h);
                let g = &dout[o..o + d];
                let delta = dot(g, &out[o..o + d]);
                deltas[(b * s.heads + h) * s.seq + t] = delta;
                let (p, _) = weights(q, s, b, h, t, seg);
                for (k, p) in p.iter().enumerate() {
                    let (own, key, value) =
                        (s.qkv(b, t, 0, h), s.qkv(b, k, 1, h), s.qkv(b, k, 2, h));
                    let ds = p * (dot(g, &q[value..value + d]) - delta) * scale;
                    for i in 0..d {
                        grad[own + i] += ds * q[key + i];
                        grad[key + i] += ds * q[own + i];
                        grad[value + i] += p * g[i];
                    }
                }
            }
        }
    }
    (grad, deltas)
}

fn shape(batch: usize, seq: usize, heads: usize, head_dim: usize) -> Shape {
    Shape {
        batch,
        seq,
        heads,
        head_dim,
    }
}

fn shapes() -> [Shape; 7] {
    [
        shape(1, 1, 1, 1),
        shape(2, 5, 3, 7),
        shape(1, 96, 1, 16),
        shape(2, 97, 2, 24),
        shape(1, 200, 2, 64),
        shape(1, 295, 1, 33),
        shape(1, 130, 1, 256),
    ]
}

/// Segments of odd lengths.
fn documents(s: Shape) -> Vec<u32> {
    (0..s.rows())
        .map(|r| (r % s.seq / 41 + r / s.seq) as u32)
        .collect()
}

#[test]
fn forward_equals_the_naive_one() {
    let mut random = Random::new(5);
    for s in shapes() {
        for packed in [false, true] {
            let x: Vec<f32> = random.reals(3 * s.len()).iter().map(|x| 3.0 * x).collect();
            let ids = documents(s);
            let mut rig = Rig::default();
            let (qkv, out) = (rig.reals(&x), rig.reals(&vec![f32::NAN; s.len()]));
            let lse = rig.reals(&vec![f32::NAN; s.rows() * s.heads]);
            let segments = packed.then(|| rig.index(&ids));
            let (want, sums) = forward(&widen(&x), s, packed.then_some(&ids[..]));
            let Shape {
                batch,
                seq,
                heads,
                head_dim,
            } = s;
            let op = Op::Attention {
                qkv,
                out,
                lse,
                segments,
                batch,
                seq,
                heads,
                head_dim,
            };
            rig.check(&op, &[(out, want), (lse, sums)], 3e-6);
        }
    }
}

#[test]
fn backward_equals_the_naive_one() {
    let mut random = Random::new(6);
    for s in shapes() {
        for packed in [false, true] {
            let x: Vec<f32> = random.reals(3 * s.len()).iter().map(|x| 2.0 * x).collect();
            let g = random.reals(s.len());
            let ids = documents(s);
            let seg = packed.then_some(&ids[..]);
            let (o, sums) = forward(&widen(&x), s, seg);
            let narrow = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<_>>();
            let mut rig = Rig::default();
            let (qkv, out) = (rig.reals(&x), rig.reals(&narrow(&o)));
            let (lse, dout) = (rig.reals(&narrow(&sums)), rig.reals(&g));
            let delta = rig.reals(&vec![f32::NAN; sums.len()]);
            let dqkv = rig.reals(&vec![f32::NAN; x.len()]);
            let segments = packed.then(|| rig.index(&ids));
            let (want, deltas) = backward(&widen(&x), &o, &widen(&g), s, seg);
            let Shape {
                batch,
                seq,
                heads,
                head_dim,
            } = s;
            let op = Op::AttentionGrad {
                qkv,
                out,
                lse,
                dout,
                delta,
                dqkv,
                segments,
                batch,
                seq,
                heads,
                head_dim,
            };
            rig.check(&op, &[(dqkv, want), (delta, deltas)], 5e-6);
        }
    }
}

#[test]
fn a_nan_key_reaches_each_row_that_sees_it_and_no_other() {
    let s = shape(1, 120, 1, 8);
    let mut x = Random::new(7).reals(3 * s.len());
    x[s.qkv(0, 100, 1, 0)] = f32::NAN;
    let mut rig = Rig::default();
    let (qkv, out) = (rig.reals(&x), rig.reals(&vec![0.0; s.len()]));
    let lse = rig.reals(&vec![0.0; s.rows()]);
    let (batch, seq, heads, head_dim) = (1, 120, 1, 8);
    let op = Op::Attention {
        qkv,
        out,
        lse,
        segments: None,
        batch,
        seq,
        heads,
        head_dim,
    };
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        let after = rig.try_run(isa, 2, &op).unwrap();
        for (t, row) in rig.get(&after, out).chunks(8).enumerate() {
            assert!(
                row.iter().all(|x| x.is_nan() == (t >= 100)),
                "{} row {t}",
                isa.name()
            );
        }
        for (t, x) in rig.get(&after, lse).iter().enumerate() {
            assert_eq!(x.is_nan(), t >= 100, "{} row {t}", isa.name());
        }
    }
}

#[test]
fn a_head_that_the_scratch_does_not_hold_is_refused() {
    let mut rig = Rig::default();
    let (qkv, out, lse) = (
        rig.reals(&[0.0; 900]),
        rig.reals(&[0.0; 300]),
        rig.reals(&[0.0]),
    );
    let (batch, seq, heads, head_dim) = (1, 1, 1, 300);
    let op = Op::Attention {
        qkv,
        out,
        lse,
        segments: None,
        batch,
        seq,
        heads,
        head_dim,
    };
    let message = rig
        .try_run(Isa::Portable, 1, &op)
        .err()
        .unwrap()
        .to_string();
    assert!(message.contains("300"), "{message}");
}

#[test]
fn decoding_equals_the_last_row_of_the_naive_attention() {
    let mut random = Random::new(8);
    for (s, at) in [
        (shape(2, 5, 3, 7), [0u32, 4]),
        (shape(2, 300, 2, 24), [299, 130]),
    ] {
        let x = random.reals(3 * s.len());
        let wide = widen(&x);
        let (mut keys, mut values) = (vec![0.0; s.len()], vec![0.0; s.len()]);
        let (mut one, mut want) = (vec![], vec![]);
        let (all, _) = forward(&wide, s, None);
        let width = s.heads * s.head_dim;
        for (b, &last) in at.iter().enumerate() {
            for t in 0..s.seq {
                let (row, from) = (s.out(b, t, 0), s.qkv(b, t, 0, 0));
                keys[row..row + width].copy_from_slice(&x[from + width..from + 2 * width]);
                values[row..row + width].copy_from_slice(&x[from + 2 * width..from + 3 * width]);
            }
            let (row, from) = (s.out(b, last as usize, 0), s.qkv(b, last as usize, 0, 0));
            one.extend(&x[from..from + 3 * width]);
            want.extend(&all[row..row + width]);
        }
        let (full_keys, full_values) = (widen(&keys), widen(&values));
        for (b, t) in at.iter().enumerate() {
            let row = s.out(b, *t as usize, 0);
            keys[row..row + width].fill(f32::NAN);
            values[row..row + width].fill(f32::NAN);
        }
        let mut rig = Rig::default();
        let (qkv, keys, values) = (rig.reals(&one), rig.reals(&keys), rig.reals(&values));
        let (at, out) = (rig.index(&at), rig.reals(&vec![0.0; s.batch * width]));
        let Shape {
            batch,
            seq,
            heads,
            head_dim,
        } = s;
        let op = Op::Decode {
            qkv,
            keys,
            values,
            at,
            out,
            batch,
            seq,
            heads,
            head_dim,
        };
        rig.check(
            &op,
            &[(out, want), (keys, full_keys), (values, full_values)],
            2e-6,
        );
    }
}
