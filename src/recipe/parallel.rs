//! `parallel`: degrees of the mesh.

use super::section::{Given, Section};

#[derive(Debug, Clone, PartialEq)]
pub struct Parallel {
    pub tensor: Given<u64>,
    pub pipeline: Given<u64>,
    pub zero: Given<u64>,
    /// An assertion: world / (tensor x pipeline) must be this.
    pub data: Option<Given<u64>>,
}

pub(super) fn read(s: &mut Section) -> Parallel {
    s.later(&[
        "context",
        "sequence",
        "interleave",
        "split",
        "schedule",
        "expert",
        "overlap",
    ]);
    Parallel {
        tensor: s.count_or("tensor", "Tensor parallel degree.", 1..=65_536, 1),
        pipeline: s.count_or("pipeline", "Pipeline parallel degree.", 1..=65_536, 1),
        zero: s.count_or("zero", "ZeRO stage over the data parallel ranks.", 0..=3, 0),
        data: s.count(
            "data",
            "Data parallel degree that ranks / (tensor x pipeline) must give; checked, never needed.",
            1..=1_048_576,
        ),
    }
}
