//! The only reader of YAML: text into a tree in which every key and value keeps its place.
//!
//! A small YAML: one document, no tags, no directives; anchors and aliases within a budget. Scalars stay text: what
//! `010` or `yes` means is decided by the section that reads it, so nothing is converted behind the user's back.

use super::diagnostic::{Diagnostic, Sources, Span};
use granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle};
use std::collections::HashMap;

/// Bytes of the largest file that is read.
pub const MAX_BYTES: u64 = 1 << 20;
/// Keys and values of the largest tree, aliases expanded.
const MAX_NODES: usize = 20_000;
/// Levels of the deepest tree.
const MAX_DEPTH: usize = 24;
/// Faults after which reading stops: a file with more is not a recipe.
const MAX_FAULTS: usize = 50;

/// Where a value came from; a later one wins over an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Default,
    Profile,
    User,
    Base,
    File,
    Set,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Origin::Default => "default",
            Origin::Profile => "profile",
            Origin::User => "user",
            Origin::Base => "base",
            Origin::File => "file",
            Origin::Set => "set",
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub value: Value,
    pub span: Span,
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value, `~` or `null`.
    Null,
    /// `quoted`: written in quotes or as a block, so never a number.
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<Node>),
    /// In the order written; keys are distinct.
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_span: Span,
    pub value: Node,
}

impl Node {
    /// For messages: what kind of thing this is.
    pub fn kind(&self) -> String {
        match &self.value {
            Value::Null => "nothing".into(),
            Value::Scalar { text, quoted } => {
                let mut shown: String = text.chars().take(40).collect();
                if shown.len() < text.len() {
                    shown.push_str("...");
                }
                let shown = shown.escape_debug();
                if *quoted {
                    format!("the text \"{shown}\"")
                } else {
                    format!("`{shown}`")
                }
            }
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Map(_) => "a map".into(),
        }
    }

    /// The value of `key`, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.value),
            _ => None,
        }
    }

    /// An unquoted or quoted scalar's text.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }
}

/// Reads `source` into a tree and notes each fault; `None` if there is no tree to go on with.
pub fn parse(
    sources: &Sources,
    source: usize,
    origin: Origin,
    faults: &mut Vec<Diagnostic>,
) -> Option<Node> {
    let text = &sources.get(source)?.text;
    Builder::new(text, source, 0, origin, faults).document()
}

/// Reads bytes `start..` of `source` as one flow value or scalar.
pub fn parse_value(
    sources: &Sources,
    source: usize,
    start: usize,
    origin: Origin,
    faults: &mut Vec<Diagnostic>,
) -> Option<Node> {
    let text = sources.get(source)?.text.get(start..)?;
    let trimmed = text.trim();
    let at = start + (text.len() - text.trim_start().len());
    if trimmed.starts_with(['{', '[', '"', '\'']) {
        return Builder::new(trimmed, source, at, origin, faults).document();
    }
    let span = Span {
        source,
        start: at,
        end: at + trimmed.len(),
    };
    Some(Node {
        value: plain(trimmed),
        span,
        origin,
    })
}

/// A scalar without quotes.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        text => Value::Scalar {
            text: text.to_string(),
            quoted: false,
        },
    }
}

/// A collection that is being read.
enum Open {
    List {
        items: Vec<Node>,
        start: usize,
        anchor: usize,
    },
    Map {
        entries: Vec<Entry>,
        /// Index of each key in `entries`.
        seen: HashMap<String, usize>,
        /// The key whose value comes next; its text is absent after a key that cannot be one.
        key: Option<(Option<String>, Span)>,
        start: usize,
        anchor: usize,
    },
}

struct Builder<'a> {
    text: &'a str,
    source: usize,
    offset: usize,
    origin: Origin,
    faults: &'a mut Vec<Diagnostic>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    root: Option<Node>,
}

/// Reading cannot go on; the reason is noted.
struct Stop;

impl<'a> Builder<'a> {
    fn new(
        text: &'a str,
        source: usize,
        offset: usize,
        origin: Origin,
        faults: &'a mut Vec<Diagnostic>,
    ) -> Self {
        Builder {
            text,
            source,
            offset,
            origin,
            faults,
            open: Vec::new(),
            anchors: HashMap::new(),
            nodes: 0,
            root: None,
        }
    }

