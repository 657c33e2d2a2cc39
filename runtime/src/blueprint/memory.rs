//! Memory by class, and the pass that proves a program safe to carry out: bounds, element types, no live value overwritten.

use super::operands::{Access, Kind, Operand};
use super::program::{Program, Region, Step, Val};

/// Elements to reserve by region, computed by the blueprint and by nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Sizes {
    pub weights: usize,
    pub grads: usize,
    pub moments: usize,
    /// Of one slot.
    pub kept: usize,
    pub work: usize,
    /// Of one slot.
    pub tokens: usize,
    pub scalars: usize,
    /// Copies of `kept` and `tokens`.
    pub slots: usize,
}

/// Type of a real element on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Real {
    F32,
    F64,
}

impl Real {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Real::F32 => 4,
            Real::F64 => 8,
        }
    }
}

/// Bytes of one rank by class; their sum is the arena, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Bytes {
    pub weights: u64,
    /// In the group's shared segment where ranks are several.
    pub gradients: u64,
    pub optimizer: u64,
    /// Values kept for the backward pass, all slots.
    pub kept: u64,
    pub work: u64,
    /// Token ids and indices, all slots.
    pub tokens: u64,
    pub scalars: u64,
}

impl Bytes {
    /// Bytes of regions of these sizes.
    pub fn of(sizes: &Sizes, real: Real) -> Bytes {
        let reals = |n: usize| (n * real.bytes()) as u64;
        Bytes {
            weights: reals(sizes.weights),
            gradients: reals(sizes.grads),
            optimizer: reals(sizes.moments),
            kept: reals(sizes.kept * sizes.slots),
            work: reals(sizes.work),
            tokens: (sizes.tokens * sizes.slots * 4) as u64,
            scalars: (sizes.scalars * 8) as u64,
        }
    }

    /// All classes together.
    pub fn total(&self) -> u64 {
        let Bytes {
            weights,
            gradients,
            optimizer,
            kept,
            work,
            tokens,
            scalars,
        } = *self;
        weights + gradients + optimizer + kept + work + tokens + scalars
    }
}

/// Elements of a region, all slots together.
pub fn extent(sizes: &Sizes, region: Region) -> usize {
    match region {
        Region::Weights => sizes.weights,
        Region::Grads => sizes.grads,
        Region::Moments => sizes.moments,
        Region::Kept => sizes.kept * sizes.slots,
        Region::Work => sizes.work,
        Region::Tokens => sizes.tokens * sizes.slots,
        Region::Scalars => sizes.scalars,
    }
}

/// Elements that one value of a region may reach into: one slot of slotted regions.
fn reach(sizes: &Sizes, region: Region) -> usize {
    match region {
        Region::Kept => sizes.kept,
        Region::Tokens => sizes.tokens,
        other => extent(sizes, other),
    }
}

/// A program that must not run; always a mistake in emission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("`{value}` in `{op}` reaches outside of {region:?}")]
    OutOfBounds {
        op: String,
        value: String,
        region: Region,
    },
    #[error("`{op}` takes {need} elements of `{value}`, which has {len}")]
    TooShort {
        op: String,
        value: String,
        need: usize,
        len: usize,
    },
    #[error("`{value}` in `{op}` has another element type")]
    WrongType { op: String, value: String },
    #[error("`{op}` reads `{value}`, of which nothing was written")]
    Unwritten { op: String, value: String },
    #[error("`{op}` writes `{value}` over `{other}`, which is still needed")]
    Overlap {
        op: String,
        value: String,
        other: String,
    },
}

/// Checks `program` against `sizes`. `roots` says for each value which one it is a part of (itself if of none);
/// `pinned` is the part of `Work` that outlives programs.
pub fn validate(
    program: &Program,
    roots: &[Val],
    sizes: &Sizes,
    pinned: usize,
) -> Result<(), Fault> {
    let root = |val: Val| roots[val.0 as usize].0 as usize;
    let mut last = vec![0usize; program.vals.len()];
    for (at, step) in program.ops.iter().enumerate() {
        step.op.operands(|operand| last[root(operand.val)] = at);
    }
    // Values of `Work` that are written and still needed.
    let mut live: Vec<usize> = Vec::new();
    for (at, step) in program.ops.iter().enumerate() {
        live.retain(|&val| last[val] >= at);
        let mut result = Ok(());
        step.op.operands(|operand| {
            if result.is_ok() {
                result = bounds(program, step, operand, sizes).and_then(|()| {
                    lifetimes(program, step, operand, root(operand.val), &mut live, pinned)
                });
            }
        });
        result?;
    }
    Ok(())
}

fn bounds(program: &Program, step: &Step, operand: Operand, sizes: &Sizes) -> Result<(), Fault> {
    let info = program.val(operand.val);
    let (op, value) = (step.name.clone(), info.name.clone());
    let kind = match info.region {
        Region::Tokens => Kind::Index,
        Region::Scalars => Kind::Sum,
        _ => Kind::Real,
    };
    if info.offset + info.len > reach(sizes, info.region) {
        let region = info.region;
        Err(Fault::OutOfBounds { op, value, region })
    } else if operand.len > info.len {
        let (need, len) = (operand.len, info.len);
        Err(Fault::TooShort {
            op,
            value,
            need,
            len,
        })
    } else if kind != operand.kind {
        Err(Fault::WrongType { op, value })
    } else {
        Ok(())
    }
}

