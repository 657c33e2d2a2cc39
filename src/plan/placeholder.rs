//! `{dotted.key}` in commands and variables: finds them, checks them, puts values in their place.

/// Keys whose values an attempt decides, beside those of the plan.
pub const DYNAMIC: [&str; 6] = [
    "root",
    "run_dir",
    "attempt",
    "job.minutes_left",
    "checkpoint.save",
    "checkpoint.load",
];

/// Why a text with braces cannot be read. `start..end` are bytes of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub start: usize,
    pub end: usize,
    pub kind: FaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// A `{` or `}` that is neither doubled nor part of a placeholder.
    Brace(char),
    /// No value has this key.
    Unknown(String),
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    Key(&'a str, usize),
}

/// Cuts `text` into pieces; `{{` and `}}` are braces.
pub fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Fault> {
    let mut pieces = Vec::new();
    let mut from = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while at < bytes.len() {
        let brace = bytes[at];
        if brace != b'{' && brace != b'}' {
            at += 1;
            continue;
        }
        if bytes.get(at + 1) == Some(&brace) {
            pieces.push(Piece::Text(&text[from..=at]));
            at += 2;
            from = at;
            continue;
        }
        let fault = Fault {
            start: at,
            end: at + 1,
            kind: FaultKind::Brace(char::from(brace)),
        };
        if brace == b'}' {
            return Err(fault);
        }
        let length = bytes[at + 1..]
            .iter()
            .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')));
        match length {
            Some(length) if length > 0 && bytes[at + 1 + length] == b'}' => {
                pieces.push(Piece::Text(&text[from..at]));
                pieces.push(Piece::Key(&text[at + 1..at + 1 + length], at));
                at += length + 2;
                from = at;
            }
            _ => return Err(fault),
        }
    }
    pieces.push(Piece::Text(&text[from..]));
    Ok(pieces)
}

/// `text` with the value of each key in its place.
pub fn fill(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, Fault> {
    let mut filled = String::with_capacity(text.len());
    for piece in pieces(text)? {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Key(key, start) => match value(key) {
                Some(value) => filled.push_str(&value),
                None => {
                    return Err(Fault {
                        start,
                        end: start + key.len() + 2,
                        kind: FaultKind::Unknown(key.to_string()),
                    });
                }
            },
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(key: &str) -> Option<String> {
        matches!(key, "parallel.tensor" | "root").then(|| format!("<{key}>"))
    }

    #[test]
    fn keys_are_replaced_and_doubled_braces_are_braces() {
        assert_eq!(
            fill("-t{parallel.tensor}{root}/x", value).unwrap(),
            "-t<parallel.tensor><root>/x"
        );
        assert_eq!(fill("{{a}} {{{root}}}", value).unwrap(), "{a} {<root>}");
        assert_eq!(fill("", value).unwrap(), "");
    }

    #[test]
    fn stray_braces_and_unknown_keys_are_told_with_their_place() {
        for (text, start, kind) in [
            ("a{", 1, FaultKind::Brace('{')),
            ("a{}", 1, FaultKind::Brace('{')),
            ("{a b}", 0, FaultKind::Brace('{')),
            ("x}", 1, FaultKind::Brace('}')),
            ("é{nope}", 2, FaultKind::Unknown("nope".into())),
        ] {
            let fault = fill(text, value).unwrap_err();
            assert_eq!((fault.start, fault.kind), (start, kind), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_with_doubled_braces_comes_out_as_it_was(text in ".{0,40}") {
            let doubled = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(fill(&doubled, value), Ok(text));
        }

        #[test]
        fn any_text_is_filled_or_refused(text in "[{}a-z.é]{0,20}") {
            let _ = fill(&text, value);
        }
    }
}
