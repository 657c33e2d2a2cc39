//! Every operation against central differences or its definition.

use super::*;
use crate::blueprint::program::{Step, ValInfo};

/// Deterministic numbers in -1..1.
fn noise(seed: u64, len: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// A device with named values, all in `Work` but indices and sums.
#[derive(Default)]
struct Bench {
    device: Reference,
    program: Program,
    sizes: Sizes,
}

impl Bench {
    fn val(&mut self, region: Region, len: usize) -> Val {
        let cursor = match region {
            Region::Tokens => &mut self.sizes.tokens,
            Region::Scalars => &mut self.sizes.scalars,
            _ => &mut self.sizes.work,
        };
        let offset = *cursor;
        *cursor += len;
        let name = format!("v{}", self.program.vals.len());
        self.program.vals.push(ValInfo {
            name,
            region,
            offset,
            len,
        });
        Val(self.program.vals.len() as u32 - 1)
    }

    fn reals<const N: usize>(&mut self, lens: [usize; N]) -> [Val; N] {
        lens.map(|len| self.val(Region::Work, len))
    }

    fn start(&mut self) {
        self.sizes.slots = 1;
        self.device.reserve(&self.sizes, None).unwrap();
    }

    fn access(&mut self) -> Access<'_> {
        Access {
            device: &mut self.device,
            program: &self.program,
            frame: Frame::default(),
        }
    }

    fn put_ids(&mut self, val: Val, ids: &[u32]) {
        let offset = self.program.val(val).offset * 4;
        let bytes: Vec<u8> = ids.iter().flat_map(|x| x.to_ne_bytes()).collect();
        self.device.write(Region::Tokens, offset, &bytes);
    }

    /// The value of `out` weighted by `weights` after `op`, with input `x` set to `data`.
    fn probe(&mut self, op: &Op, x: Val, data: &[f64], out: &[(Val, Vec<f64>)]) -> f64 {
        let mut access = self.access();
        access.put(x, data);
        access.run(op);
        out.iter()
            .map(|(val, weights)| {
                access
                    .get(*val)
                    .iter()
                    .zip(weights)
                    .map(|(a, b)| a * b)
                    .sum::<f64>()
            })
            .sum()
    }

    /// Asserts that `gradient` is that of the weighted sum of outputs of `op` with respect to `x`, by central differences.
    fn assert_gradient(&mut self, op: &Op, x: Val, gradient: &[f64], out: &[(Val, Vec<f64>)]) {
        let base = self.access().get(x);
        let h = 1e-5;
        for i in 0..base.len() {
            let mut moved = base.clone();
            moved[i] = base[i] + h;
            let up = self.probe(op, x, &moved, out);
            moved[i] = base[i] - h;
            let down = self.probe(op, x, &moved, out);
            let numeric = (up - down) / (2.0 * h);
            let error = (numeric - gradient[i]).abs();
            assert!(
                error < 1e-8 * (1.0 + numeric.abs()),
                "{i}: {numeric} {}",
                gradient[i]
            );
        }
        self.access().put(x, &base);
    }
}

fn close(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()), "{i}: {a} {b}");
    }
}

#[test]
fn gelu_gradient_is_the_derivative() {
    for i in -400..400 {
        let x = f64::from(i) / 50.0;
        let numeric = (math::gelu(x + 1e-5) - math::gelu(x - 1e-5)) / 2e-5;
        assert!((numeric - math::gelu_gradient(x)).abs() < 1e-9, "{x}");
    }
    // Value of torch.nn.functional.gelu(x, approximate="tanh") in f64.
    assert!((math::gelu(1.0) - 0.841_191_990_608_303_1).abs() < 1e-12);
}

#[test]
fn gemm_in_each_orientation_equals_its_definition() {
    let (m, n, k) = (3, 4, 5);
    let (a, b) = (noise(1, m * k), noise(2, k * n));
    let transposed = |x: &[f64], rows: usize, columns: usize| -> Vec<f64> {
        (0..rows * columns)
            .map(|i| x[i % rows * columns + i / rows])
            .collect()
    };
    let mut expected = noise(3, m * n);
    for i in 0..m {
        for j in 0..n {
            expected[i * n + j] += (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum::<f64>();
        }
    }
    for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
        let a = if ta { transposed(&a, m, k) } else { a.clone() };
        let b = if tb { transposed(&b, k, n) } else { b.clone() };
        let mut c = noise(3, m * n);
        math::gemm(Product { m, n, k, ta, tb }, &a, &b, &mut c);
        close(&c, &expected);
    }
}

