//! Faults of a recipe with their places, and how they are shown to people and to programs.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet, renderer::DecorStyle};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// A range of bytes in one of [`Sources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub source: usize,
    pub start: usize,
    pub end: usize,
}

/// A text that values were read from.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file as the user named it, or `--set #1`.
    pub name: String,
    pub text: String,
    /// What relative paths in it are relative to.
    pub directory: PathBuf,
}

/// All texts that values were read from; [`Span::source`] is an index into it.
#[derive(Debug, Clone, Default)]
pub struct Sources(Vec<Arc<Source>>);

impl Sources {
    pub fn add(
        &mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        directory: impl Into<PathBuf>,
    ) -> usize {
        self.0.push(Arc::new(Source {
            name: name.into(),
            text: text.into(),
            directory: directory.into(),
        }));
        self.0.len() - 1
    }

    pub fn get(&self, source: usize) -> Option<&Source> {
        self.0.get(source).map(Arc::as_ref)
    }

    /// File, line and column of the start of `span`; both counted from 1, the column in characters.
    pub fn place(&self, span: Span) -> Option<Place<'_>> {
        let source = self.get(span.source)?;
        let before = source.text.get(..span.start)?;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Some(Place {
            file: &source.name,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        })
    }
}

/// Where something stands, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    pub file: &'a str,
    pub line: usize,
    pub column: usize,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

/// One fault: what is wrong, where, and what to do.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Stable name of the kind of fault, such as `unknown-key`.
    pub code: &'static str,
    /// Lowercase fragment without a full stop.
    pub message: String,
    /// The place to look at first, with a few words; the others explain it.
    pub labels: Vec<(Span, String)>,
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn error(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code,
            message: message.into(),
            labels: Vec::new(),
            help: None,
        }
    }

    pub fn warning(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(code, message)
        }
    }

    /// Adds a place; the first one added is the primary one. `None` (a default has no place) adds nothing.
    pub fn at(mut self, span: impl Into<Option<Span>>, label: impl Into<String>) -> Diagnostic {
        if let Some(span) = span.into() {
            self.labels.push((span, label.into()));
        }
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// As rustc shows it, with carets. `width` is the terminal's.
    pub fn render(&self, sources: &Sources, style: Style) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.message.as_str()));
        let mut shown: Vec<usize> = Vec::new();
        for (span, _) in &self.labels {
            let Some(source) = sources.get(span.source) else {
                continue;
            };
            if shown.contains(&span.source) {
                continue;
            }
            shown.push(span.source);
            let mut snippet = Snippet::source(source.text.as_str()).path(source.name.as_str());
            for (index, (at, label)) in self.labels.iter().enumerate() {
                if at.source != span.source {
                    continue;
                }
                let kind = if index == 0 {
                    AnnotationKind::Primary
                } else {
                    AnnotationKind::Context
                };
                snippet = snippet.annotation(
                    kind.span(visible(&source.text, *at))
                        .label((!label.is_empty()).then_some(label.as_str())),
                );
            }
            group = group.element(snippet);
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let renderer = match style {
            Style::Plain => Renderer::plain(),
            Style::Colour => Renderer::styled(),
        };
        renderer.decor_style(DecorStyle::Ascii).render(&[group])
    }

    /// For programs.
    pub fn to_json(&self, sources: &Sources) -> serde_json::Value {
        let place = self
            .labels
            .first()
            .and_then(|(span, _)| sources.place(*span));
        serde_json::json!({
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "file": place.map(|p| p.file),
            "line": place.map(|p| p.line),
            "column": place.map(|p| p.column),
            "help": self.help,
        })
    }
}

/// The part of a span worth underlining: its first line, on character boundaries, within the text.
fn visible(text: &str, span: Span) -> std::ops::Range<usize> {
    let floor = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = floor(span.start);
    let end = floor(span.end.max(span.start));
    let line_end = text[start..end].find('\n').map_or(end, |at| start + at);
    let trimmed = start + text[start..line_end].trim_end().len();
    start..trimmed.max(start)
}

/// How diagnostics are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Colour,
}

/// All faults of a recipe; at least one is an error.
#[derive(Debug, Clone)]
pub struct Faults {
    pub sources: Sources,
    pub list: Vec<Diagnostic>,
}

impl Faults {
    /// Every fault with its caret, then how many there are.
    pub fn render(&self, style: Style) -> String {
        let mut text = String::new();
        for diagnostic in &self.list {
            text.push_str(&diagnostic.render(&self.sources, style));
            text.push_str("\n\n");
        }
        let errors = self.errors();
        let plural = if errors == 1 { "" } else { "s" };
        text.push_str(&format!("{errors} error{plural} in the recipe\n"));
        text
    }

    fn errors(&self) -> usize {
        self.list
            .iter()
            .filter(|d| d.severity == Severity::Error)
            .count()
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.render(Style::Plain).trim_end())
    }
}

impl std::error::Error for Faults {}

/// Objects with file, line, column, code, message, help.
pub fn faults_json(list: &[Diagnostic], sources: &Sources) -> Vec<serde_json::Value> {
    list.iter().map(|d| d.to_json(sources)).collect()
}
