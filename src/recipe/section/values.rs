//! Reads the values of keys: counts, numbers, texts, lists, words of ours and words of the user.

use super::{Given, Kind, Section, Shown, list};
use crate::recipe::diagnostic::Diagnostic;
use crate::recipe::scalar;
use crate::recipe::yaml::{Node, Origin, Value};
use std::ops::RangeInclusive;

impl Section<'_> {
    fn scalar<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Given<T>> {
        let node = self.value(name)?;
        match parse_scalar(node, parse) {
            Ok(value) => Some(Given::of(value, node)),
            Err(reason) => {
                self.wrong(name, node, &reason);
                None
            }
        }
    }

    /// A whole number in `range`, if given.
    pub fn count(
        &mut self,
        name: &'static str,
        words: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<Given<u64>> {
        self.key(
            name,
            words,
            Kind::Count {
                range: range.clone(),
            },
            None,
        );
        let given = self.scalar(name, |text| in_range(scalar::count(text)?, &range))?;
        self.resolved(
            name,
            Shown::Plain(given.value.to_string()),
            given.origin,
            given.at,
        );
        Some(given)
    }

    /// A whole number with a default.
    pub fn count_or(
        &mut self,
        name: &'static str,
        words: &'static str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Given<u64> {
        let given = self.count(name, words, range);
        self.or(name, given, default, default.to_string())
    }

    /// A number in `range`, if given.
    pub fn number(
        &mut self,
        name: &'static str,
        words: &'static str,
        range: RangeInclusive<f64>,
    ) -> Option<Given<f64>> {
        self.key(
            name,
            words,
            Kind::Number {
                range: range.clone(),
            },
            None,
        );
        let given = self.scalar(name, |text| in_range(scalar::number(text)?, &range))?;
        self.resolved(
            name,
            Shown::Plain(show_number(given.value)),
            given.origin,
            given.at,
        );
        Some(given)
    }

    /// A number with a default.
    pub fn number_or(
        &mut self,
        name: &'static str,
        words: &'static str,
        range: RangeInclusive<f64>,
        default: f64,
    ) -> Given<f64> {
        let given = self.number(name, words, range);
        self.or(name, given, default, show_number(default))
    }

    /// A duration in seconds, not 0, if given.
    pub fn duration(&mut self, name: &'static str, words: &'static str) -> Option<Given<u64>> {
        self.key(name, words, Kind::Duration, None);
        let given = self.scalar(name, duration)?;
        self.resolved(
            name,
            Shown::Plain(scalar::show_duration(given.value)),
            given.origin,
            given.at,
        );
        Some(given)
    }

    /// A text, if given. `pattern` is for the schema; the caller checks it.
    pub fn text(
        &mut self,
        name: &'static str,
        words: &'static str,
        pattern: Option<&'static str>,
    ) -> Option<Given<String>> {
        self.key(name, words, Kind::Text { pattern }, None);
        let node = self.value(name)?;
        let given = Given::of(self.plain_text(name, node)?, node);
        self.resolved(
            name,
            Shown::Text(given.value.clone()),
            given.origin,
            given.at,
        );
        Some(given)
    }

    /// A text's value; NUL can stand nowhere.
    fn plain_text(&mut self, name: &str, node: &Node) -> Option<String> {
        let Value::Scalar { text, .. } = &node.value else {
            let fault = super::wrong(&self.dotted(name), node, "expected a text");
            self.fault(fault.help("a text that starts with `{` or `[` needs quotes"));
            return None;
        };
        if text.contains('\0') {
            self.wrong(name, node, "expected a text without NUL characters");
            return None;
        }
        Some(text.clone())
    }

    /// An amount of memory in bytes, such as `512GiB`, if given.
    pub fn memory(&mut self, name: &'static str, words: &'static str) -> Option<Given<u64>> {
        let pattern = Some("^[0-9]+(KiB|MiB|GiB|TiB)$");
        self.key(name, words, Kind::Text { pattern }, None);
        let given = self.scalar(name, scalar::memory)?;
        self.resolved(
            name,
            Shown::Plain(given.value.to_string()),
            given.origin,
            given.at,
        );
        Some(given)
    }

    /// `true` or `false`, with a default.
    pub fn flag_or(
        &mut self,
        name: &'static str,
        words: &'static str,
        default: bool,
    ) -> Given<bool> {
        let choices = [("true", true), ("false", false)];
        let default = choices[usize::from(!default)];
        self.choice(name, words, &choices, &[], default)
    }

    /// One of the words of `choices`; `later` are those of a later version.
    pub fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        words: &'static str,
        choices: &[(&'static str, T)],
        later: &[&'static str],
        default: (&'static str, T),
    ) -> Given<T> {
        let names: Vec<&'static str> = choices.iter().map(|(word, _)| *word).collect();
        self.key(name, words, Kind::Choice(names), None);
        let given = self.scalar(name, |text| one_of(text, choices, later));
        if let Some(given) = &given {
            self.resolved(
                name,
                Shown::Plain(given.value.0.into()),
                given.origin,
                given.at,
            );
        }
        let given = given.map(|g| g.map(|(_, value)| value));
        self.or(name, given, default.1, default.0.into())
    }

    /// A list of words of `choices`, each once, if given; `later` are those of a later version.
    pub fn choices<T: Copy>(
        &mut self,
        name: &'static str,
        words: &'static str,
        choices: &[(&'static str, T)],
        later: &[&'static str],
    ) -> Option<Vec<T>> {
        let names: Vec<&'static str> = choices.iter().map(|(word, _)| *word).collect();
        let kind = Kind::List {
            item: Box::new(Kind::Choice(names.clone())),
            length: None,
        };
        self.key(name, words, kind, None);
        let node = self.value(name)?;
        let Value::List(items) = &node.value else {
            let reason = format!("expected a list of {}", list(&names));
            self.wrong(name, node, &reason);
            return None;
        };
        let (mut read, mut shown, mut sound) = (Vec::new(), Vec::new(), true);
        for item in items {
            match parse_scalar(item, |text| one_of(text, choices, later)) {
                Ok((word, value)) => {
                    read.push(value);
                    shown.push(Shown::Plain(word.into()));
                }
                Err(reason) => {
                    self.wrong(name, item, &reason);
                    sound = false;
                }
            }
        }
        self.resolved(name, Shown::List(shown), node.origin, Some(node.span));
        sound.then_some(read)
    }

    fn or<T>(
        &mut self,
        name: &str,
        given: Option<Given<T>>,
        default: T,
        shown: String,
    ) -> Given<T> {
        if let Some(key) = self.keys.last_mut() {
            key.default = Some(shown.clone());
        }
        given.unwrap_or_else(|| {
            self.resolved(name, Shown::Plain(shown), Origin::Default, None);
            Given::default(default)
        })
    }

    /// Two numbers in `range` with a default.
    pub fn pair_or(
        &mut self,
        name: &'static str,
        words: &'static str,
        range: RangeInclusive<f64>,
        default: [f64; 2],
    ) -> Given<[f64; 2]> {
        let kind = Kind::List {
            item: Box::new(Kind::Number {
                range: range.clone(),
            }),
            length: Some(2),
        };
        let shown =
            |pair: [f64; 2]| Shown::List(pair.map(|x| Shown::Plain(show_number(x))).to_vec());
        let text = format!("[{}, {}]", show_number(default[0]), show_number(default[1]));
        self.key(name, words, kind, Some(text));
        let given = self.value(name).and_then(|node| {
            let Value::List(items) = &node.value else {
                self.wrong(name, node, "expected a list of two numbers");
                return None;
            };
            let [first, second] = &items[..] else {
                self.wrong(name, node, "expected a list of two numbers");
                return None;
            };
            let mut pair = [0.0; 2];
            for (to, item) in pair.iter_mut().zip([first, second]) {
                match parse_scalar(item, |text| in_range(scalar::number(text)?, &range)) {
                    Ok(value) => *to = value,
                    Err(reason) => {
                        self.wrong(name, item, &reason);
                        return None;
                    }
                }
            }
            Some(Given::of(pair, node))
        });
        let given = given.unwrap_or_else(|| Given::default(default));
        self.resolved(name, shown(given.value), given.origin, given.at);
        given
    }

    /// A list of texts, if given.
    pub fn texts(
        &mut self,
        name: &'static str,
        words: &'static str,
    ) -> Option<Given<Vec<Given<String>>>> {
        let kind = Kind::List {
            item: Box::new(Kind::Text { pattern: None }),
            length: None,
        };
        self.key(name, words, kind, None);
        let node = self.value(name)?;
        let Value::List(items) = &node.value else {
            self.wrong(name, node, "expected a list of texts, such as [a, b]");
            return None;
        };
        let mut texts = Vec::new();
        for item in items {
            texts.push(Given::of(self.plain_text(name, item)?, item));
        }
        let shown = texts.iter().map(|t| Shown::Text(t.value.clone())).collect();
        self.resolved(name, Shown::List(shown), node.origin, Some(node.span));
        Some(Given::of(texts, node))
    }

    /// A map from words of the user to texts or lists of texts, in the order of the words.
    pub fn words(
        &mut self,
        name: &'static str,
        words: &'static str,
        lists: bool,
    ) -> Vec<(Given<String>, Vec<Given<String>>, bool)> {
        let text = Kind::Text { pattern: None };
        let item = if lists {
            Kind::Any(vec![
                text.clone(),
                Kind::List {
                    item: Box::new(text),
                    length: None,
                },
            ])
        } else {
            text
        };
        self.key(name, words, Kind::Map(Box::new(item)), None);
        let Some(node) = self.value(name) else {
            return Vec::new();
        };
        let Value::Map(entries) = &node.value else {
            self.wrong(name, node, "expected a map from names to texts");
            return Vec::new();
        };
        let mut read = Vec::new();
        for entry in entries {
            let dotted = format!("{name}.{}", entry.key);
            let key = Given {
                value: entry.key.clone(),
                at: Some(entry.key_span),
                origin: entry.value.origin,
            };
            let (values, quoted) = match &entry.value.value {
                Value::Null => {
                    let fault = Diagnostic::error(
                        "no-value",
                        format!("`{}` has no value", self.dotted(&dotted)),
                    )
                    .at(entry.key_span, "nothing follows")
                    .help("for an empty text write \"\"");
                    self.fault(fault);
                    continue;
                }
                Value::List(items) if lists => (
                    items
                        .iter()
                        .filter_map(|item| Some(Given::of(self.plain_text(&dotted, item)?, item)))
                        .collect(),
                    true,
                ),
                Value::Scalar { quoted, .. } => match self.plain_text(&dotted, &entry.value) {
                    Some(text) => (vec![Given::of(text, &entry.value)], *quoted),
                    None => continue,
                },
                _ => {
                    self.wrong(&dotted, &entry.value, "expected a text");
                    continue;
                }
            };
            let shown = match &entry.value.value {
                Value::List(_) => Shown::List(
                    values
                        .iter()
                        .map(|v| Shown::Text(v.value.clone()))
                        .collect(),
                ),
                // As written, so that a bare `true` stays one.
                _ if !quoted && lists => {
                    Shown::Plain(values.iter().map(|v| v.value.as_str()).collect())
                }
                _ => Shown::Text(values.iter().map(|v| v.value.as_str()).collect()),
            };
            self.resolved(&dotted, shown, entry.value.origin, Some(entry.value.span));
            read.push((key, values, quoted));
        }
        read.sort_by(|a, b| a.0.value.cmp(&b.0.value));
        read
    }
}

/// The word of `choices` that `text` is.
fn one_of<T: Copy>(
    text: &str,
    choices: &[(&'static str, T)],
    later: &[&'static str],
) -> Result<(&'static str, T), String> {
    if let Some(choice) = choices.iter().find(|(word, _)| *word == text) {
        return Ok(*choice);
    }
    let names: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    let expected = format!("expected one of {}", list(&names));
    Err(match later.contains(&text) {
        true => format!("`{text}` comes with a later version; {expected}"),
        false => expected,
    })
}

/// A scalar's value; quoted texts are no numbers.
pub fn parse_scalar<T>(
    node: &Node,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    match &node.value {
        Value::Scalar { text, quoted } => match (parse(text), quoted) {
            // Words may be quoted; `parse` decides.
            (Ok(value), _) if !quoted || text.parse::<f64>().is_err() => Ok(value),
            (Ok(_), _) => Err("expected a number without quotes".into()),
            (Err(reason), _) => Err(reason),
        },
        _ => parse("").and(Err("expected one value".into())),
    }
}

/// A duration that is not 0.
pub fn duration(text: &str) -> Result<u64, String> {
    match scalar::duration(text)? {
        0 => Err("expected a duration above 0".into()),
        seconds => Ok(seconds),
    }
}

fn in_range<T: PartialOrd + Copy + std::fmt::Display>(
    value: T,
    range: &RangeInclusive<T>,
) -> Result<T, String> {
    if range.contains(&value) {
        return Ok(value);
    }
    if value < *range.start() {
        Err(format!("expected at least {}", range.start()))
    } else {
        Err(format!("expected at most {}", range.end()))
    }
}

/// The shortest form that reads back to the same number.
pub fn show_number(value: f64) -> String {
    if value != 0.0 && (value.abs() < 1e-3 || value.abs() >= 1e7) {
        format!("{value:e}")
    } else {
        format!("{value}")
    }
}
