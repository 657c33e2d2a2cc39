//! Reads typed values out of a section: notes each fault, puts nothing or the default in its place, and goes on.
//!
//! The call that reads a key is the one home of that key: its name, words, kind, range and default. Reading a recipe
//! gives its values and faults; reading an empty one gives the JSON schema.

use super::diagnostic::{Diagnostic, Sources, Span};
use super::yaml::{Entry, Node, Origin, Value};
use std::ops::RangeInclusive;

mod values;

pub use values::{duration, parse_scalar, show_number};

/// A value with its place; a default has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Given<T> {
    pub value: T,
    pub at: Option<Span>,
    pub origin: Origin,
}

impl<T> Given<T> {
    /// A value the recipe does not give.
    pub fn default(value: T) -> Given<T> {
        Given {
            value,
            at: None,
            origin: Origin::Default,
        }
    }

    fn of(value: T, node: &Node) -> Given<T> {
        Given {
            value,
            at: Some(node.span),
            origin: node.origin,
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Given<U> {
        Given {
            value: f(self.value),
            at: self.at,
            origin: self.origin,
        }
    }
}

/// What a key takes, for the schema.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Text {
        pattern: Option<&'static str>,
    },
    Count {
        range: RangeInclusive<u64>,
    },
    Number {
        range: RangeInclusive<f64>,
    },
    Duration,
    Choice(Vec<&'static str>),
    /// As many as given, or any number.
    List {
        item: Box<Kind>,
        length: Option<usize>,
    },
    /// Words of the user as keys.
    Map(Box<Kind>),
    Any(Vec<Kind>),
    Section {
        keys: Vec<Key>,
        exactly_one: Vec<&'static str>,
    },
}

/// A key in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    pub name: &'static str,
    pub words: &'static str,
    pub kind: Kind,
    pub default: Option<String>,
    pub required: bool,
}

/// A value of the resolved recipe, for `--show`, resolved.yaml and placeholders.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// Dotted.
    pub key: String,
    pub value: Shown,
    pub origin: Origin,
    pub at: Option<Span>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// A number, a duration or a word of ours.
    Plain(String),
    /// A text of the user.
    Text(String),
    List(Vec<Shown>),
}

/// What reading gathers.
#[derive(Debug, Default)]
pub struct Notes {
    pub faults: Vec<Diagnostic>,
    pub resolved: Vec<Resolved>,
}

/// A map of the recipe, or its absence.
pub struct Section<'a> {
    node: Option<&'a Node>,
    /// Where to point when a key is missing.
    head: Option<Span>,
    path: String,
    notes: &'a mut Notes,
    keys: Vec<Key>,
    later: Vec<&'static str>,
    exactly_one: Vec<&'static str>,
    /// Read for the schema only: nothing is noted.
    mute: bool,
}

/// A key that takes a scalar or a map.
pub enum Either<T> {
    Absent,
    Scalar(Node),
    Map(T),
    /// Told already.
    Wrong,
}

