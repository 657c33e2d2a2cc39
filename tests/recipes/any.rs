//! Whatever a recipe holds: it is read, or told with a place, and nothing panics.

use super::{Desk, GOOD};
use haul::actions::check::Checked;
use haul::recipe::diagnostic::{Faults, Severity, Style};
use proptest::prelude::*;

/// Every fault is told with a place inside its text and can be shown.
fn sound(result: Result<Checked, Faults>) {
    if let Err(faults) = result {
        assert!(faults.list.iter().any(|f| f.severity == Severity::Error));
        for fault in &faults.list {
            for (span, _) in &fault.labels {
                let source = faults.sources.get(span.source).unwrap();
                assert!(span.start <= source.text.len(), "{fault:?}");
                assert!(faults.sources.place(*span).is_some(), "{fault:?}");
            }
        }
        assert!(!faults.render(Style::Colour).is_empty());
    }
}

/// Pieces that recipes are made of, and that break them.
fn piece() -> impl Strategy<Value = String> {
    const PIECES: [&str; 30] = [
        "\n",
        "  ",
        "\t",
        ": ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "\"",
        "'",
        "- ",
        "&a ",
        "*a",
        "|\n",
        "#",
        "~",
        "é",
        "18446744073709551615",
        "-1",
        "0",
        "1e400",
        "off",
        "99999999d",
        "model",
        "train",
        "batch",
        "program: {command: [x]}",
        "{root}",
        "{{",
    ];
    prop::sample::select(&PIECES[..]).prop_map(str::to_string)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_time: 5000, ..ProptestConfig::default() })]

    #[test]
    fn no_mutation_of_a_good_recipe_is_a_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, prop::collection::vec(piece(), 0..3)), 1..5)
    ) {
        let desk = Desk::new();
        let mut text = GOOD.to_string();
        for (at, cut, pieces) in edits {
            let floor = |mut at: usize| {
                at = at.min(text.len());
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                at
            };
            let at = at.index(text.len().max(1));
            let range = floor(at)..floor(at + cut);
            text.replace_range(range, &pieces.concat());
        }
        sound(desk.load(&text, &[]));
    }

    #[test]
    fn no_override_is_a_panic(
        key in "[a-z._]{0,20}|model|batch.micro|train.until|program.command",
        value in ".{0,20}|\\{[a-z:, 0-9]{0,12}\\}|[0-9]{1,20}[dhmskMG]?",
    ) {
        let desk = Desk::new();
        sound(desk.load(GOOD, &[&format!("{key}={value}")]));
        sound(desk.load(GOOD, &[&value]));
    }

    #[test]
    fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let desk = Desk::new();
        let path = desk.path("bytes.yaml");
        std::fs::write(&path, bytes).unwrap();
        sound(desk.load_file(&path, &[], None, None));
    }

    #[test]
    fn any_sizes_are_planned_or_refused(
        sizes in prop::collection::vec(prop_oneof![1..300u64, any::<u64>(), Just(0), Just(u64::from(u32::MAX))], 10)
    ) {
        const KEYS: [&str; 10] = [
            "model.layers", "model.hidden", "model.heads", "model.seq_len", "model.ffn", "batch.micro",
            "batch.per_replica", "job.nodes", "job.ranks_per_node", "train.until.tokens",
        ];
        let desk = Desk::new();
        let set: Vec<String> = KEYS.iter().zip(&sizes).map(|(k, v)| format!("{k}={v}")).collect();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        sound(desk.load(GOOD, &set));
    }
}
