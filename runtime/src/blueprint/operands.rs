//! What each operation reads and writes: the one description that lifetimes, bounds and device checks follow.

use super::program::{Epilogue, Op, SQUARES_BLOCK, Val};

/// What an operation does with an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Every element is overwritten, none is read.
    Write,
    /// Read, then written.
    Update,
}

/// Type of an operand's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The device's real type.
    Real,
    /// u32.
    Index,
    /// f64 on every device.
    Sum,
}

/// One operand of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    pub val: Val,
    /// Elements that may be touched, from the start of the value.
    pub len: usize,
    pub access: Access,
    pub kind: Kind,
}

impl Op {
    /// Calls `see` with each operand; a value used twice is seen twice.
    pub fn operands(&self, mut see: impl FnMut(Operand)) {
        use Access::{Read, Update, Write};
        let mut all = |access, kind, list: &[(Val, usize)]| {
            for &(val, len) in list {
                see(Operand {
                    val,
                    len,
                    access,
                    kind,
                });
            }
        };
        // Tables indexed by data (`Embed`, `EmbedGrad`, `TieEmbeddings`) count with length 0: their bound is the value's own length.
        match *self {
            Op::Embed {
                tokens,
                at,
                table,
                positions,
                out,
                rows,
                width,
            } => {
                all(Read, Kind::Index, &[(tokens, rows), (at, rows)]);
                all(Read, Kind::Real, &[(table, 0), (positions, 0)]);
                all(Write, Kind::Real, &[(out, rows * width)]);
            }
            Op::EmbedGrad {
                slots,
                at,
                dy,
                rows_grad,
                dpositions,
                rows,
                width,
            } => {
                all(Read, Kind::Index, &[(slots, rows), (at, rows)]);
                all(Read, Kind::Real, &[(dy, rows * width)]);
                all(Update, Kind::Real, &[(rows_grad, 0), (dpositions, 0)]);
            }
            Op::TieEmbeddings {
                ids,
                count,
                rows_grad,
                dtable,
                width: _,
            } => {
                all(Read, Kind::Index, &[(ids, 0), (count, 1)]);
                all(Update, Kind::Real, &[(rows_grad, 0), (dtable, 0)]);
            }
            Op::Norm {
                x,
                gain,
                bias,
                out,
                stats,
                rows,
                width,
                eps: _,
            } => {
                all(
                    Read,
                    Kind::Real,
                    &[(x, rows * width), (gain, width), (bias, width)],
                );
                all(Write, Kind::Real, &[(out, rows * width), (stats, 2 * rows)]);
            }
            Op::NormGrad {
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
            } => {
                let n = rows * width;
                all(
                    Read,
                    Kind::Real,
                    &[(x, n), (gain, width), (stats, 2 * rows), (dy, n)],
                );
                all(if add { Update } else { Write }, Kind::Real, &[(dx, n)]);
                all(Update, Kind::Real, &[(dgain, width), (dbias, width)]);
            }
            Op::Gemm {
                a,
                b,
                c,
                m,
                n,
                k,
                accumulate,
                epilogue,
                ..
            } => {
                all(Read, Kind::Real, &[(a, m * k), (b, k * n)]);
                match epilogue {
                    Epilogue::None => {}
                    Epilogue::Bias { bias } => all(Read, Kind::Real, &[(bias, n)]),
                    Epilogue::BiasGelu { bias, pre } => {
                        all(Read, Kind::Real, &[(bias, n)]);
                        all(Write, Kind::Real, &[(pre, m * n)]);
                    }
                    Epilogue::BiasResidual { bias, residual } => {
                        all(Read, Kind::Real, &[(bias, n), (residual, m * n)]);
                    }
                }
                all(
                    if accumulate { Update } else { Write },
                    Kind::Real,
                    &[(c, m * n)],
                );
            }
            Op::GeluGrad { pre, d, len } => {
                all(Read, Kind::Real, &[(pre, len)]);
                all(Update, Kind::Real, &[(d, len)]);
            }
            Op::ColumnSum {
                x,
                out,
                rows,
                width,
            } => {
                all(Read, Kind::Real, &[(x, rows * width)]);
                all(Update, Kind::Real, &[(out, width)]);
            }
            Op::Attention {
                qkv,
                out,
                lse,
                segments,
                batch,
                seq,
                heads,
                head_dim,
            } => {
                let rows = batch * seq;
                let n = rows * heads * head_dim;
                all(Read, Kind::Real, &[(qkv, 3 * n)]);
                all(Read, Kind::Index, segments.map(|s| (s, rows)).as_slice());
                all(Write, Kind::Real, &[(out, n), (lse, rows * heads)]);
            }
            Op::AttentionGrad {
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
            } => {
                let rows = batch * seq;
                let n = rows * heads * head_dim;
                all(
                    Read,
                    Kind::Real,
                    &[(qkv, 3 * n), (out, n), (lse, rows * heads), (dout, n)],
                );
                all(Read, Kind::Index, segments.map(|s| (s, rows)).as_slice());
                all(Write, Kind::Real, &[(delta, rows * heads), (dqkv, 3 * n)]);
            }
            Op::Decode {
                qkv,
                keys,
                values,
                at,
                out,
                batch,
                seq,
                heads,
                head_dim,
            } => {
                let n = batch * heads * head_dim;
                all(Read, Kind::Index, &[(at, batch)]);
                all(Read, Kind::Real, &[(qkv, 3 * n)]);
                all(Update, Kind::Real, &[(keys, n * seq), (values, n * seq)]);
                all(Write, Kind::Real, &[(out, n)]);
            }
            Op::RowStats {
                logits,
                targets,
                stats,
                rows,
                vocab,
            } => {
                all(Read, Kind::Real, &[(logits, rows * vocab)]);
                all(Read, Kind::Index, &[(targets, rows)]);
                all(Write, Kind::Real, &[(stats, 3 * rows)]);
            }
            Op::LossGrad {
                logits,
                targets,
                stats,
                losses,
                rows,
                vocab,
                scale: _,
            } => {
                all(Update, Kind::Real, &[(logits, rows * vocab)]);
                all(Read, Kind::Index, &[(targets, rows)]);
                all(Read, Kind::Real, &[(stats, 3 * rows)]);
                all(Write, Kind::Real, &[(losses, rows)]);
            }
            Op::LossSum { losses, out, rows } => {
                all(Read, Kind::Real, &[(losses, rows)]);
                all(Update, Kind::Sum, &[(out, 1)]);
            }
            Op::SumSquares { x, out, len } => {
                all(Read, Kind::Real, &[(x, len)]);
                all(Write, Kind::Sum, &[(out, len.div_ceil(SQUARES_BLOCK))]);
            }
            Op::AdamW {
                p,
                g,
                m,
                v,
                scalars,
                len,
                ..
            } => {
                all(
                    Update,
                    Kind::Real,
                    &[(p, len), (g, len), (m, len), (v, len)],
                );
                all(
                    Read,
                    Kind::Sum,
                    &[(scalars, super::program::AdamScalars::LEN)],
                );
            }
            Op::Zero { x, len } => all(Write, Kind::Real, &[(x, len)]),
        }
    }
}