    fn document(mut self) -> Option<Node> {
        let mut options = Options::default();
        options.disallow_directives = true;
        options.set_emit_comments(false);
        options.flow_nesting_limit = MAX_DEPTH;
        options.block_nesting_limit = MAX_DEPTH;
        let mut documents = 0;
        for event in Parser::new_from_str_with_options(self.text, options) {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    self.syntax(error.kind(), error.marker(), &error.info());
                    return None;
                }
            };
            let span = self.span(span.start, span.end);
            if matches!(event, Event::DocumentStart(..)) {
                documents += 1;
                if documents > 1 {
                    self.fault(
                        Diagnostic::error("several-documents", "a second document starts here")
                            .at(span, "")
                            .help("keep one document a file: remove the `---` line and what follows it"),
                    );
                    return None;
                }
            }
            if self.event(event, span).is_err() {
                return None;
            }
        }
        self.root
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        let tag = match &event {
            Event::Scalar(_, _, _, tag)
            | Event::SequenceStart(_, _, tag)
            | Event::MappingStart(_, _, tag) => tag.is_some(),
            _ => false,
        };
        if tag {
            self.fault(
                Diagnostic::error("tag", "tags such as `!!str` have no meaning here")
                    .at(span, "")
                    .help("remove the tag; put the value in quotes if it must be a text"),
            );
        }
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let value = match style {
                    ScalarStyle::Plain => plain(&text),
                    _ => Value::Scalar {
                        text: text.into_owned(),
                        quoted: true,
                    },
                };
                self.place(value, span, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.push(
                Open::List {
                    items: Vec::new(),
                    start: span.start,
                    anchor,
                },
                span,
            ),
            Event::MappingStart(_, anchor, _) => self.push(
                Open::Map {
                    entries: Vec::new(),
                    seen: HashMap::new(),
                    key: None,
                    start: span.start,
                    anchor,
                },
                span,
            ),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List {
                    items,
                    start,
                    anchor,
                }) => {
                    let end = items.last().map_or(span.end, |n| n.span.end.max(span.end));
                    self.place(Value::List(items), Span { start, end, ..span }, anchor)
                }
                Some(Open::Map {
                    entries,
                    start,
                    anchor,
                    ..
                }) => {
                    let end = entries
                        .last()
                        .map_or(span.end, |e| e.value.span.end.max(span.end));
                    self.place(Value::Map(entries), Span { start, end, ..span }, anchor)
                }
                None => Ok(()),
            },
            Event::Alias(id) => self.alias(id, span),
            _ => Ok(()),
        }
    }

    fn push(&mut self, open: Open, span: Span) -> Result<(), Stop> {
        if self.open.len() >= MAX_DEPTH {
            self.fault(
                Diagnostic::error(
                    "too-deep",
                    format!("more than {MAX_DEPTH} levels of nesting"),
                )
                .at(span, "")
                .help("a recipe has at most 5 levels; is this the right file?"),
            );
            return Err(Stop);
        }
        self.open.push(open);
        Ok(())
    }

    fn alias(&mut self, id: usize, span: Span) -> Result<(), Stop> {
        // An alias inside its own anchor has no entry yet.
        let Some((node, size)) = self.anchors.get(&id).cloned() else {
            self.fault(
                Diagnostic::error("alias", "this alias stands inside what it refers to")
                    .at(span, "")
                    .help("write the value out"),
            );
            return Err(Stop);
        };
        self.count(size, span)?;
        let mut node = node;
        if matches!(node.value, Value::Scalar { .. } | Value::Null) {
            node.span = span;
        }
        self.insert(node)
    }

    fn count(&mut self, more: usize, span: Span) -> Result<(), Stop> {
        self.nodes += more;
        if self.nodes > MAX_NODES {
            self.fault(
                Diagnostic::error(
                    "too-large",
                    format!("more than {MAX_NODES} keys and values, aliases expanded"),
                )
                .at(span, "reading stops here")
                .help("a recipe has some dozens; is this the right file?"),
            );
            return Err(Stop);
        }
        Ok(())
    }

    fn place(&mut self, value: Value, span: Span, anchor: usize) -> Result<(), Stop> {
        self.count(1, span)?;
        let node = Node {
            value,
            span,
            origin: self.origin,
        };
        if anchor != 0 {
            let size = size(&node);
            self.anchors.insert(anchor, (node.clone(), size));
        }
        self.insert(node)
    }

    fn insert(&mut self, node: Node) -> Result<(), Stop> {
        let mut fault = None;
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map {
                entries, seen, key, ..
            }) => match key.take() {
                None => match node.value {
                    Value::Scalar { text, .. } => *key = Some((Some(text), node.span)),
                    // A key like `null:` is a text to whoever wrote it.
                    Value::Null if node.span.end > node.span.start => {
                        *key = Some((Some("null".into()), node.span));
                    }
                    _ => {
                        *key = Some((None, node.span));
                        fault = Some(
                            Diagnostic::error("key", "a key must be a word")
                                .at(node.span, "not a word"),
                        );
                    }
                },
                Some((None, _)) => {}
                Some((Some(name), key_span)) => {
                    if let Some(first) = seen.get(&name).and_then(|at| entries.get(*at)) {
                        fault = Some(
                            Diagnostic::error(
                                "duplicate-key",
                                format!("`{}` is given twice", name.escape_debug()),
                            )
                            .at(key_span, "given again here")
                            .at(first.key_span, "first given here")
                            .help("remove one of the two"),
                        );
                    } else {
                        seen.insert(name.clone(), entries.len());
                        entries.push(Entry {
                            key: name,
                            key_span,
                            value: node,
                        });
                    }
                }
            },
        }
        match fault {
            Some(fault) => {
                self.fault(fault);
                if self.faults.len() >= MAX_FAULTS {
                    return Err(Stop);
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn fault(&mut self, fault: Diagnostic) {
        self.faults.push(fault);
    }

    fn span(&self, start: Marker, end: Marker) -> Span {
        let at = |marker: Marker| {
            let byte = marker.byte_offset().unwrap_or_else(|| {
                self.text
                    .char_indices()
                    .nth(marker.index())
                    .map_or(self.text.len(), |(at, _)| at)
            });
            self.offset + byte.min(self.text.len())
        };
        let start = at(start);
        Span {
            source: self.source,
            start,
            end: at(end).max(start),
        }
    }

    /// Words for a text that is not YAML.
    fn syntax(&mut self, kind: &ErrorKind, marker: &Marker, info: &str) {
        let mut span = self.span(*marker, *marker);
        let local = span.start - self.offset;
        let line_start = self.text[..local].rfind('\n').map_or(0, |at| at + 1);
        let indent = self.text[line_start..]
            .find(|c: char| c != ' ' && c != '\t')
            .map_or(self.text.len(), |at| line_start + at);
        let tab = self.text[line_start..indent].find('\t');
        let diagnostic = if let Some(tab) = tab {
            span.start = self.offset + line_start + tab;
            span.end = span.start + 1;
            Diagnostic::error("tab", "a tab in the indentation")
                .at(span, "this is a tab")
                .help("indent with spaces")
        } else {
            span.end = (span.start + 1).min(self.offset + self.text.len());
            match kind {
                ErrorKind::UnknownAnchor => {
                    Diagnostic::error("alias", "this alias refers to no anchor before it")
                        .at(span, "")
                        .help("write the value out; a text that starts with `*` needs quotes")
                }
                ErrorKind::DirectiveDisallowed => {
                    Diagnostic::error("directive", "directives have no meaning here")
                        .at(span, "")
                        .help("remove the line")
                }
                _ => Diagnostic::error("syntax", format!("not valid YAML: {info}"))
                    .at(span, "reading stops here")
                    .help("is the line before it indented and quoted as meant? `: ` and ` #` in a text need quotes"),
            }
        };
        self.fault(diagnostic);
    }
}

/// Number of nodes of a tree.
fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(items) => items.iter().map(size).sum(),
        Value::Map(entries) => entries.iter().map(|e| 1 + size(&e.value)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
