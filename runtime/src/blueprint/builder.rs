//! The builder of programs: values with lifetimes, places given when a program is finished.
//!
//! Values of `Work` live from their first to their last use in one program and share memory; those of `Kept` and the pinned
//! part of `Work` have a place of their own, valid in all programs of the builder.

use super::operands::Operand;
use super::params::{ParamId, Params, align};
use super::program::{Op, Program, Region, Step, Val, ValInfo};
use std::ops::Range;

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// At an offset known when it was made.
    At(usize),
    /// In `Work`, placed when the program is finished.
    Packed,
    /// A part of another value.
    Inside { parent: Val, delta: usize },
}

/// Elements given out so far in regions that are filled from the start and shared by the programs of a blueprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filled {
    /// Of one slot.
    pub kept: usize,
    /// Start of `Work` that outlives programs.
    pub pinned: usize,
    /// Of one slot.
    pub tokens: usize,
    pub scalars: usize,
}

/// Makes programs over one set of values.
pub struct Builder<'a> {
    params: &'a Params,
    filled: Filled,
    vals: Vec<ValInfo>,
    homes: Vec<Home>,
    weights: Vec<Option<Val>>,
    grads: Vec<Option<Val>>,
    ops: Vec<Step>,
    scope: String,
    /// Elements of `Work` that the largest finished program needs, the pinned part included.
    work: usize,
}

impl<'a> Builder<'a> {
    /// A builder whose shared regions are filled up to `filled`.
    pub fn new(params: &'a Params, filled: Filled) -> Self {
        Builder {
            params,
            filled,
            vals: Vec::new(),
            homes: Vec::new(),
            weights: vec![None; params.specs.len()],
            grads: vec![None; params.specs.len()],
            ops: Vec::new(),
            scope: String::new(),
            work: align(filled.pinned),
        }
    }

    /// Elements given out in the shared regions.
    pub fn filled(&self) -> Filled {
        self.filled
    }

    /// Elements of `Work` that the finished programs need.
    pub fn work(&self) -> usize {
        self.work.max(align(self.filled.pinned))
    }

    /// Sets the prefix of names that follow, such as `h.3.`.
    pub fn scope(&mut self, scope: &str) {
        scope.clone_into(&mut self.scope);
    }

    fn add(&mut self, name: String, region: Region, offset: usize, len: usize, home: Home) -> Val {
        self.vals.push(ValInfo {
            name,
            region,
            offset,
            len,
        });
        self.homes.push(home);
        Val((self.vals.len() - 1) as u32)
    }

    fn take(&mut self, name: &str, region: Region, len: usize) -> Val {
        let cursor = match region {
            Region::Kept => &mut self.filled.kept,
            Region::Tokens => &mut self.filled.tokens,
            Region::Scalars => &mut self.filled.scalars,
            _ => &mut self.filled.pinned,
        };
        let offset = *cursor;
        *cursor += align(len);
        self.add(
            self.scope.clone() + name,
            region,
            offset,
            len,
            Home::At(offset),
        )
    }

    /// A value that lives between programs, one a slot.
    pub fn kept(&mut self, name: &str, len: usize) -> Val {
        self.take(name, Region::Kept, len)
    }

    /// A value in `Work` that outlives programs.
    pub fn pinned(&mut self, name: &str, len: usize) -> Val {
        self.take(name, Region::Work, len)
    }

    /// A value of u32 that the host fills, one a slot.
    pub fn tokens(&mut self, name: &str, len: usize) -> Val {
        self.take(name, Region::Tokens, len)
    }

    /// A value of f64.
    pub fn scalars(&mut self, name: &str, len: usize) -> Val {
        self.take(name, Region::Scalars, len)
    }

    /// A value of the program at hand.
    pub fn work_val(&mut self, name: &str, len: usize) -> Val {
        self.add(
            self.scope.clone() + name,
            Region::Work,
            0,
            len,
            Home::Packed,
        )
    }

    /// The `range` of `parent`'s elements.
    pub fn part(&mut self, parent: Val, range: Range<usize>) -> Val {
        let info = &self.vals[parent.0 as usize];
        let (name, region) = (format!("{}[{}..]", info.name, range.start), info.region);
        let (parent, delta) = match self.homes[parent.0 as usize] {
            Home::Inside { parent, delta } => (parent, delta + range.start),
            _ => (parent, range.start),
        };
        let home = Home::Inside { parent, delta };
        let offset = self.vals[parent.0 as usize].offset + delta;
        self.add(name, region, offset, range.len(), home)
    }

