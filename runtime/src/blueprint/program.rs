//! Programs: lists of operations over values with fixed places. A device carries out this enum and nothing else.
//!
//! Letters: B sequences of a micro-batch, T sequence length, N = B x T rows, C width, H heads, D = C / H, V vocabulary, F feed-forward width.

use serde::{Deserialize, Serialize};

/// A class of memory. Offsets and lengths are in elements of the region's own type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Region {
    /// Parameters, real.
    Weights,
    /// Gradients, real, same offsets as `Weights`. A comm backend may place this region.
    Grads,
    /// First moments then second moments, real: each with the offsets of `Weights`.
    Moments,
    /// Values a backward pass needs, real; one copy a slot.
    Kept,
    /// Scratch of one program, real; at its start values that outlive programs, such as the compact embedding gradient.
    Work,
    /// Token ids, positions, embedding slots: u32; one copy a slot.
    Tokens,
    /// Sums, counts and optimizer scalars: f64.
    Scalars,
}

/// Index of a value in [`Program::vals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Val(pub u32);

/// A value's name and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValInfo {
    /// Such as `h.3.attn.qkv`.
    pub name: String,
    pub region: Region,
    /// In elements from the start of the region (of the slot, for `Kept` and `Tokens`).
    pub offset: usize,
    /// In elements.
    pub len: usize,
}

/// What a GEMM does with its accumulators before it stores them. Rounding points are part of the program, never of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    /// Store (or add to) C.
    None,
    /// C = A B + bias, bias \[n\] over rows.
    Bias { bias: Val },
    /// pre = A B + bias; C = gelu(pre), tanh form. `pre` has the shape of C.
    BiasGelu { bias: Val, pre: Val },
    /// C = A B + bias + residual; `residual` has the shape of C and may be C itself.
    BiasResidual { bias: Val, residual: Val },
}

