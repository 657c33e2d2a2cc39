//! Makes the report of a run from its records and keeps it in the run directory.

use super::accounting;
use super::standing::State;
use super::view;
use crate::report::document::Document;
use crate::report::{Records, Summary, compose, html, json, records};
use crate::store::RunDir;
use crate::store::journal::Outcome;
use crate::store::publish;
use crate::ui::style::{Style, width};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// A report that stands in the run directory.
#[derive(Debug, Clone)]
pub struct Written {
    /// report/report.html of the run.
    pub html: PathBuf,
    /// report/report.json of the run.
    pub json: PathBuf,
    pub summary: Summary,
    pub document: Document,
}

impl Written {
    /// The first figures and the loss curve as text, `width` columns wide.
    pub fn brief(&self, width: Option<usize>, style: Style) -> String {
        crate::report::text::brief(&self.document, width, style)
    }
}

/// In which form a report is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Html,
    Markdown,
    Json,
}

/// Summarises the records of `run`: at any time, also while it runs.
pub fn summarise(run: &RunDir) -> anyhow::Result<Summary> {
    let mut records: Records = records::read(run)?;
    let nothing = records.entries.is_empty()
        && records.attempts.is_empty()
        && records.plans.is_empty()
        && records.provenance.is_none();
    anyhow::ensure!(
        !nothing,
        "{} holds no records of a run: no journal, no plan, no attempt; name a run directory with --dir",
        run.path().display()
    );
    if Summary::of(&records).state.outcome.is_none() {
        records.ended = ended(run)?;
    }
    let over = records.ended.is_some() || view::has_ended(&records.entries);
    records.accounts = accounting::accounts(run, &records.entries, over);
    Ok(Summary::of(&records))
}

/// How a run of whose end its records say nothing ended, in the words of `haul status`.
fn ended(run: &RunDir) -> anyhow::Result<Option<(Outcome, String)>> {
    let view = view::look(run)?.view;
    let outcome = match view.state {
        State::Failed => Outcome::Failed,
        State::Cancelled => Outcome::Cancelled,
        _ => return Ok(None),
    };
    Ok(Some((outcome, view.words)))
}

/// Makes the report of `run` and replaces report/report.html and report/report.json.
pub fn write(run: &RunDir) -> anyhow::Result<Written> {
    let summary = summarise(run)?;
    let document = compose::compose(&summary);
    keep(run, summary, document)
}

fn keep(run: &RunDir, summary: Summary, document: Document) -> anyhow::Result<Written> {
    let page = html::render(&document)?;
    let data = json::render(&summary)?;
    let directory = run.report();
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let written = Written {
        html: directory.join("report.html"),
        json: directory.join("report.json"),
        summary,
        document,
    };
    publish::replace(&written.html, page.as_bytes())?;
    publish::replace(&written.json, data.as_bytes())?;
    Ok(written)
}

/// The report of `run` in `form`, for standard output or a file of the user's.
pub fn render(run: &RunDir, form: Form, style: Style) -> anyhow::Result<String> {
    let summary = summarise(run)?;
    Ok(match form {
        Form::Json => json::render(&summary)?,
        form => {
            let document = compose::compose(&summary);
            match form {
                Form::Html => html::render(&document)?,
                Form::Markdown => crate::report::markdown::render(&document),
                _ => crate::report::text::render(&document, width(), style),
            }
        }
    })
}

/// What `haul report` shows by default.
#[derive(Debug)]
pub struct Shown {
    pub text: String,
    /// Where the HTML stands, or why it could not be kept; absent in a colleague's run, where nothing is.
    pub kept: Option<Result<PathBuf, anyhow::Error>>,
}

/// The terminal report of `run`; the HTML and JSON are kept in the run directory where it is one's own.
pub fn show(run: &RunDir, style: Style) -> anyhow::Result<Shown> {
    let summary = summarise(run)?;
    let document = compose::compose(&summary);
    let text = crate::report::text::render(&document, width(), style);
    let kept = publish::is_ours(run.path())
        .then(|| keep(run, summary, document).map(|written| written.html));
    Ok(Shown { text, kept })
}

/// Writes `content` to `path`, replacing what stands there.
pub fn save(path: &Path, content: &str) -> anyhow::Result<()> {
    // A path without directory has an empty parent, which cannot be opened.
    let path = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new(".").join(path),
        _ => path.to_path_buf(),
    };
    publish::replace(&path, content.as_bytes())?;
    Ok(())
}
