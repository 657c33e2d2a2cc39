//! The operations in f64 over slices, written for reading: one loop nest each, sums in index order.

use std::f64::consts::FRAC_1_SQRT_2;
use std::f64::consts::FRAC_2_SQRT_PI;

/// sqrt(2 / pi), of the tanh form of GELU.
const GELU_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
const GELU_CUBIC: f64 = 0.044715;

/// GELU, tanh form (Hendrycks and Gimpel, arXiv 1606.08415).
pub fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::tanh(GELU_SCALE * (x + GELU_CUBIC * x * x * x)))
}

/// Derivative of [`gelu`].
pub fn gelu_gradient(x: f64) -> f64 {
    let t = libm::tanh(GELU_SCALE * (x + GELU_CUBIC * x * x * x));
    let inner = GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * x * x);
    0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
}

/// Layout of a matrix product: C \[m, n\] of op(A) \[m, k\], op(B) \[k, n\].
#[derive(Debug, Clone, Copy)]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub ta: bool,
    pub tb: bool,
}

/// c += op(a) op(b).
pub fn gemm(p: Product, a: &[f64], b: &[f64], c: &mut [f64]) {
    let Product { m, n, k, ta, tb } = p;
    for i in 0..m {
        let row = &mut c[i * n..(i + 1) * n];
        if tb {
            for (j, out) in row.iter_mut().enumerate() {
                let mut sum = 0.0;
                for l in 0..k {
                    sum += a[if ta { l * m + i } else { i * k + l }] * b[j * k + l];
                }
                *out += sum;
            }
        } else {
            let mut sums = vec![0.0; n];
            for l in 0..k {
                let x = a[if ta { l * m + i } else { i * k + l }];
                for (sum, y) in sums.iter_mut().zip(&b[l * n..(l + 1) * n]) {
                    *sum += x * y;
                }
            }
            for (out, sum) in row.iter_mut().zip(sums) {
                *out += sum;
            }
        }
    }
}

/// LayerNorm; stats are (mean, 1 / sqrt(var + eps)) of each row.
pub fn norm(x: &[f64], gain: &[f64], bias: &[f64], out: &mut [f64], stats: &mut [f64], eps: f64) {
    let width = gain.len();
    for (r, row) in x.chunks_exact(width).enumerate() {
        let mean = row.iter().sum::<f64>() / width as f64;
        let var = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / width as f64;
        let rstd = 1.0 / (var + eps).sqrt();
        (stats[2 * r], stats[2 * r + 1]) = (mean, rstd);
        for j in 0..width {
            out[r * width + j] = (row[j] - mean) * rstd * gain[j] + bias[j];
        }
    }
}

/// Gradients of [`norm`], all added to.
pub fn norm_gradient(
    (x, gain, stats, dy): (&[f64], &[f64], &[f64], &[f64]),
    dx: &mut [f64],
    dgain: &mut [f64],
    dbias: &mut [f64],
) {
    let width = gain.len();
    for r in 0..x.len() / width {
        let (mean, rstd) = (stats[2 * r], stats[2 * r + 1]);
        let at = |j: usize| r * width + j;
        let hat = |j: usize| (x[at(j)] - mean) * rstd;
        let (mut sum, mut dot) = (0.0, 0.0);
        for j in 0..width {
            let d = dy[at(j)] * gain[j];
            sum += d;
            dot += d * hat(j);
            dgain[j] += dy[at(j)] * hat(j);
            dbias[j] += dy[at(j)];
        }
        let (sum, dot) = (sum / width as f64, dot / width as f64);
        for j in 0..width {
            dx[at(j)] += rstd * (dy[at(j)] * gain[j] - sum - hat(j) * dot);
        }
    }
}

/// Sizes of causal attention over \[B, T, H, D\].
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    pub batch: usize,
    pub seq: usize,
    pub heads: usize,
    pub dim: usize,
}

impl Heads {
    /// Index of the first element of part `part` (0 query, 1 key, 2 value) of a row in qkv \[B, T, 3, H, D\].
    fn qkv(&self, b: usize, t: usize, part: usize, h: usize) -> usize {
        (((b * self.seq + t) * 3 + part) * self.heads + h) * self.dim
    }

    /// Index of the first element of a row in \[B, T, H, D\].
    fn row(&self, b: usize, t: usize, h: usize) -> usize {
        ((b * self.seq + t) * self.heads + h) * self.dim
    }

    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        for b in 0..self.batch {
            for h in 0..self.heads {
                (0..self.seq).for_each(|t| f(b, h, t));
            }
        }
    }

    /// Positions that row `t` of sequence `b` sees.
    fn seen<'s>(
        &self,
        segments: Option<&'s [u32]>,
        b: usize,
        t: usize,
    ) -> impl Iterator<Item = usize> + use<'s> {
        let start = b * self.seq;
        (0..=t).filter(move |j| segments.is_none_or(|s| s[start + j] == s[start + t]))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Causal attention; see [`crate::blueprint::program::Op::Attention`].
