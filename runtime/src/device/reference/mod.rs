//! The naive f64 device: the twin of every operation, for proofs.
//!
//! Each operation copies its operands out, computes on slices ([`math`]) and copies results back.
#![allow(unsafe_code)]

pub mod math;
#[cfg(test)]
mod tests;

use super::{Device, DeviceError, Frame, Real, Sizes};
use crate::blueprint::memory::extent;
use crate::blueprint::program::{AdamScalars, Epilogue, Op, Program, Region, SQUARES_BLOCK, Val};
use crate::sys::region::Memory;
use math::{Heads, Product};

/// A device of one thread.
#[derive(Default)]
pub struct Reference {
    regions: Vec<Memory>,
    sizes: Sizes,
}

const REGIONS: [Region; 7] = [
    Region::Weights,
    Region::Grads,
    Region::Moments,
    Region::Kept,
    Region::Work,
    Region::Tokens,
    Region::Scalars,
];

fn element(region: Region) -> usize {
    if region == Region::Tokens { 4 } else { 8 }
}

impl Reference {
    /// A device without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn place(&self, program: &Program, val: Val, frame: Frame) -> (Region, usize, usize) {
        let info = program.val(val);
        let slot = match info.region {
            Region::Kept => self.sizes.kept,
            Region::Tokens => self.sizes.tokens,
            _ => 0,
        };
        let offset = frame.slot * slot + info.offset;
        (info.region, offset * element(info.region), info.len)
    }
}

/// One operation at work: gets and puts values.
struct Access<'a> {
    device: &'a mut Reference,
    program: &'a Program,
    frame: Frame,
}

