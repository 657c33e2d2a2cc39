//! Operations on rows: norm, loss, embedding, column sums.

use super::{Random, Rig, widen};
use crate::blueprint::program::Op;

const SHAPES: [(usize, usize); 6] = [(1, 1), (3, 7), (130, 33), (65, 64), (9, 130), (200, 100)];

#[test]
fn norm_and_its_gradient_equal_the_naive_ones() {
    let mut random = Random::new(9);
    let eps = 1e-5;
    for (rows, width) in SHAPES {
        let n = rows * width;
        let x: Vec<f32> = random.reals(n).iter().map(|x| 2.0 * x + 5.0).collect();
        let (g, b, dy) = (random.reals(width), random.reals(width), random.reals(n));
        let base = random.reals(n);
        let (x64, g64) = (widen(&x), widen(&g));
        let mut stats = vec![];
        let (mut hat, mut y, mut dx) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        let (mut dgain, mut dbias) = (widen(&g), widen(&b));
        for r in 0..rows {
            let row = &x64[r * width..(r + 1) * width];
            let mean = row.iter().sum::<f64>() / width as f64;
            let var = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / width as f64;
            let rstd = 1.0 / (var + eps).sqrt();
            stats.extend([mean, rstd]);
            let (mut sum, mut dot) = (0.0, 0.0);
            for j in 0..width {
                let i = r * width + j;
                let d = f64::from(dy[i]);
                hat[i] = (x64[i] - mean) * rstd;
                y[i] = hat[i] * g64[j] + f64::from(b[j]);
                dgain[j] += d * hat[i];
                dbias[j] += d;
                sum += d * g64[j];
                dot += d * g64[j] * hat[i];
            }
            for (j, gain) in g64.iter().enumerate() {
                let (i, w) = (r * width + j, width as f64);
                dx[i] = rstd * (f64::from(dy[i]) * gain - sum / w - hat[i] * dot / w);
            }
        }
        let narrow: Vec<f32> = stats.iter().map(|x| *x as f32).collect();
        let mut rig = Rig::default();
        let (vx, gain, bias) = (rig.reals(&x), rig.reals(&g), rig.reals(&b));
        let (out, vstats) = (rig.reals(&vec![0.0; n]), rig.reals(&narrow));
        let (vdy, vdx) = (rig.reals(&dy), rig.reals(&base));
        let (vdgain, vdbias) = (rig.reals(&g), rig.reals(&b));
        let op = Op::Norm {
            x: vx,
            gain,
            bias,
            out,
            stats: vstats,
            rows,
            width,
            eps,
        };
        // A row of one element has no variance: rstd is 316 and multiplies the rounding of the mean.
        rig.check(&op, &[(out, y), (vstats, stats)], 5e-6);
        for add in [false, true] {
            let want: Vec<f64> = dx
                .iter()
                .zip(&base)
                .map(|(d, b)| d + if add { f64::from(*b) } else { 0.0 })
                .collect();
            let op = Op::NormGrad {
                x: vx,
                gain,
                stats: vstats,
                dy: vdy,
                dx: vdx,
                dgain: vdgain,
                dbias: vdbias,
                rows,
                width,
                add,
            };
            rig.check(
                &op,
                &[
                    (vdx, want),
                    (vdgain, dgain.clone()),
                    (vdbias, dbias.clone()),
                ],
                2e-5,
            );
        }
    }
}

#[test]
fn column_sums_equal_the_naive_ones() {
    let mut random = Random::new(10);
    for (rows, width) in SHAPES {
        let (x, start) = (random.reals(rows * width), random.reals(width));
        let mut want = widen(&start);
        for (i, x) in x.iter().enumerate() {
            want[i % width] += f64::from(*x);
        }
        let mut rig = Rig::default();
        let (x, out) = (rig.reals(&x), rig.reals(&start));
        rig.check(
            &Op::ColumnSum {
                x,
                out,
                rows,
                width,
            },
            &[(out, want)],
            1e-6,
        );
    }
}