    /// A value made by another builder of the same blueprint, in a region whose places last.
    pub fn import(&mut self, info: &ValInfo) -> Val {
        let at = Home::At(info.offset);
        self.add(info.name.clone(), info.region, info.offset, info.len, at)
    }

    /// Place and name of a value with a lasting place.
    pub fn info(&self, val: Val) -> ValInfo {
        self.vals[val.0 as usize].clone()
    }

    /// The parameter itself.
    pub fn weight(&mut self, id: ParamId) -> Val {
        if let Some(val) = self.weights[id.0] {
            return val;
        }
        let spec = self.params.get(id);
        let (offset, len) = (spec.offset, spec.len());
        let val = self.add(
            spec.name.clone(),
            Region::Weights,
            offset,
            len,
            Home::At(offset),
        );
        self.weights[id.0] = Some(val);
        val
    }

    /// The parameter's gradient.
    pub fn grad(&mut self, id: ParamId) -> Val {
        if let Some(val) = self.grads[id.0] {
            return val;
        }
        let spec = self.params.get(id);
        let (offset, len) = (spec.offset, spec.len());
        let name = format!("{}.grad", spec.name);
        let val = self.add(name, Region::Grads, offset, len, Home::At(offset));
        self.grads[id.0] = Some(val);
        val
    }

    /// First (`second`: second) moment of the parameter.
    pub fn moment(&mut self, id: ParamId, second: bool) -> Val {
        let spec = self.params.get(id);
        let offset = spec.offset + if second { self.params.extent } else { 0 };
        let name = format!("{}.{}", spec.name, if second { "v" } else { "m" });
        let len = spec.len();
        self.add(name, Region::Moments, offset, len, Home::At(offset))
    }

    /// Adds an operation.
    pub fn emit(&mut self, name: &str, op: Op) {
        let name = self.scope.clone() + name;
        self.ops.push(Step { name, op });
    }

    fn root(&self, val: Val) -> Val {
        match self.homes[val.0 as usize] {
            Home::Inside { parent, .. } => parent,
            _ => val,
        }
    }

    /// For each value the one it is a part of, itself if of none.
    pub fn roots(&self) -> Vec<Val> {
        (0..self.vals.len() as u32)
            .map(|i| self.root(Val(i)))
            .collect()
    }

    /// Ends the program at hand: gives its `Work` values their places and returns it.
    pub fn finish(&mut self) -> Program {
        let ops = std::mem::take(&mut self.ops);
        let mut uses: Vec<Option<Range<usize>>> = vec![None; self.vals.len()];
        for (at, step) in ops.iter().enumerate() {
            step.op.operands(|Operand { val, .. }| {
                let life = &mut uses[self.root(val).0 as usize];
                life.get_or_insert(at..at).end = at;
            });
        }
        let mut by_start: Vec<(usize, usize, usize)> = uses
            .iter()
            .enumerate()
            .filter(|(i, _)| self.homes[*i] == Home::Packed)
            .filter_map(|(i, life)| life.as_ref().map(|life| (life.start, life.end, i)))
            .collect();
        by_start.sort_unstable();
        let mut pack = Packing::new(align(self.filled.pinned));
        for (start, end, i) in by_start {
            self.vals[i].offset = pack.place(start, end, align(self.vals[i].len));
        }
        for i in 0..self.vals.len() {
            if let Home::Inside { parent, delta } = self.homes[i] {
                self.vals[i].offset = self.vals[parent.0 as usize].offset + delta;
            }
        }
        self.work = self.work.max(pack.high);
        Program {
            ops,
            vals: self.vals.clone(),
        }
    }
}

/// Lowest fit of intervals that come in the order of their starts.
struct Packing {
    base: usize,
    /// (offset, end offset, last use), by offset.
    live: Vec<(usize, usize, usize)>,
    high: usize,
}

impl Packing {
    fn new(base: usize) -> Self {
        Packing {
            base,
            live: Vec::new(),
            high: base,
        }
    }

    fn place(&mut self, start: usize, end: usize, len: usize) -> usize {
        self.live.retain(|&(_, _, last)| last >= start);
        let mut offset = self.base;
        let mut at = self.live.len();
        for (i, &(from, to, _)) in self.live.iter().enumerate() {
            if offset + len <= from {
                at = i;
                break;
            }
            offset = to;
        }
        self.live.insert(at, (offset, offset + len, end));
        self.high = self.high.max(offset + len);
        offset
    }
}
