//! From an operation of a program to a kernel on checked addresses.
#![allow(unsafe_code)]

use super::activation::GeluGrad;
use super::adamw::{AdamW, Zero};
use super::arena::{Arena, Element};
use super::attention::{Attention, AttentionGrad, HEAD_DIM_MAX, Shape};
use super::decode::Decode;
use super::embed::{Embed, Scatter};
use super::engine::Engine;
use super::gemm::{Finish, Product};
use super::loss::{LossGrad, LossSum, RowStats};
use super::norm::{Norm, NormGrad, NormParameters};
use super::ptr::Ptr;
use super::reduce::{ColumnSum, SumSquares};
use crate::blueprint::program::{AdamScalars, Epilogue, Op, Program, SQUARES_BLOCK, Val};
use crate::device::{DeviceError, Frame};

/// An operation on its way to the engine.
pub(super) struct Launch<'a> {
    pub engine: &'a mut Engine,
    pub arena: &'a Arena,
    pub program: &'a Program,
    pub frame: Frame,
}

/// `a` x `b`, or more than anything holds.
fn area(a: usize, b: usize) -> usize {
    a.saturating_mul(b)
}

impl Launch<'_> {
    /// Address of `need` elements of `val`.
    fn at<T: Element>(&self, val: Val, need: usize) -> Result<Ptr<T>, DeviceError> {
        self.arena.resolve(self.program, val, self.frame, need)
    }

    /// Rows of `width` elements in the whole of `val`, and its address.
    fn table(&self, val: Val, width: usize) -> Result<(Ptr<f32>, usize), DeviceError> {
        let at = self.at(val, 0)?;
        Ok((at, self.program.val(val).len / width.max(1)))
    }

    /// Address of `count` indices, each below `limit`.
    fn indices(&self, val: Val, count: usize, limit: usize) -> Result<Ptr<u32>, DeviceError> {
        let at = self.at::<u32>(val, count)?;
        // SAFETY: `count` elements were checked, and no kernel is running.
        let values = unsafe { std::slice::from_raw_parts(at.get(), count) };
        match values.iter().position(|&v| v as usize >= limit) {
            None => Ok(at),
            Some(row) => Err(DeviceError::Index {
                name: self.program.val(val).name.clone(),
                value: values[row],
                row,
                limit,
            }),
        }
    }

    /// Carries out `op`.
    pub(super) fn op(&mut self, op: &Op) -> Result<(), DeviceError> {
        match *op {
            Op::Gemm { .. } => self.gemm(op),
            Op::Attention { .. } | Op::AttentionGrad { .. } | Op::Decode { .. } => self.attend(op),
            Op::Embed { .. } | Op::EmbedGrad { .. } | Op::TieEmbeddings { .. } => self.embed(op),
            Op::Norm { .. } | Op::NormGrad { .. } => self.norm(op),
            Op::RowStats { .. } | Op::LossGrad { .. } | Op::LossSum { .. } => self.loss(op),
            _ => self.elementwise(op),
        }
    }

    fn gemm(&mut self, op: &Op) -> Result<(), DeviceError> {
        let Op::Gemm {
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
        } = *op
        else {
            return Ok(());
        };
        if accumulate && epilogue != Epilogue::None {
            let name = self.program.val(c).name.clone();
            return Err(DeviceError::Unsupported {
                what: format!("an epilogue on the accumulated product `{name}`"),
            });
        }
        let finish = match epilogue {
            Epilogue::None => Finish::Nothing,
            Epilogue::Bias { bias } => Finish::Bias(self.at(bias, n)?),
            Epilogue::BiasGelu { bias, pre } => {
                Finish::BiasGelu(self.at(bias, n)?, self.at(pre, area(m, n))?)
            }
            Epilogue::BiasResidual { bias, residual } => {
                Finish::BiasResidual(self.at(bias, n)?, self.at(residual, area(m, n))?)
            }
        };
        let product = Product {
            m,
            n,
            k,
            a: self.at(a, area(m, k))?,
            b: self.at(b, area(k, n))?,
            c: self.at(c, area(m, n))?,
            ta,
            tb,
            accumulate,
            finish,
        };
        // SAFETY: all operands were resolved at their sizes.
        unsafe { self.engine.product(product) };
        Ok(())
    }

    fn attend(&mut self, op: &Op) -> Result<(), DeviceError> {
        match *op {
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
                let (shape, n, sums) = self.shape(batch, seq, heads, head_dim)?;
                let op = Attention {
                    qkv: self.at(qkv, area(3, n))?,
                    out: self.at(out, n)?,
                    lse: self.at(lse, sums)?,
                    segments: segments.map(|v| self.at(v, area(batch, seq))).transpose()?,
                    shape,
                    mr: self.engine.isa().tile().0,
                };
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&op) };
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
                let (shape, n, sums) = self.shape(batch, seq, heads, head_dim)?;
                let op = AttentionGrad {
                    qkv: self.at(qkv, area(3, n))?,
                    out: self.at(out, n)?,
                    lse: self.at(lse, sums)?,
                    dout: self.at(dout, n)?,
                    delta: self.at(delta, sums)?,
                    dqkv: self.at(dqkv, area(3, n))?,
                    segments: segments.map(|v| self.at(v, area(batch, seq))).transpose()?,
                    shape,
                };
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&op) };
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
                let (_, cached, _) = self.shape(batch, seq, heads, head_dim)?;
                let n = batch * heads * head_dim;
                let op = Decode {
                    qkv: self.at(qkv, area(3, n))?,
                    keys: self.at(keys, cached)?,
                    values: self.at(values, cached)?,
                    at: self.indices(at, batch, seq)?,
                    out: self.at(out, n)?,
                    batch,
                    seq,
                    heads,
                    head_dim,
                };
                // SAFETY: all operands were resolved at their sizes, positions checked.
                unsafe { self.engine.run(&op) };
            }
            _ => {}
        }
        Ok(())
    }

    /// Shape, elements of \[B, T, H, D\] and of \[B, H, T\].
    fn shape(
        &self,
        batch: usize,
        seq: usize,
        heads: usize,
        head_dim: usize,
    ) -> Result<(Shape, usize, usize), DeviceError> {
        if head_dim > HEAD_DIM_MAX {
            return Err(DeviceError::Unsupported {
                what: format!("a head dimension of {head_dim} (at most {HEAD_DIM_MAX})"),
            });
        }
        let sums = area(area(batch, seq), heads);
        Ok((
            Shape {
                batch,
                seq,
                heads,
                head_dim,
            },
            area(sums, head_dim),
            sums,
        ))
    }

    fn embed(&mut self, op: &Op) -> Result<(), DeviceError> {
        match *op {
            Op::Embed {
                tokens,
                at,
                table,
                positions,
                out,
                rows,
                width,
            } => {
                let (table, vocab) = self.table(table, width)?;
                let (positions, seq) = self.table(positions, width)?;
                let op = Embed {
                    tokens: self.indices(tokens, rows, vocab)?,
                    at: self.indices(at, rows, seq)?,
                    table,
                    positions,
                    out: self.at(out, area(rows, width))?,
                    rows,
                    width,
                };
                // SAFETY: all operands were resolved at their sizes, indices checked.
                unsafe { self.engine.run(&op) };
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
                let dy = self.at(dy, area(rows, width))?;
                for (index, to) in [(slots, rows_grad), (at, dpositions)] {
                    let (to, limit) = self.table(to, width)?;
                    let index = self.indices(index, rows, limit)?;
                    let op = Scatter {
                        index,
                        from: dy,
                        to,
                        rows,
                        width,
                        clear: false,
                    };
                    // SAFETY: all operands were resolved at their sizes, indices checked.
                    unsafe { self.engine.run(&op) };
                }
            }
            Op::TieEmbeddings {
                ids,
                count,
                rows_grad,
                dtable,
                width,
            } => {
                let count = self.at::<u32>(count, 1)?;
                // SAFETY: one element was checked, and no kernel is running.
                let rows = unsafe { count.get().read() } as usize;
                let (to, limit) = self.table(dtable, width)?;
                let op = Scatter {
                    index: self.indices(ids, rows, limit)?,
                    from: self.at(rows_grad, area(rows, width))?,
                    to,
                    rows,
                    width,
                    clear: true,
                };
                // SAFETY: all operands were resolved at their sizes, indices checked.
                unsafe { self.engine.run(&op) };
            }
            _ => {}
        }
        Ok(())
    }

    fn norm(&mut self, op: &Op) -> Result<(), DeviceError> {
        match *op {
            Op::Norm {
                x,
                gain,
                bias,
                out,
                stats,
                rows,
                width,
                eps,
            } => {
                let n = area(rows, width);
                let op = Norm {
                    x: self.at(x, n)?,
                    gain: self.at(gain, width)?,
                    bias: self.at(bias, width)?,
                    out: self.at(out, n)?,
                    stats: self.at(stats, area(2, rows))?,
                    rows,
                    width,
                    eps: eps as f32,
                };
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&op) };
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
                let n = area(rows, width);
                let (x, dy, stats) = (
                    self.at(x, n)?,
                    self.at(dy, n)?,
                    self.at(stats, area(2, rows))?,
                );
                let parameters = NormParameters {
                    x,
                    stats,
                    dy,
                    dgain: self.at(dgain, width)?,
                    dbias: self.at(dbias, width)?,
                    rows,
                    width,
                };
                let (gain, dx) = (self.at(gain, width)?, self.at(dx, n)?);
                let op = NormGrad {
                    x,
                    gain,
                    stats,
                    dy,
                    dx,
                    rows,
                    width,
                    add,
                };
                // Parameters first: dx may stand in the place of dy.
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&parameters) };
                // SAFETY: as above.
                unsafe { self.engine.run(&op) };
            }
            _ => {}
        }
        Ok(())
    }

    fn loss(&mut self, op: &Op) -> Result<(), DeviceError> {
        match *op {
            Op::RowStats {
                logits,
                targets,
                stats,
                rows,
                vocab,
            } => {
                let op = RowStats {
                    logits: self.at(logits, area(rows, vocab))?,
                    targets: self.indices(targets, rows, vocab)?,
                    stats: self.at(stats, area(3, rows))?,
                    rows,
                    vocab,
                };
                // SAFETY: all operands were resolved at their sizes, targets checked.
                unsafe { self.engine.run(&op) };
            }
            Op::LossGrad {
                logits,
                targets,
                stats,
                losses,
                rows,
                vocab,
                scale,
            } => {
                let op = LossGrad {
                    logits: self.at(logits, area(rows, vocab))?,
                    targets: self.indices(targets, rows, vocab)?,
                    stats: self.at(stats, area(3, rows))?,
                    losses: self.at(losses, rows)?,
                    rows,
                    vocab,
                    scale: scale as f32,
                };
                // SAFETY: all operands were resolved at their sizes, targets checked.
                unsafe { self.engine.run(&op) };
            }
            Op::LossSum { losses, out, rows } => {
                let op = LossSum {
                    losses: self.at(losses, rows)?,
                    out: self.at(out, 1)?,
                    rows,
                };
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&op) };
            }
            _ => {}
        }
        Ok(())
    }

    fn elementwise(&mut self, op: &Op) -> Result<(), DeviceError> {
        match *op {
            Op::GeluGrad { pre, d, len } => {
                let op = GeluGrad {
                    pre: self.at(pre, len)?,
                    d: self.at(d, len)?,
                    len,
                };
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&op) };
            }
            Op::ColumnSum {
                x,
                out,
                rows,
                width,
            } => {
                let op = ColumnSum {
                    x: self.at(x, area(rows, width))?,
                    out: self.at(out, width)?,
                    rows,
                    width,
                };
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&op) };
            }
            Op::SumSquares { x, out, len } => {
                let op = SumSquares {
                    x: self.at(x, len)?,
                    out: self.at(out, len.div_ceil(SQUARES_BLOCK))?,
                    len,
                };
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&op) };
            }
            Op::AdamW {
                p,
                g,
                m,
                v,
                scalars,
                len,
                decay,
                lr_mult,
            } => {
                let places = [
                    self.at(p, len)?,
                    self.at(g, len)?,
                    self.at(m, len)?,
                    self.at(v, len)?,
                ];
                let scalars = self.at::<f64>(scalars, AdamScalars::LEN)?;
                // SAFETY: the scalars were checked, and no kernel is running.
                let scalars = unsafe { scalars.get().cast::<[f64; AdamScalars::LEN]>().read() };
                let op = AdamW::new(
                    places,
                    len,
                    AdamScalars::from_array(scalars),
                    decay,
                    lr_mult,
                );
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&op) };
            }
            Op::Zero { x, len } => {
                let op = Zero {
                    x: self.at(x, len)?,
                    len,
                };
                // SAFETY: all operands were resolved at their sizes.
                unsafe { self.engine.run(&op) };
            }
            _ => {}
        }
        Ok(())
    }
}