fn lifetimes(
    program: &Program,
    step: &Step,
    operand: Operand,
    root: usize,
    live: &mut Vec<usize>,
    pinned: usize,
) -> Result<(), Fault> {
    let info = &program.vals[root];
    if info.region != Region::Work || info.offset < pinned || live.contains(&root) {
        return Ok(());
    }
    let (op, value) = (step.name.clone(), info.name.clone());
    if operand.access != Access::Write {
        return Err(Fault::Unwritten { op, value });
    }
    let end = info.offset + info.len;
    let clash = live.iter().map(|&other| &program.vals[other]);
    let mut clash =
        clash.filter(|other| other.offset < end && info.offset < other.offset + other.len);
    if let Some(other) = clash.next() {
        let other = other.name.clone();
        return Err(Fault::Overlap { op, value, other });
    }
    live.push(root);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blueprint::builder::{Builder, Filled};
    use crate::blueprint::params::Params;
    use crate::blueprint::program::{Op, ValInfo};
    use crate::contract::Model;
    use proptest::prelude::*;

    fn params() -> Params {
        Params::gpt(&Model {
            layers: 1,
            hidden: 2,
            heads: 1,
            ffn: 2,
            seq_len: 2,
            vocab: 2,
            norm_eps: 1e-5,
            init_std: 0.02,
        })
    }

    fn sizes(builder: &Builder<'_>) -> Sizes {
        Sizes {
            work: builder.work(),
            ..Sizes::default()
        }
    }

    /// A program in which each value is zeroed first and scaled by a later operation.
    fn random(lives: &[(usize, usize, usize)], pinned: usize) -> (Program, Vec<Val>, Sizes, usize) {
        let params = params();
        let mut b = Builder::new(&params, Filled::default());
        if pinned > 0 {
            b.pinned("pinned", pinned);
        }
        let vals: Vec<Val> = lives
            .iter()
            .enumerate()
            .map(|(i, l)| b.work_val(&format!("v{i}"), l.2))
            .collect();
        for at in 0..40 {
            for (life, &val) in lives.iter().zip(&vals) {
                if life.0 == at {
                    b.emit(
                        "write",
                        Op::Zero {
                            x: val,
                            len: life.2,
                        },
                    );
                }
                if life.0 + life.1 == at {
                    let len = life.2;
                    b.emit(
                        "read",
                        Op::GeluGrad {
                            pre: val,
                            d: val,
                            len,
                        },
                    );
                }
            }
        }
        let program = b.finish();
        let pinned = b.filled().pinned;
        (program, b.roots(), sizes(&b), pinned)
    }

    proptest! {
        #[test]
        fn packed_values_never_overlap_while_live_and_moved_ones_are_caught(
            lives in prop::collection::vec((0usize..20, 0usize..20, 1usize..500), 2..30), pinned in 0usize..100,
        ) {
            let (mut program, roots, sizes, pinned) = random(&lives, pinned);
            prop_assert_eq!(validate(&program, &roots, &sizes, pinned), Ok(()));
            // Values 0 and 1 at one place: a fault exactly when their lives meet.
            let place = program.vals[roots.len() - 1].offset;
            let n = roots.len();
            program.vals[n - 2].offset = place;
            let ends = |l: &(usize, usize, usize)| (l.0, l.0 + l.1);
            let (a, b) = (ends(&lives[lives.len() - 2]), ends(&lives[lives.len() - 1]));
            if a.0 < b.1 && b.0 < a.1 {
                prop_assert!(validate(&program, &roots, &sizes, pinned).is_err());
            }
        }
    }

    #[test]
    fn each_kind_of_fault_is_named() {
        let (program, roots, sizes, pinned) = random(&[(0, 2, 64), (1, 3, 64)], 0);
        let check = |program: &Program, sizes: &Sizes| validate(program, &roots, sizes, pinned);
        let small = Sizes { work: 64, ..sizes };
        assert!(matches!(
            check(&program, &small),
            Err(Fault::OutOfBounds { .. })
        ));
        let mut short = program.clone();
        short.vals[0].len = 63;
        assert!(matches!(
            check(&short, &sizes),
            Err(Fault::TooShort {
                need: 64,
                len: 63,
                ..
            })
        ));
        let mut unwritten = program.clone();
        unwritten.ops.remove(0);
        assert!(matches!(
            check(&unwritten, &sizes),
            Err(Fault::Unwritten { .. })
        ));
        let mut typed = program.clone();
        typed.vals[0] = ValInfo {
            region: Region::Tokens,
            ..typed.vals[0].clone()
        };
        let tokens = Sizes {
            tokens: 64,
            ..sizes
        };
        assert!(matches!(
            check(&typed, &tokens),
            Err(Fault::WrongType { .. })
        ));
    }

    #[test]
    fn bytes_add_up() {
        let sizes = Sizes {
            weights: 10,
            grads: 10,
            moments: 20,
            kept: 5,
            work: 7,
            tokens: 3,
            scalars: 2,
            slots: 2,
        };
        assert_eq!(
            Bytes::of(&sizes, Real::F32).total(),
            4 * (10 + 10 + 20 + 10 + 7) + 4 * 6 + 16
        );
        assert_eq!(
            Bytes::of(&sizes, Real::F64).total(),
            8 * (10 + 10 + 20 + 10 + 7) + 4 * 6 + 16
        );
    }
}