pub fn attention(
    s: Heads,
    qkv: &[f64],
    segments: Option<&[u32]>,
    out: &mut [f64],
    lse: &mut [f64],
) {
    let scale = 1.0 / (s.dim as f64).sqrt();
    s.each(|b, h, t| {
        let part = |t, part| &qkv[s.qkv(b, t, part, h)..][..s.dim];
        let score = |j| scale * dot(part(t, 0), part(j, 1));
        let max = s
            .seen(segments, b, t)
            .map(score)
            .fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = s
            .seen(segments, b, t)
            .map(|j| libm::exp(score(j) - max))
            .sum();
        lse[(b * s.heads + h) * s.seq + t] = max + libm::log(sum);
        let out = &mut out[s.row(b, t, h)..][..s.dim];
        out.fill(0.0);
        for j in s.seen(segments, b, t) {
            let p = libm::exp(score(j) - max) / sum;
            out.iter_mut()
                .zip(part(j, 2))
                .for_each(|(o, v)| *o += p * v);
        }
    });
}

/// Gradient of [`attention`]; `dqkv` must be 0.
pub fn attention_gradient(
    s: Heads,
    (qkv, out, lse, dout): (&[f64], &[f64], &[f64], &[f64]),
    segments: Option<&[u32]>,
    delta: &mut [f64],
    dqkv: &mut [f64],
) {
    let scale = 1.0 / (s.dim as f64).sqrt();
    s.each(|b, h, t| {
        let part = |t, part| &qkv[s.qkv(b, t, part, h)..][..s.dim];
        let dout = &dout[s.row(b, t, h)..][..s.dim];
        let row = (b * s.heads + h) * s.seq + t;
        delta[row] = dot(dout, &out[s.row(b, t, h)..][..s.dim]);
        for j in s.seen(segments, b, t) {
            let p = libm::exp(scale * dot(part(t, 0), part(j, 1)) - lse[row]);
            let ds = scale * p * (dot(dout, part(j, 2)) - delta[row]);
            for d in 0..s.dim {
                dqkv[s.qkv(b, t, 0, h) + d] += ds * part(j, 1)[d];
                dqkv[s.qkv(b, j, 1, h) + d] += ds * part(t, 0)[d];
                dqkv[s.qkv(b, j, 2, h) + d] += p * dout[d];
            }
        }
    });
}

/// One new position a sequence; see [`crate::blueprint::program::Op::Decode`].
pub fn decode(
    s: Heads,
    qkv: &[f64],
    at: &[u32],
    keys: &mut [f64],
    values: &mut [f64],
    out: &mut [f64],
) {
    let scale = 1.0 / (s.dim as f64).sqrt();
    for (b, &at) in at.iter().enumerate() {
        let at = at as usize;
        for h in 0..s.heads {
            let part = |part: usize| &qkv[((b * 3 + part) * s.heads + h) * s.dim..][..s.dim];
            keys[s.row(b, at, h)..][..s.dim].copy_from_slice(part(1));
            values[s.row(b, at, h)..][..s.dim].copy_from_slice(part(2));
            let score = |t| scale * dot(part(0), &keys[s.row(b, t, h)..][..s.dim]);
            let max = (0..=at).map(score).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..=at).map(|t| libm::exp(score(t) - max)).sum();
            let out = &mut out[(b * s.heads + h) * s.dim..][..s.dim];
            out.fill(0.0);
            for t in 0..=at {
                let p = libm::exp(score(t) - max) / sum;
                let value = &values[s.row(b, t, h)..][..s.dim];
                out.iter_mut().zip(value).for_each(|(o, v)| *o += p * v);
            }
        }
    }
}

/// (maximum, sum of exp(logit - maximum), logit of the target) of each row.
pub fn row_stats(logits: &[f64], targets: &[u32], vocab: usize, stats: &mut [f64]) {
    for (r, row) in logits.chunks_exact(vocab).enumerate() {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        stats[3 * r] = max;
        stats[3 * r + 1] = row.iter().map(|x| libm::exp(x - max)).sum();
        stats[3 * r + 2] = row[targets[r] as usize];
    }
}

/// Token losses, and with a `scale` other than 0 the gradient of scale * loss in place of the logits.
pub fn loss_gradient(
    logits: &mut [f64],
    (targets, stats): (&[u32], &[f64]),
    vocab: usize,
    losses: &mut [f64],
    scale: f64,
) {
    for (r, row) in logits.chunks_exact_mut(vocab).enumerate() {
        let [max, sum, target] = [0, 1, 2].map(|i| stats[3 * r + i]);
        losses[r] = max + libm::log(sum) - target;
        if scale != 0.0 {
            row.iter_mut()
                .for_each(|x| *x = scale * (libm::exp(*x - max) / sum));
            row[targets[r] as usize] -= scale;
        }
    }
}