impl Access<'_> {
    fn copy<T: Copy + Default>(&self, val: Val) -> Vec<T> {
        let (region, offset, len) = self.device.place(self.program, val, self.frame);
        assert_eq!(
            size_of::<T>(),
            element(region),
            "element type of {region:?}"
        );
        let memory = self.device.regions[region as usize].part(offset, len * size_of::<T>());
        let mut data = vec![T::default(); len];
        // SAFETY: `part` checked the bounds, the element type has the size asserted, and this thread alone uses the region
        // outside of collectives.
        unsafe {
            let from = memory.as_ptr().cast::<T>();
            std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), len);
        }
        data
    }

    fn get(&self, val: Val) -> Vec<f64> {
        self.copy(val)
    }

    fn ids(&self, val: Val) -> Vec<u32> {
        self.copy(val)
    }

    fn put(&mut self, val: Val, data: &[f64]) {
        let (region, offset, len) = self.device.place(self.program, val, self.frame);
        let len = len.min(data.len());
        assert_eq!(
            element(region),
            size_of::<f64>(),
            "element type of {region:?}"
        );
        let memory = self.device.regions[region as usize].part(offset, len * size_of::<f64>());
        // SAFETY: as in `copy`.
        unsafe {
            let into = memory.as_ptr().cast::<f64>();
            std::ptr::copy_nonoverlapping(data.as_ptr(), into, len);
        }
    }

    /// Gets, changes and puts back.
    fn change(&mut self, val: Val, f: impl FnOnce(&mut [f64])) {
        let mut data = self.get(val);
        f(&mut data);
        self.put(val, &data);
    }

    fn run(&mut self, op: &Op) {
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
                let (tokens, at) = (self.ids(tokens), self.ids(at));
                let (table, positions) = (self.get(table), self.get(positions));
                self.change(out, |out| {
                    for r in 0..rows {
                        let (t, p) = (tokens[r] as usize * width, at[r] as usize * width);
                        for j in 0..width {
                            out[r * width + j] = table[t + j] + positions[p + j];
                        }
                    }
                });
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
                let dy = self.get(dy);
                for (index, into) in [(slots, rows_grad), (at, dpositions)] {
                    let index = self.ids(index);
                    self.change(into, |into| {
                        for r in 0..rows {
                            add(
                                &mut into[index[r] as usize * width..][..width],
                                &dy[r * width..],
                            );
                        }
                    });
                }
            }
            Op::TieEmbeddings {
                ids,
                count,
                rows_grad,
                dtable,
                width,
            } => {
                let (ids, count) = (self.ids(ids), self.ids(count)[0] as usize);
                let rows = self.get(rows_grad);
                self.change(dtable, |table| {
                    for (i, id) in ids.iter().take(count).enumerate() {
                        add(
                            &mut table[*id as usize * width..][..width],
                            &rows[i * width..],
                        );
                    }
                });
                self.change(rows_grad, |rows| rows.fill(0.0));
            }
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
                let (x, gain, bias) = (self.get(x), self.get(gain), self.get(bias));
                let (mut o, mut s) = (self.get(out), self.get(stats));
                math::norm(&x[..rows * width], &gain, &bias, &mut o, &mut s, eps);
                self.put(out, &o);
                self.put(stats, &s);
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
                let (x, gain, stats, dy) =
                    (self.get(x), self.get(gain), self.get(stats), self.get(dy));
                let (mut into, mut dg, mut db) = (self.get(dx), self.get(dgain), self.get(dbias));
                if !add {
                    into[..n].fill(0.0);
                }
                math::norm_gradient((&x[..n], &gain, &stats, &dy), &mut into, &mut dg, &mut db);
                self.put(dx, &into);
                self.put(dgain, &dg);
                self.put(dbias, &db);
            }
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
            } => {
                self.gemm([a, b, c], Product { m, n, k, ta, tb }, accumulate, epilogue);
            }
            Op::GeluGrad { pre, d, len } => {
                let pre = self.get(pre);
                self.change(d, |d| {
                    (0..len).for_each(|i| d[i] *= math::gelu_gradient(pre[i]));
                });
            }
            Op::ColumnSum {
                x,
                out,
                rows,
                width,
            } => {
                let x = self.get(x);
                self.change(out, |out| {
                    (0..rows).for_each(|r| add(&mut out[..width], &x[r * width..]));
                });
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
                let s = Heads {
                    batch,
                    seq,
                    heads,
                    dim: head_dim,
                };
                let (qkv, segments) = (self.get(qkv), segments.map(|s| self.ids(s)));
                let (mut o, mut l) = (self.get(out), self.get(lse));
                math::attention(s, &qkv, segments.as_deref(), &mut o, &mut l);
                self.put(out, &o);
                self.put(lse, &l);
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
                let s = Heads {
                    batch,
                    seq,
                    heads,
                    dim: head_dim,
                };
                let [qkv, out, lse, dout] = [qkv, out, lse, dout].map(|v| self.get(v));
                let segments = segments.map(|s| self.ids(s));
                let (mut d, mut into) = (self.get(delta), self.get(dqkv));
                into.fill(0.0);
                let given = (&qkv[..], &out[..], &lse[..], &dout[..]);
                math::attention_gradient(s, given, segments.as_deref(), &mut d, &mut into);
                self.put(delta, &d);
                self.put(dqkv, &into);
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
                let s = Heads {
                    batch,
                    seq,
                    heads,
                    dim: head_dim,
                };
                let (qkv, at) = (self.get(qkv), self.ids(at));
                let [mut k, mut v, mut o] = [keys, values, out].map(|v| self.get(v));
                math::decode(s, &qkv, &at[..batch], &mut k, &mut v, &mut o);
                self.put(keys, &k);
                self.put(values, &v);
                self.put(out, &o);
            }
            Op::RowStats {
                logits,
                targets,
                stats,
                rows,
                vocab,
            } => {
                let (logits, targets) = (self.get(logits), self.ids(targets));
                self.change(stats, |stats| {
                    math::row_stats(&logits[..rows * vocab], &targets, vocab, stats);
                });
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
                let (targets, stats) = (self.ids(targets), self.get(stats));
                let (mut x, mut l) = (self.get(logits), self.get(losses));
                math::loss_gradient(
                    &mut x[..rows * vocab],
                    (&targets, &stats),
                    vocab,
                    &mut l,
                    scale,
                );
                self.put(logits, &x);
                self.put(losses, &l);
            }
            Op::LossSum { losses, out, rows } => {
                let losses = self.get(losses);
                self.change(out, |out| out[0] += losses[..rows].iter().sum::<f64>());
            }
            Op::SumSquares { x, out, len } => {
                let x = self.get(x);
                let squares = |block: &[f64]| block.iter().map(|v| v * v).sum::<f64>();
                let sums: Vec<f64> = x[..len].chunks(SQUARES_BLOCK).map(squares).collect();
                self.put(out, &sums);
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
                let mut scalar = [0.0; AdamScalars::LEN];
                scalar.copy_from_slice(&self.get(scalars)[..AdamScalars::LEN]);
                let mut s = AdamScalars::from_array(scalar);
                s.lr *= f64::from(lr_mult);
                s.weight_decay *= f64::from(u8::from(decay));
                let [mut ps, mut gs, mut ms, mut vs] = [p, g, m, v].map(|v| self.get(v));
                for i in 0..len {
                    let g = s.gscale * gs[i];
                    ms[i] = s.beta1 * ms[i] + (1.0 - s.beta1) * g;
                    vs[i] = s.beta2 * vs[i] + (1.0 - s.beta2) * g * g;
                    ps[i] -= s.lr * s.weight_decay * ps[i];
                    ps[i] -= s.lr / s.bc1 * ms[i] / (vs[i].sqrt() / s.bc2.sqrt() + s.eps);
                    gs[i] = 0.0;
                }
                for (val, data) in [(p, ps), (g, gs), (m, ms), (v, vs)] {
                    self.put(val, &data);
                }
            }
            Op::Zero { x, len } => self.change(x, |x| x[..len].fill(0.0)),
        }
    }

    fn gemm(&mut self, [a, b, c]: [Val; 3], p: Product, accumulate: bool, epilogue: Epilogue) {
        let (a, b, mut out) = (self.get(a), self.get(b), self.get(c));
        let size = p.m * p.n;
        if !accumulate {
            out[..size].fill(0.0);
        }
        let residual = match epilogue {
            Epilogue::BiasResidual { residual, .. } => self.get(residual),
            _ => Vec::new(),
        };
        math::gemm(p, &a, &b, &mut out);
        if let Epilogue::Bias { bias }
        | Epilogue::BiasGelu { bias, .. }
        | Epilogue::BiasResidual { bias, .. } = epilogue
        {
            let bias = self.get(bias);
            out[..size].chunks_mut(p.n).for_each(|row| add(row, &bias));
        }
        match epilogue {
            Epilogue::BiasGelu { pre, .. } => {
                self.put(pre, &out[..size]);
                out[..size].iter_mut().for_each(|x| *x = math::gelu(*x));
            }
            Epilogue::BiasResidual { .. } => add(&mut out[..size], &residual),
            Epilogue::None | Epilogue::Bias { .. } => {}
        }
        self.put(c, &out);
    }
}

