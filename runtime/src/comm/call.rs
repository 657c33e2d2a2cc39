//! What a rank calls: the words in which ranks compare their programs.

/// A collective with what must be equal on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) op: Op,
    pub(super) sequence: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Barrier,
    ReduceF32,
    ReduceF64,
    Gather,
}

impl Op {
    const ALL: [Op; 4] = [Op::Barrier, Op::ReduceF32, Op::ReduceF64, Op::Gather];

    /// The operation whose number (`as u64`) is `code`.
    pub(super) fn of(code: u64) -> Option<Op> {
        Op::ALL.get(usize::try_from(code).ok()?).copied()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Barrier => "barrier",
            Op::ReduceF32 | Op::ReduceF64 => "all-reduce",
            Op::Gather => "all-gather",
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Call {
            op,
            sequence,
            offset,
            len,
        } = self;
        match op {
            Op::Barrier => write!(f, "barrier, operation {sequence}"),
            Op::ReduceF32 | Op::ReduceF64 => {
                let real = if *op == Op::ReduceF32 { "f32" } else { "f64" };
                let end = offset + len;
                write!(
                    f,
                    "all-reduce of {real} {offset}..{end}, operation {sequence}"
                )
            }
            Op::Gather => write!(f, "all-gather of {len} f64, operation {sequence}"),
        }
    }
}
