//! Output head and loss, in chunks of rows so that logits need little memory; gradients are made at forward time.

use super::Emit;
use crate::blueprint::program::{Epilogue, Op, Val};

/// Rows of a chunk: a function of the vocabulary alone, because it fixes the order of sums.
/// About 16 Mi logits, 512 to 8192 rows.
pub fn chunk_rows(vocab: usize) -> usize {
    ((1 << 24) / vocab.max(1) / 64 * 64).clamp(512, 8192)
}

/// Adds the loss of `x` \[N, C\] against `targets` u32 \[N\] to `loss` f64 \[1\].
///
/// With `scale`, the factor on each token's gradient, also accumulates the gradient of the tied parameter and turns x into its own gradient.
pub fn loss(e: &mut Emit<'_, '_>, x: Val, targets: Val, loss: Val, scale: Option<f64>) {
    e.b.scope("head.");
    let (rows, width, vocab) = (e.rows(), e.model.hidden, e.model.vocab);
    let chunk = chunk_rows(vocab).min(rows);
    let logits = e.b.work_val("logits", chunk * vocab);
    let stats = e.b.work_val("stats", 3 * chunk);
    let losses = e.b.work_val("losses", rows);
    for from in (0..rows).step_by(chunk) {
        let to = (from + chunk).min(rows);
        let n = to - from;
        let x = e.b.part(x, from * width..to * width);
        let targets = e.b.part(targets, from..to);
        let table = e.b.weight(e.params.wte);
        let gemm = |a, b, c, [m, n, k]: [usize; 3], [ta, tb, accumulate]: [bool; 3]| Op::Gemm {
            a,
            b,
            c,
            m,
            n,
            k,
            ta,
            tb,
            accumulate,
            epilogue: Epilogue::None,
        };
        let op = gemm(x, table, logits, [n, vocab, width], [false, true, false]);
        e.b.emit("logits", op);
        let op = Op::RowStats {
            logits,
            targets,
            stats,
            rows: n,
            vocab,
        };
        e.b.emit("stats", op);
        let op = Op::LossGrad {
            logits,
            targets,
            stats,
            losses: e.b.part(losses, from..to),
            rows: n,
            vocab,
            scale: scale.unwrap_or(0.0),
        };
        e.b.emit("loss", op);
        if scale.is_some() {
            let dtable = e.b.grad(e.params.wte);
            let op = gemm(logits, x, dtable, [vocab, width, n], [true, false, true]);
            e.b.emit("dw", op);
            let op = gemm(logits, table, x, [n, width, vocab], [false, false, false]);
            e.b.emit("dx", op);
        }
    }
    e.b.emit(
        "sum",
        Op::LossSum {
            losses,
            out: loss,
            rows,
        },
    );
}

/// Logits \[N, V\] of x \[N, C\], into `logits`.
pub fn logits(e: &mut Emit<'_, '_>, x: Val, logits: Val) {
    e.b.scope("head.");
    let op = Op::Gemm {
        a: x,
        b: e.b.weight(e.params.wte),
        c: logits,
        m: e.rows(),
        n: e.model.vocab,
        k: e.model.hidden,
        ta: false,
        tb: true,
        accumulate: false,
        epilogue: Epilogue::None,
    };
    e.b.emit("logits", op);
}