#[test]
fn epilogues_add_bias_activate_and_add_the_residual() {
    let (m, n, k) = (2, 3, 4);
    let mut bench = Bench::default();
    let [a, b, c, bias, pre, residual] = bench.reals([m * k, k * n, m * n, n, m * n, m * n]);
    bench.start();
    for (i, val) in [a, b, c, bias, residual].into_iter().enumerate() {
        let len = bench.program.val(val).len;
        bench.access().put(val, &noise(i as u64, len));
    }
    let mut run = |epilogue, accumulate, c_is_residual| {
        let residual_data = noise(4, m * n);
        bench.access().put(
            c,
            &if c_is_residual {
                residual_data
            } else {
                noise(2, m * n)
            },
        );
        let op = Op::Gemm {
            a,
            b,
            c,
            m,
            n,
            k,
            ta: false,
            tb: false,
            accumulate,
            epilogue,
        };
        bench.access().run(&op);
        (bench.access().get(c), bench.access().get(pre))
    };
    let plain = run(Epilogue::None, false, false).0;
    let old = noise(2, m * n);
    let sum = |a: &[f64], b: &[f64]| -> Vec<f64> {
        a.iter().zip(b.iter().cycle()).map(|(x, y)| x + y).collect()
    };
    close(&run(Epilogue::None, true, false).0, &sum(&plain, &old));
    let biased = sum(&plain, &noise(3, n));
    close(&run(Epilogue::Bias { bias }, false, false).0, &biased);
    let (act, kept) = run(Epilogue::BiasGelu { bias, pre }, false, false);
    close(&kept, &biased);
    close(
        &act,
        &biased.iter().map(|x| math::gelu(*x)).collect::<Vec<_>>(),
    );
    let expected = sum(&biased, &noise(4, m * n));
    close(
        &run(Epilogue::BiasResidual { bias, residual }, false, false).0,
        &expected,
    );
    close(
        &run(Epilogue::BiasResidual { bias, residual: c }, false, true).0,
        &expected,
    );
}

#[test]
fn norm_gradients_are_the_derivatives_and_add() {
    let (rows, width, eps) = (3, 5, 1e-3);
    let mut bench = Bench::default();
    let n = rows * width;
    let [x, gain, bias, out, stats, dy, dx, dgain, dbias] =
        bench.reals([n, width, width, n, 2 * rows, n, n, width, width]);
    bench.start();
    for (seed, val) in [(1, x), (2, gain), (3, bias), (4, dy)] {
        let len = bench.program.val(val).len;
        bench.access().put(val, &noise(seed, len));
    }
    let forward = Op::Norm {
        x,
        gain,
        bias,
        out,
        stats,
        rows,
        width,
        eps,
    };
    bench.access().run(&forward);
    let backward = |add| Op::NormGrad {
        x,
        gain,
        stats,
        dy,
        dx,
        dgain,
        dbias,
        rows,
        width,
        add,
    };
    bench.access().put(dx, &noise(9, n));
    bench.access().run(&backward(false));
    let first = [dx, dgain, dbias].map(|v| bench.access().get(v));
    let weights = [(out, noise(4, n))];
    for (val, gradient) in [x, gain, bias].into_iter().zip(&first) {
        bench.assert_gradient(&forward, val, gradient, &weights);
    }
    bench.access().run(&forward);
    bench.access().run(&backward(true));
    let second = [dx, dgain, dbias].map(|v| bench.access().get(v));
    for (first, second) in first.iter().zip(&second) {
        close(second, &first.iter().map(|v| 2.0 * v).collect::<Vec<_>>());
    }
}