/// One operation. All matrices are dense and row-major; `rows` x `width` unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// out\[r\] = table\[tokens\[r\]\] + positions\[at\[r\]\]; tokens, at: u32 \[rows\]; table \[V, C\], positions \[T, C\], out \[rows, C\].
    Embed {
        tokens: Val,
        at: Val,
        table: Val,
        positions: Val,
        out: Val,
        rows: usize,
        width: usize,
    },
    /// rows_grad\[slots\[r\]\] += dy\[r\]; dpositions\[at\[r\]\] += dy\[r\], each destination row summed in increasing r.
    /// `rows_grad` is compact: one row for each distinct token of the rank's step, `slots` u32 \[rows\] indexes it.
    EmbedGrad {
        slots: Val,
        at: Val,
        dy: Val,
        rows_grad: Val,
        dpositions: Val,
        rows: usize,
        width: usize,
    },
    /// dtable\[ids\[i\]\] += rows_grad\[i\] for i < count, then rows_grad is zeroed; ids u32, `count` u32 \[1\].
    TieEmbeddings {
        ids: Val,
        count: Val,
        rows_grad: Val,
        dtable: Val,
        width: usize,
    },
    /// LayerNorm: stats \[rows, 2\] = (mean, 1 / sqrt(var + eps)); out = (x - mean) * rstd * gain + bias.
    Norm {
        x: Val,
        gain: Val,
        bias: Val,
        out: Val,
        stats: Val,
        rows: usize,
        width: usize,
        eps: f64,
    },
    /// dx (+)= gradient of [`Op::Norm`] with respect to x; dgain += , dbias += over rows in fixed blocks. `add` adds to dx.
    NormGrad {
        x: Val,
        gain: Val,
        stats: Val,
        dy: Val,
        dx: Val,
        dgain: Val,
        dbias: Val,
        rows: usize,
        width: usize,
        add: bool,
    },
    /// C \[m, n\] (+)= op(A) \[m, k\] op(B) \[k, n\]; `ta`: A is stored \[k, m\]; `tb`: B is stored \[n, k\].
    Gemm {
        a: Val,
        b: Val,
        c: Val,
        m: usize,
        n: usize,
        k: usize,
        ta: bool,
        tb: bool,
        accumulate: bool,
        epilogue: Epilogue,
    },
    /// d = d * gelu'(pre), in place, tanh form.
    GeluGrad { pre: Val, d: Val, len: usize },
    /// out \[width\] += sum over rows of x, in fixed blocks of rows.
    ColumnSum {
        x: Val,
        out: Val,
        rows: usize,
        width: usize,
    },
    /// Causal attention; qkv \[B, T, 3, H, D\], out \[B, T, H, D\], lse \[B, H, T\] = log sum exp of the scaled scores (scale 1/sqrt(D)).
    /// `segments` u32 \[B, T\]: a row sees only rows of its own segment.
    Attention {
        qkv: Val,
        out: Val,
        lse: Val,
        segments: Option<Val>,
        batch: usize,
        seq: usize,
        heads: usize,
        head_dim: usize,
    },
    /// dqkv = gradient of [`Op::Attention`]; `delta` \[B, H, T\] is scratch for the row sums of dout * out.
    AttentionGrad {
        qkv: Val,
        out: Val,
        lse: Val,
        dout: Val,
        delta: Val,
        dqkv: Val,
        segments: Option<Val>,
        batch: usize,
        seq: usize,
        heads: usize,
        head_dim: usize,
    },
    /// One new row a sequence: writes k and v of qkv \[B, 3, H, D\] to keys, values \[B, T, H, D\] at position at\[b\], then out \[B, H, D\] over positions 0..=at\[b\].
    Decode {
        qkv: Val,
        keys: Val,
        values: Val,
        at: Val,
        out: Val,
        batch: usize,
        seq: usize,
        heads: usize,
        head_dim: usize,
    },
    /// stats \[rows, 3\] = (row maximum m, sum of exp(logit - m), logit of the target).
    RowStats {
        logits: Val,
        targets: Val,
        stats: Val,
        rows: usize,
        vocab: usize,
    },
    /// losses\[r\] = m + ln(sum) - target logit, and, if `scale` is not 0, logits become scale * (softmax - onehot) in place.
    LossGrad {
        logits: Val,
        targets: Val,
        stats: Val,
        losses: Val,
        rows: usize,
        vocab: usize,
        scale: f64,
    },
    /// out\[0\] += sum of losses in f64, in row order.
    LossSum { losses: Val, out: Val, rows: usize },
    /// out\[i\] = sum of squares in f64 of elements 64 Ki i .. 64 Ki (i + 1) of x ([`SQUARES_BLOCK`]); `out` is \[ceil(len / 64 Ki)\].
    SumSquares { x: Val, out: Val, len: usize },
    /// AdamW on `len` elements, then g = 0. `scalars` f64 \[8\]: see [`AdamScalars`]. `lr_mult` multiplies the learning rate, `decay` switches weight decay.
    AdamW {
        p: Val,
        g: Val,
        m: Val,
        v: Val,
        scalars: Val,
        len: usize,
        decay: bool,
        lr_mult: f32,
    },
    /// x = 0.
    Zero { x: Val, len: usize },
}

/// Elements of one block of the gradient norm, fixed so that the norm does not depend on layout or threads.
pub const SQUARES_BLOCK: usize = 64 * 1024;

/// Order of the f64 scalars that [`Op::AdamW`] reads.
/// g' = gscale g; m = b1 m + (1 - b1) g'; v = b2 v + (1 - b2) g'^2; p -= lr wd p; p -= lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamScalars {
    /// Factor on the gradient: clip, and expected over actual tokens.
    pub gscale: f64,
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    /// 1 - beta1^t.
    pub bc1: f64,
    /// 1 - beta2^t.
    pub bc2: f64,
}

impl AdamScalars {
    /// Number of scalars.
    pub const LEN: usize = 8;

    /// In the order of the fields.
    pub fn to_array(self) -> [f64; Self::LEN] {
        [
            self.gscale,
            self.lr,
            self.beta1,
            self.beta2,
            self.eps,
            self.weight_decay,
            self.bc1,
            self.bc2,
        ]
    }

    /// The inverse of [`AdamScalars::to_array`].
    pub fn from_array(a: [f64; Self::LEN]) -> Self {
        let [gscale, lr, beta1, beta2, eps, weight_decay, bc1, bc2] = a;
        AdamScalars {
            gscale,
            lr,
            beta1,
            beta2,
            eps,
            weight_decay,
            bc1,
            bc2,
        }
    }
}

/// A named operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Such as `h.3.attn.qkv`, for errors and traces.
    pub name: String,
    pub op: Op,
}

/// Operations in order over values with places.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    pub ops: Vec<Step>,
    pub vals: Vec<ValInfo>,
}

impl Program {
    /// Name and place of `val`.
    pub fn val(&self, val: Val) -> &ValInfo {
        &self.vals[val.0 as usize]
    }
}
