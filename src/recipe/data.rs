//! `data`: the tokens.

use super::diagnostic::Span;
use super::section::{Given, Section};
use haul_runtime::contract::config::DataFormat;

#[derive(Debug, Clone, PartialEq)]
pub struct Data {
    pub at: Option<Span>,
    /// As written; see `plan::resolve` for what it is relative to.
    pub path: Option<Given<String>>,
    pub format: Given<DataFormat>,
    /// Share held out for evaluation.
    pub validation: Given<f64>,
}

pub(super) fn read(s: &mut Section, required: bool) -> Data {
    s.later(&["sources", "tokenizer", "weights", "documents"]);
    let path = s.text(
        "path",
        "File of tokens, relative to the file this stands in; `{root}` is the run root.",
        None,
    );
    if required {
        s.missing("path", "name the file of training tokens");
    }
    Data {
        at: s.head(),
        path,
        format: s.choice(
            "format",
            "bytes: each byte of the file is a token.",
            &[("bytes", DataFormat::Bytes)],
            &["megatron", "tokens", "npy"],
            ("bytes", DataFormat::Bytes),
        ),
        validation: s.number_or(
            "validation",
            "Share of the sequences held out for evaluation, from the end of the file.",
            0.0..=0.9,
            0.05,
        ),
    }
}