/// into += from, for the length of `into`.
fn add(into: &mut [f64], from: &[f64]) {
    into.iter_mut().zip(from).for_each(|(a, b)| *a += b);
}

impl Device for Reference {
    fn real(&self) -> Real {
        Real::F64
    }

    fn isa(&self) -> &'static str {
        "reference"
    }

    fn reserve(&mut self, sizes: &Sizes, grads: Option<Memory>) -> Result<(), DeviceError> {
        self.sizes = *sizes;
        self.regions.clear();
        for region in REGIONS {
            let bytes = extent(sizes, region) * element(region);
            let memory = match (&grads, region) {
                (Some(memory), Region::Grads) => memory.part(0, bytes),
                _ => Memory::private(bytes).map_err(|source| DeviceError::OutOfMemory {
                    region,
                    bytes,
                    source,
                })?,
            };
            self.regions.push(memory);
        }
        Ok(())
    }

    fn launch(&mut self, program: &Program, op: &Op, frame: Frame) -> Result<(), DeviceError> {
        let mut access = Access {
            device: self,
            program,
            frame,
        };
        access.run(op);
        Ok(())
    }

    fn read(&self, region: Region, offset: usize, out: &mut [u8]) {
        let memory = self.regions[region as usize].part(offset, out.len());
        // SAFETY: `part` checked the bounds; this thread alone uses the region outside of collectives, and `out` is not part of it.
        unsafe { std::ptr::copy_nonoverlapping(memory.as_ptr(), out.as_mut_ptr(), out.len()) };
    }

    fn write(&mut self, region: Region, offset: usize, data: &[u8]) {
        let memory = self.regions[region as usize].part(offset, data.len());
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), memory.as_ptr(), data.len()) };
    }
}
