//! `model`: a preset's name, or sizes.

use super::diagnostic::{Diagnostic, Span};
use super::section::{Either, Given, Kind, Section, list, suggestion};
use super::yaml::Origin;

/// Sizes of a GPT-2 style model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Where the model is named, for faults about all of it.
    pub at: Option<Span>,
    pub layers: Given<u64>,
    pub hidden: Given<u64>,
    pub heads: Given<u64>,
    /// 4 x hidden unless given.
    pub ffn: Given<u64>,
    pub seq_len: Given<u64>,
    pub vocab: Given<u64>,
}

/// name, layers, hidden, heads, seq_len, vocab. The large ones: Dash et al., "Optimizing Distributed Training on
/// Frontier for Large Language Models" (arXiv 2312.12705), with the vocabulary of Narayanan et al. (arXiv 2104.04473).
const PRESETS: &[(&str, [u64; 5])] = &[
    ("tiny", [2, 64, 2, 64, 256]),
    ("quickstart", [4, 192, 6, 256, 256]),
    ("gpt2-124m", [12, 768, 12, 1024, 50257]),
    ("gpt2-355m", [24, 1024, 16, 1024, 50257]),
    ("gpt2-774m", [36, 1280, 20, 1024, 50257]),
    ("gpt2-1.5b", [48, 1600, 25, 1024, 50257]),
    ("gpt-1.4b", [24, 2112, 24, 2048, 51200]),
    ("gpt-22b", [48, 6144, 48, 2048, 51200]),
    ("gpt-175b", [96, 12288, 96, 2048, 51200]),
    ("gpt-1t", [128, 25600, 128, 2048, 51200]),
];

/// Names of the presets.
pub fn presets() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

/// Reads the key; `None` if it is absent or has a fault.
pub(super) fn read(s: &mut Section) -> Option<Model> {
    let either = s.either(
        "model",
        "The model: a preset's name, or its sizes.",
        Kind::Choice(presets()),
        None,
        sizes,
    );
    match either {
        Either::Map(model) => model,
        Either::Absent | Either::Wrong => None,
        Either::Scalar(node) => {
            let name = node.text().unwrap_or_default();
            let Some((_, sizes)) = PRESETS.iter().find(|(known, _)| *known == name) else {
                let names = presets();
                let help = match suggestion(name, names.iter().copied()) {
                    Some(known) => format!("did you mean `{known}`?"),
                    None => format!(
                        "presets are {}; or give a map with layers, hidden, heads, seq_len, vocab",
                        list(&names)
                    ),
                };
                s.fault(
                    Diagnostic::error(
                        "unknown-preset",
                        format!("no model preset is called {}", node.kind()),
                    )
                    .at(node.span, "")
                    .help(help),
                );
                return None;
            };
            let [layers, hidden, heads, seq_len, vocab] = *sizes;
            let given = |value| Given {
                value,
                at: Some(node.span),
                origin: node.origin,
            };
            for (key, value) in [
                ("layers", layers),
                ("hidden", hidden),
                ("heads", heads),
                ("ffn", 4 * hidden),
                ("seq_len", seq_len),
                ("vocab", vocab),
            ] {
                s.seen(&format!("model.{key}"), value, &node);
            }
            Some(Model {
                at: Some(node.span),
                layers: given(layers),
                hidden: given(hidden),
                heads: given(heads),
                ffn: given(4 * hidden),
                seq_len: given(seq_len),
                vocab: given(vocab),
            })
        }
    }
}

fn sizes(s: &mut Section) -> Option<Model> {
    let layers = s.count("layers", "Transformer layers.", 1..=4096);
    let hidden = s.count("hidden", "Width.", 1..=262_144);
    let heads = s.count("heads", "Attention heads; divides hidden.", 1..=262_144);
    let ffn = s.count(
        "ffn",
        "Width of the feed-forward layer; 4 x hidden unless given.",
        1..=1_048_576,
    );
    let seq_len = s.count("seq_len", "Sequence length in tokens.", 1..=1_048_576);
    let vocab = s.count(
        "vocab",
        "Vocabulary in tokens; 256 for bytes.",
        1..=16_777_216,
    );
    s.later(&[
        "kv_heads",
        "head_dim",
        "norm",
        "activation",
        "positions",
        "rope",
        "tied",
        "dropout",
    ]);
    for name in ["layers", "hidden", "heads", "seq_len", "vocab"] {
        s.missing(
            name,
            "a model given by its sizes needs layers, hidden, heads, seq_len and vocab",
        );
    }
    let at = s.head();
    let hidden = hidden?;
    let ffn = ffn.unwrap_or_else(|| {
        s.derived("ffn", 4 * hidden.value);
        Given {
            value: 4 * hidden.value,
            at: hidden.at,
            origin: Origin::Default,
        }
    });
    Some(Model {
        at,
        layers: layers?,
        hidden,
        heads: heads?,
        ffn,
        seq_len: seq_len?,
        vocab: vocab?,
    })
}