impl<'a> Section<'a> {
    /// The whole recipe. `None` reads the schema.
    pub fn root(node: Option<&'a Node>, notes: &'a mut Notes) -> Section<'a> {
        Section {
            node,
            head: node.map(|n| Span {
                end: n.span.start,
                ..n.span
            }),
            path: String::new(),
            notes,
            keys: Vec::new(),
            later: Vec::new(),
            exactly_one: Vec::new(),
            mute: node.is_none(),
        }
    }

    /// Is anything written in this section?
    pub fn given(&self) -> bool {
        self.node.is_some() && !self.mute
    }

    /// The place of the section's key, or of the file.
    pub fn head(&self) -> Option<Span> {
        self.head
    }

    /// `name` with the section before it.
    pub fn dotted(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    pub fn fault(&mut self, fault: Diagnostic) {
        if !self.mute {
            self.notes.faults.push(fault);
        }
    }

    /// Keys the design knows and this version does not.
    pub fn later(&mut self, names: &[&'static str]) {
        self.later.extend(names);
    }

    fn entry(&self, name: &str) -> Option<&'a Entry> {
        match &self.node?.value {
            Value::Map(entries) => entries.iter().find(|e| e.key == name),
            _ => None,
        }
    }

    fn key(
        &mut self,
        name: &'static str,
        words: &'static str,
        kind: Kind,
        default: Option<String>,
    ) {
        self.keys.push(Key {
            name,
            words,
            kind,
            default,
            required: false,
        });
    }

    /// The value of `name`, if one is written; a key without a value is a fault.
    fn value(&mut self, name: &'static str) -> Option<&'a Node> {
        let entry = self.entry(name)?;
        if entry.value.value == Value::Null {
            let dotted = self.dotted(name);
            self.fault(
                Diagnostic::error("no-value", format!("`{dotted}` has no value"))
                    .at(entry.key_span, "nothing follows")
                    .help("give it a value, or remove the key for the default"),
            );
            return None;
        }
        Some(&entry.value)
    }

    fn resolved(&mut self, name: &str, value: Shown, origin: Origin, at: Option<Span>) {
        if !self.mute {
            let key = self.dotted(name);
            self.notes.resolved.push(Resolved {
                key,
                value,
                origin,
                at,
            });
        }
    }

    /// Notes a value that the recipe's other values decide.
    pub fn derived(&mut self, name: &str, value: impl std::fmt::Display) {
        self.resolved(name, Shown::Plain(value.to_string()), Origin::Default, None);
    }

    /// Notes a value read by [`Section::either`].
    pub fn seen(&mut self, name: &str, value: impl std::fmt::Display, node: &Node) {
        self.resolved(
            name,
            Shown::Plain(value.to_string()),
            node.origin,
            Some(node.span),
        );
    }

    /// The fault of a value of the wrong kind.
    pub fn wrong(&mut self, name: &str, node: &Node, reason: &str) {
        let fault = wrong(&self.dotted(name), node, reason);
        self.fault(fault);
    }

    /// A missing key; the section need not be there.
    pub fn missing(&mut self, name: &'static str, help: &str) {
        if let Some(key) = self.keys.iter_mut().find(|k| k.name == name) {
            key.required = true;
        }
        if self.entry(name).is_some() {
            return;
        }
        let fault = Diagnostic::error("missing-key", format!("`{}` is missing", self.dotted(name)))
            .at(self.head, "")
            .help(help);
        self.fault(fault);
    }

    /// A section below this one; it is read even if it is absent, for its defaults.
    pub fn section<T>(
        &mut self,
        name: &'static str,
        words: &'static str,
        body: impl FnOnce(&mut Section) -> T,
    ) -> T {
        let entry = self.entry(name);
        let node = self.value(name).and_then(|node| {
            if matches!(node.value, Value::Map(_)) {
                return Some(node);
            }
            self.wrong(name, node, "expected a map of keys");
            None
        });
        let head = entry.map(|e| e.key_span).or(self.head);
        let mute = self.mute;
        let (value, kind) = self.inner(name, node, head, mute, body);
        self.key(name, words, kind, None);
        value
    }

    /// A key that takes a scalar of `scalars` or a map.
    pub fn either<T>(
        &mut self,
        name: &'static str,
        words: &'static str,
        scalars: Kind,
        default: Option<String>,
        body: impl FnOnce(&mut Section) -> T,
    ) -> Either<T> {
        let entry = self.entry(name);
        let node = self.value(name);
        let map = node.filter(|n| matches!(n.value, Value::Map(_)));
        let head = entry.map(|e| e.key_span).or(self.head);
        let mute = self.mute || map.is_none();
        let (value, kind) = self.inner(name, map, head, mute, body);
        self.key(name, words, Kind::Any(vec![scalars, kind]), default);
        match node {
            None if entry.is_some() => Either::Wrong,
            None => Either::Absent,
            Some(node) => match &node.value {
                Value::Map(_) => Either::Map(value),
                Value::Scalar { .. } => Either::Scalar(node.clone()),
                _ => {
                    self.wrong(name, node, "expected a word or a map of keys");
                    Either::Wrong
                }
            },
        }
    }

    /// A list of maps, if given; each is read by `body`.
    pub fn maps<T>(
        &mut self,
        name: &'static str,
        words: &'static str,
        mut body: impl FnMut(&mut Section) -> T,
    ) -> Vec<T> {
        let head = self.entry(name).map(|e| e.key_span).or(self.head);
        let node = self.value(name);
        let (_, kind) = self.inner(name, None, head, true, &mut body);
        self.key(
            name,
            words,
            Kind::List {
                item: Box::new(kind),
                length: None,
            },
            None,
        );
        let Some(node) = node else {
            return Vec::new();
        };
        let Value::List(items) = &node.value else {
            self.wrong(name, node, "expected a list of maps");
            return Vec::new();
        };
        let mut read = Vec::new();
        for (index, item) in items.iter().enumerate() {
            if !matches!(item.value, Value::Map(_)) {
                self.wrong(name, item, "expected a map of keys");
                continue;
            }
            let mute = self.mute;
            let at = format!("{name}[{index}]");
            let head = Span {
                end: item.span.start,
                ..item.span
            };
            let (value, _) = self.inner(&at, Some(item), Some(head), mute, &mut body);
            read.push(value);
        }
        read
    }

    fn inner<T>(
        &mut self,
        name: &str,
        node: Option<&Node>,
        head: Option<Span>,
        mute: bool,
        body: impl FnOnce(&mut Section) -> T,
    ) -> (T, Kind) {
        let mut section = Section {
            node,
            head,
            path: self.dotted(name),
            notes: &mut *self.notes,
            keys: Vec::new(),
            later: Vec::new(),
            exactly_one: Vec::new(),
            mute,
        };
        let value = body(&mut section);
        (value, section.finish())
    }

    /// Of `names` exactly one may be given: a fault names those that are. True if so.
    pub fn exactly_one(&mut self, names: &[&'static str], required: bool, help: &str) -> bool {
        self.exactly_one = names.to_vec();
        let given: Vec<&Entry> = names.iter().filter_map(|name| self.entry(name)).collect();
        let path = self.path.clone();
        match given[..] {
            [_] => true,
            [] => {
                if required {
                    let fault = Diagnostic::error(
                        "missing-key",
                        format!("`{path}` needs one of {}", list(names)),
                    )
                    .at(self.head, "")
                    .help(help);
                    self.fault(fault);
                }
                false
            }
            [first, second, ..] => {
                let fault = Diagnostic::error(
                    "one-of",
                    format!("`{path}` takes exactly one of {}", list(names)),
                )
                .at(second.key_span, "and this")
                .at(first.key_span, "this is given")
                .help(help);
                self.fault(fault);
                false
            }
        }
    }

    /// Notes keys that are not known and gives the section's schema.
    pub fn finish(mut self) -> Kind {
        if let Some(Value::Map(entries)) = self.node.map(|n| &n.value) {
            for entry in entries {
                let known = self.keys.iter().any(|k| k.name == entry.key);
                if !known {
                    self.unknown(entry);
                }
            }
        }
        Kind::Section {
            keys: self.keys,
            exactly_one: self.exactly_one,
        }
    }

    fn unknown(&mut self, entry: &Entry) {
        let dotted = self.dotted(&entry.key);
        if self.later.contains(&entry.key.as_str()) {
            self.fault(
                Diagnostic::error(
                    "later-key",
                    format!("`{dotted}` comes with a later version"),
                )
                .at(entry.key_span, "not in force yet")
                .help("remove it"),
            );
            return;
        }
        let names: Vec<&str> = self.keys.iter().map(|k| k.name).collect();
        let help = match suggestion(&entry.key, names.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("keys here: {}", names.join(", ")),
        };
        self.fault(
            Diagnostic::error(
                "unknown-key",
                format!("unknown key `{}`", dotted.escape_debug()),
            )
            .at(entry.key_span, "")
            .help(help),
        );
    }
}

/// The word of `known` that `word` was probably meant to be.
pub fn suggestion<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // A longer one is no misspelt key, and comparing takes its length squared.
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase();
    known
        .map(|name| {
            (
                strsim::jaro_winkler(&lower, name),
                strsim::damerau_levenshtein(&lower, name),
                name,
            )
        })
        .filter(|(alike, edits, name)| *alike > 0.84 || *edits <= 1.max(name.len() / 4))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, _, name)| name)
}

/// The fault of a value of the wrong kind.
pub fn wrong(dotted: &str, node: &Node, reason: &str) -> Diagnostic {
    Diagnostic::error(
        "wrong-value",
        format!("`{dotted}`: {reason}, found {}", node.kind()),
    )
    .at(node.span, reason)
}

/// `a, b or c`.
pub fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("`{one}`"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|n| format!("`{n}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
}

/// Where spans point, for callers that show values.
pub fn place(sources: &Sources, at: Option<Span>) -> Option<String> {
    at.and_then(|span| sources.place(span))
        .map(|p| p.to_string())
}