#[test]
fn attention_gradient_is_the_derivative_with_and_without_segments() {
    let s = Heads {
        batch: 2,
        seq: 5,
        heads: 2,
        dim: 3,
    };
    let (rows, n) = (10, 60);
    let ids = [0, 0, 1, 1, 1, 7, 7, 7, 7, 8];
    for packed in [false, true] {
        let mut bench = Bench::default();
        let [qkv, out, lse, dout, delta, dqkv] = bench.reals([3 * n, n, 20, n, 20, 3 * n]);
        let segments = packed.then(|| bench.val(Region::Tokens, rows));
        bench.start();
        bench.access().put(qkv, &noise(1, 3 * n));
        bench.access().put(dout, &noise(2, n));
        bench.access().put(dqkv, &noise(3, 3 * n));
        if let Some(segments) = segments {
            bench.put_ids(segments, &ids);
        }
        let Heads {
            batch,
            seq,
            heads,
            dim: head_dim,
        } = s;
        let forward = Op::Attention {
            qkv,
            out,
            lse,
            segments,
            batch,
            seq,
            heads,
            head_dim,
        };
        bench.access().run(&forward);
        let backward = Op::AttentionGrad {
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
        bench.access().run(&backward);
        let gradient = bench.access().get(dqkv);
        bench.assert_gradient(&forward, qkv, &gradient, &[(out, noise(2, n))]);
        // The first row of a segment sees itself only: its output is its value.
        let first = if packed { 2 } else { 0 };
        let (out, qkv) = (bench.access().get(out), bench.access().get(qkv));
        close(
            &out[first * 6..first * 6 + 6],
            &qkv[first * 18 + 12..first * 18 + 18],
        );
    }
}

#[test]
fn decoding_position_by_position_equals_attention() {
    let s = Heads {
        batch: 2,
        seq: 4,
        heads: 2,
        dim: 3,
    };
    let qkv = noise(5, 2 * 4 * 3 * 6);
    let (mut out, mut lse) = (vec![0.0; 48], vec![0.0; 16]);
    math::attention(s, &qkv, None, &mut out, &mut lse);
    let (mut keys, mut values) = (noise(6, 48), noise(7, 48));
    for t in 0..4 {
        let rows: Vec<f64> = [0, 1]
            .into_iter()
            .flat_map(|b| qkv[(b * 4 + t) * 18..][..18].to_vec())
            .collect();
        let mut one = vec![0.0; 12];
        math::decode(s, &rows, &[t as u32; 2], &mut keys, &mut values, &mut one);
        for b in 0..2 {
            close(&one[b * 6..][..6], &out[(b * 4 + t) * 6..][..6]);
        }
    }
}

#[test]
fn loss_gradient_is_the_derivative() {
    let (rows, vocab, scale) = (3, 7, 0.25);
    let mut bench = Bench::default();
    let [logits, stats, losses] = bench.reals([rows * vocab, 3 * rows, rows]);
    let targets = bench.val(Region::Tokens, rows);
    let sum = bench.val(Region::Scalars, 1);
    bench.start();
    let start = noise(1, rows * vocab);
    bench.put_ids(targets, &[6, 0, 3]);
    let mut loss = |data: &[f64], scale| {
        let mut access = bench.access();
        access.put(logits, data);
        access.put(sum, &[10.0]);
        access.run(&Op::RowStats {
            logits,
            targets,
            stats,
            rows,
            vocab,
        });
        access.run(&Op::LossGrad {
            logits,
            targets,
            stats,
            losses,
            rows,
            vocab,
            scale,
        });
        access.run(&Op::LossSum {
            losses,
            out: sum,
            rows,
        });
        (access.get(sum)[0] - 10.0, access.get(logits))
    };
    let (value, gradient) = loss(&start, scale);
    let softmax = |r: usize, c: usize| {
        let row = &start[r * vocab..][..vocab];
        row[c].exp() / row.iter().map(|x| x.exp()).sum::<f64>()
    };
    let expected = -(softmax(0, 6).ln() + softmax(1, 0).ln() + softmax(2, 3).ln());
    assert!((value - expected).abs() < 1e-12);
    for i in 0..rows * vocab {
        let mut moved = start.clone();
        moved[i] += 1e-5;
        let (up, untouched) = loss(&moved, 0.0);
        assert_eq!(untouched, moved);
        moved[i] -= 2e-5;
        let numeric = scale * (up - loss(&moved, 0.0).0) / 2e-5;
        assert!((numeric - gradient[i]).abs() < 1e-9, "{i}");
    }
}

#[test]
fn embedding_gradients_are_the_derivatives_and_tie_once() {
    let (rows, width, vocab, seq) = (4, 3, 5, 2);
    let mut bench = Bench::default();
    let n = rows * width;
    let [table, positions, out, dy, compact, dpositions, dtable] = bench.reals([
        vocab * width,
        seq * width,
        n,
        n,
        3 * width,
        seq * width,
        vocab * width,
    ]);
    let [tokens, at, slots, ids, count] =
        [rows, rows, rows, 3, 1].map(|len| bench.val(Region::Tokens, len));
    bench.start();
    bench.put_ids(tokens, &[4, 1, 4, 4]);
    bench.put_ids(at, &[0, 1, 0, 1]);
    bench.put_ids(slots, &[0, 1, 0, 0]);
    bench.put_ids(ids, &[4, 1, 0]);
    bench.put_ids(count, &[2]);
    bench.access().put(table, &noise(1, vocab * width));
    bench.access().put(positions, &noise(2, seq * width));
    bench.access().put(dy, &noise(3, n));
    let forward = Op::Embed {
        tokens,
        at,
        table,
        positions,
        out,
        rows,
        width,
    };
    let mut access = bench.access();
    access.run(&Op::EmbedGrad {
        slots,
        at,
        dy,
        rows_grad: compact,
        dpositions,
        rows,
        width,
    });
    for _ in 0..2 {
        // The second time the compact rows are zero, so nothing is added twice.
        access.run(&Op::TieEmbeddings {
            ids,
            count,
            rows_grad: compact,
            dtable,
            width,
        });
    }
    let gradients = [dtable, dpositions].map(|v| access.get(v));
    for (val, gradient) in [table, positions].into_iter().zip(&gradients) {
        bench.assert_gradient(&forward, val, gradient, &[(out, noise(3, n))]);
    }
}

#[test]
fn adamw_follows_its_definition_and_clears_the_gradient() {
    // Two steps of torch.optim.AdamW in f64: p = 0.5, gradients 0.2 and -0.4, lr 0.1, betas (0.9, 0.99), eps 1e-8, decay 0.1.
    let mut bench = Bench::default();
    let [p, g, m, v] = bench.reals([2; 4]);
    let scalars = bench.val(Region::Scalars, AdamScalars::LEN);
    bench.start();
    bench.access().put(p, &[0.5, 0.5]);
    let (mut pm, mut mm, mut vm) = (0.5, 0.0, 0.0);
    for (t, gradient) in [(1, 0.2), (2, -0.4)] {
        let (bc1, bc2) = (1.0 - 0.9f64.powi(t), 1.0 - 0.99f64.powi(t));
        let s = AdamScalars {
            gscale: 0.5,
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.1,
            bc1,
            bc2,
        };
        let mut access = bench.access();
        access.put(scalars, &s.to_array());
        access.put(g, &[2.0 * gradient; 2]);
        access.run(&Op::AdamW {
            p,
            g,
            m,
            v,
            scalars,
            len: 1,
            decay: true,
            lr_mult: 1.0,
        });
        pm *= 1.0 - 0.1 * 0.1;
        mm = 0.9 * mm + 0.1 * gradient;
        vm = 0.99 * vm + 0.01 * gradient * gradient;
        pm -= 0.1 * (mm / bc1) / ((vm / bc2).sqrt() + 1e-8);
        close(&access.get(p), &[pm, 0.5]);
        close(&access.get(g), &[0.0, 2.0 * gradient]);
    }
}

#[test]
fn sums_follow_rows_and_blocks() {
    let mut bench = Bench::default();
    let len = SQUARES_BLOCK + 3;
    let [x, columns] = bench.reals([len, 2]);
    let out = bench.val(Region::Scalars, 2);
    bench.start();
    let data = noise(1, len);
    let mut access = bench.access();
    access.put(x, &data);
    access.put(columns, &[1.0, 2.0]);
    access.run(&Op::SumSquares { x, out, len });
    access.run(&Op::ColumnSum {
        x,
        out: columns,
        rows: 3,
        width: 2,
    });
    let squares = |s: &[f64]| s.iter().map(|v| v * v).sum::<f64>();
    assert_eq!(
        access.get(out),
        [
            squares(&data[..SQUARES_BLOCK]),
            squares(&data[SQUARES_BLOCK..])
        ]
    );
    close(
        &access.get(columns),
        &[
            1.0 + data[0] + data[2] + data[4],
            2.0 + data[1] + data[3] + data[5],
        ],
    );
    access.run(&Op::Zero { x, len: 2 });
    assert_eq!(access.get(x)[..3], [0.0, 0.0, data[2]]);
}

#[test]
fn slots_are_copies_and_grads_may_be_given() {
    let mut device = Reference::new();
    let sizes = Sizes {
        grads: 4,
        kept: 2,
        slots: 2,
        ..Sizes::default()
    };
    let given = Memory::private(32).unwrap();
    device.reserve(&sizes, Some(given.clone())).unwrap();
    let vals = vec![
        ValInfo {
            name: "kept".into(),
            region: Region::Kept,
            offset: 0,
            len: 2,
        },
        ValInfo {
            name: "grad".into(),
            region: Region::Grads,
            offset: 1,
            len: 2,
        },
    ];
    let sum = Op::ColumnSum {
        x: Val(0),
        out: Val(1),
        rows: 1,
        width: 2,
    };
    let program = Program {
        ops: vec![Step {
            name: "sum".into(),
            op: sum,
        }],
        vals,
    };
    let bytes = |x: [f64; 2]| x.map(f64::to_ne_bytes).concat();
    device.write(Region::Kept, 16, &bytes([3.0, 4.0]));
    device.launch(&program, &sum, Frame { slot: 1 }).unwrap();
    device.launch(&program, &sum, Frame { slot: 0 }).unwrap();
    let mut out = vec![0; 16];
    device.read(Region::Grads, 8, &mut out);
    assert_eq!(out, bytes([3.0, 4.0]));
    // SAFETY: 32 bytes were mapped; nothing else uses them.
    let shared = unsafe { std::slice::from_raw_parts(given.as_ptr().cast::<f64>(), 4) };
    assert_eq!(shared, [0.0, 3.0, 4.0, 0.0]);
}