#[test]
fn loss_and_its_gradient_equal_the_naive_ones() {
    let mut random = Random::new(11);
    for (rows, vocab) in SHAPES {
        let x: Vec<f32> = random.reals(rows * vocab).iter().map(|x| 9.0 * x).collect();
        let hits = random.indices(rows, vocab);
        let (mut stats, mut losses, mut grad) = (vec![], vec![], vec![]);
        let scale = 0.25;
        for (r, row) in widen(&x).chunks(vocab).enumerate() {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
            let hit = hits[r] as usize;
            stats.extend([max, sum, row[hit]]);
            losses.push(max + sum.ln() - row[hit]);
            grad.extend(
                row.iter().enumerate().map(|(j, x)| {
                    scale * ((x - max).exp() / sum - if j == hit { 1.0 } else { 0.0 })
                }),
            );
        }
        let narrow: Vec<f32> = stats.iter().map(|x| *x as f32).collect();
        let mut rig = Rig::default();
        let (logits, targets) = (rig.reals(&x), rig.index(&hits));
        let (vstats, vlosses) = (rig.reals(&narrow), rig.reals(&vec![0.0; rows]));
        rig.check(
            &Op::RowStats {
                logits,
                targets,
                stats: vstats,
                rows,
                vocab,
            },
            &[(vstats, stats)],
            1e-6,
        );
        let op = Op::LossGrad {
            logits,
            targets,
            stats: vstats,
            losses: vlosses,
            rows,
            vocab,
            scale,
        };
        rig.check(&op, &[(vlosses, losses.clone()), (logits, grad)], 1e-6);
        let op = Op::LossGrad {
            logits,
            targets,
            stats: vstats,
            losses: vlosses,
            rows,
            vocab,
            scale: 0.0,
        };
        rig.check(&op, &[(vlosses, losses)], 1e-6);
    }
}

#[test]
fn a_nan_logit_is_seen_in_statistics_and_loss() {
    for (vocab, bad) in [(3, 0), (40, 0), (40, 17), (40, 39), (101, 99)] {
        for poison in [f32::NAN, f32::INFINITY] {
            let mut x = vec![1.0; 2 * vocab];
            x[vocab + bad] = poison;
            let mut rig = Rig::default();
            let (logits, targets) = (rig.reals(&x), rig.index(&[1, 2]));
            let (stats, n) = (rig.reals(&[0.0; 6]), vocab as f64);
            let target = f64::from(x[vocab + 2]);
            let seen = [1.0, n, 1.0, f64::NAN, f64::NAN, target];
            let op = Op::RowStats {
                logits,
                targets,
                stats,
                rows: 2,
                vocab,
            };
            rig.check(&op, &[(stats, seen.to_vec())], 1e-6);
        }
    }
}

#[test]
fn losses_are_summed_in_f64() {
    let losses = vec![16_777_216.0f32, 1.0, 1.0, 1.0];
    let mut rig = Rig::default();
    let (losses, out) = (rig.reals(&losses), rig.sums(&[0.5]));
    let op = Op::LossSum {
        losses,
        out,
        rows: 4,
    };
    rig.check(&op, &[(out, vec![16_777_219.5])], 0.0);
}

#[test]
fn embedding_and_its_gradients_equal_the_naive_ones() {
    let mut random = Random::new(12);
    for (rows, width) in SHAPES {
        let (vocab, seq) = (11, 6);
        let (t, p) = (random.reals(vocab * width), random.reals(seq * width));
        let dy = random.reals(rows * width);
        let (ids, places) = (random.indices(rows, vocab), random.indices(rows, seq));
        let mut out = vec![0.0; rows * width];
        let (mut dt, mut dp) = (widen(&t), widen(&p));
        for r in 0..rows {
            for j in 0..width {
                let (a, b) = (ids[r] as usize * width + j, places[r] as usize * width + j);
                out[r * width + j] = f64::from(t[a]) + f64::from(p[b]);
                dt[a] += f64::from(dy[r * width + j]);
                dp[b] += f64::from(dy[r * width + j]);
            }
        }
        let mut rig = Rig::default();
        let (table, positions) = (rig.reals(&t), rig.reals(&p));
        let (tokens, at) = (rig.index(&ids), rig.index(&places));
        let (vdy, vout) = (rig.reals(&dy), rig.reals(&vec![0.0; rows * width]));
        let op = Op::Embed {
            tokens,
            at,
            table,
            positions,
            out: vout,
            rows,
            width,
        };
        rig.check(&op, &[(vout, out)], 1e-6);
        let op = Op::EmbedGrad {
            slots: tokens,
            at,
            dy: vdy,
            rows_grad: table,
            dpositions: positions,
            rows,
            width,
        };
        rig.check(&op, &[(table, dt), (positions, dp)], 3e-6);
    }
}

#[test]
fn tied_rows_are_added_once_and_zeroed() {
    let width = 70;
    let mut random = Random::new(13);
    let (rows, table) = (random.reals(4 * width), random.reals(9 * width));
    let ids = [7u32, 0, 3, 99];
    let mut want = widen(&table);
    for (i, id) in ids.iter().take(3).enumerate() {
        for j in 0..width {
            want[*id as usize * width + j] += f64::from(rows[i * width + j]);
        }
    }
    let mut left = vec![0.0; 3 * width];
    left.extend(widen(&rows[3 * width..]));
    let mut rig = Rig::default();
    let (ids, count) = (rig.index(&ids), rig.index(&[3]));
    let (rows_grad, dtable) = (rig.reals(&rows), rig.reals(&table));
    let op = Op::TieEmbeddings {
        ids,
        count,
        rows_grad,
        dtable,
        width,
    };
    rig.check(&op, &[(dtable, want), (rows_grad, left)], 1e-6);
}
