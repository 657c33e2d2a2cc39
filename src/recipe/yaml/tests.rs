//! Places, broken texts, budgets, and any text at all.

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> (Option<Node>, Vec<String>) {
    let mut sources = Sources::default();
    let source = sources.add("r.yaml", text, "/");
    let mut faults = Vec::new();
    let node = parse(&sources, source, Origin::File, &mut faults);
    let told = faults
        .iter()
        .map(|f| {
            let place = f.labels.first().and_then(|(span, _)| sources.place(*span));
            format!(
                "{}: {}",
                place.map_or_else(String::new, |p| p.to_string()),
                f.message
            )
        })
        .collect();
    (node, told)
}

#[test]
fn keys_and_values_keep_their_places() {
    let text = "a: 1\nb:\n  c: [x, \"y z\"]\n  d: {e: ä, f: g}\n";
    let (node, faults) = read(text);
    assert_eq!(faults, Vec::<String>::new());
    let node = node.unwrap();
    let slice = |span: Span| &text[span.start..span.end];
    let b = node.get("b").unwrap();
    let Value::List(items) = &b.get("c").unwrap().value else {
        panic!("{b:?}")
    };
    assert_eq!(slice(items[1].span), "\"y z\"");
    assert_eq!(items[1].text(), Some("y z"));
    let f = b.get("d").unwrap().get("f").unwrap();
    assert_eq!(slice(f.span), "g");
    assert_eq!(slice(b.get("d").unwrap().span), "{e: ä, f: g}");
}

#[test]
fn each_kind_of_broken_text_is_told_with_its_place() {
    for (text, told) in [
        ("a: 1\nb: 2\na: 3\n", "r.yaml:3:1: `a` is given twice"),
        ("a:\n\tb: 1\n", "r.yaml:2:1: a tab in the indentation"),
        (
            "a: 1\n---\nb: 2\n",
            "r.yaml:2:1: a second document starts here",
        ),
        (
            "a: *x\n",
            "r.yaml:1:4: this alias refers to no anchor before it",
        ),
        (
            "a: !!str 1\n",
            "r.yaml:1:10: tags such as `!!str` have no meaning here",
        ),
        (
            "%YAML 1.2\n---\na: 1\n",
            "r.yaml:1:1: directives have no meaning here",
        ),
        ("? [x]\n: 1\n", "r.yaml:1:3: a key must be a word"),
    ] {
        let (_, faults) = read(text);
        assert_eq!(faults, [told], "{text:?}");
    }
    let (node, faults) = read("a: [1, 2\nb: 3\n");
    assert!(
        node.is_none() && faults[0].contains("not valid YAML"),
        "{faults:?}"
    );
}

#[test]
fn an_alias_bomb_and_a_deep_tree_are_refused_by_budget() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_string();
    for (at, name) in ('b'..='h').enumerate() {
        let previous = char::from(b'a' + at as u8);
        let list = vec![format!("*{previous}"); 10].join(", ");
        bomb.push_str(&format!("{name}: &{name} [{list}]\n"));
    }
    let (node, faults) = read(&bomb);
    assert!(
        node.is_none() && faults[0].contains("more than 20000 keys and values"),
        "{faults:?}"
    );
    for text in ["[".repeat(5000), "- ".repeat(5000), "{a: ".repeat(5000)] {
        let (node, faults) = read(&text);
        assert!(node.is_none() && faults.len() == 1, "{faults:?}");
    }
    let (node, faults) = read("a: &a [1, *a]\n");
    assert!(node.is_none() && faults.len() == 1, "{faults:?}");
}

#[test]
fn an_alias_within_the_budget_is_its_value() {
    let (node, faults) = read("a: &x {b: 1}\nc: *x\n");
    assert_eq!(faults, Vec::<String>::new());
    assert_eq!(
        node.unwrap().get("c").unwrap().get("b").unwrap().text(),
        Some("1")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_a_tree_or_a_fault_with_a_place_inside(
        text in "([ \t\n:\\-\\[\\]{},&*#!|>'\"%@`?~\\\\]|[a-z]|é|\u{0}|\u{feff}){0,80}"
    ) {
        let mut sources = Sources::default();
        let source = sources.add("r.yaml", text.as_str(), "/");
        let mut faults = Vec::new();
        let node = parse(&sources, source, Origin::File, &mut faults);
        prop_assert!(node.is_some() || !faults.is_empty() || text.trim_matches(['\u{feff}', ' ', '\n', '\t', '-', '.', '#']).is_empty() || text.contains('#') || text.contains("..."), "{text:?}");
        for fault in &faults {
            let (span, _) = fault.labels[0];
            prop_assert!(span.start <= span.end && span.end <= text.len());
            // Must not panic on any span.
            let _ = fault.render(&sources, crate::recipe::diagnostic::Style::Plain);
        }
    }
}
