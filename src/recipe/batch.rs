//! `batch`: sequences of a micro-batch and of a step.

use super::diagnostic::Span;
use super::section::{Given, Section};

#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub at: Option<Span>,
    pub micro: Given<u64>,
    /// `None` if none of the three is given, or more than one.
    pub size: Option<Size>,
}

/// The one of three that fixes the others.
#[derive(Debug, Clone, PartialEq)]
pub enum Size {
    Global(Given<u64>),
    PerReplica(Given<u64>),
    Accumulation(Given<u64>),
}

pub(super) fn read(s: &mut Section, required: bool) -> Batch {
    s.later(&["ramp"]);
    let most = 1..=1_073_741_824;
    let micro = s.count_or(
        "micro",
        "Sequences of one micro-batch on one rank.",
        1..=1_048_576,
        1,
    );
    let global = s.count(
        "global",
        "Sequences of one optimizer step over all replicas.",
        most.clone(),
    );
    let per_replica = s.count(
        "per_replica",
        "Sequences of one optimizer step on each replica.",
        most,
    );
    let accumulation = s.count(
        "accumulation",
        "Micro-batches a replica runs before an optimizer step.",
        1..=65_536,
    );
    let one = s.exactly_one(
        &["global", "per_replica", "accumulation"],
        required,
        "global = per_replica x data = micro x accumulation x data: one of them fixes the others",
    );
    let size = global
        .map(Size::Global)
        .or(per_replica.map(Size::PerReplica))
        .or(accumulation.map(Size::Accumulation))
        .filter(|_| one);
    Batch {
        at: s.head(),
        micro,
        size,
    }
}
