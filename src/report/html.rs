//! The report as one HTML file: no script, no network, all values escaped by the template.

use super::document::{Block, Document, Figure, Shares, Tone};
use super::plot::{self, Scene};
use crate::ui::table::{Align, Table};
use crate::ui::units;
use serde::Serialize;

const NAME: &str = "report.html";
const TEMPLATE: &str = include_str!("../../templates/report.html.tera");

#[derive(Debug, thiserror::Error)]
#[error("cannot write the report as HTML: {0}")]
pub struct HtmlError(Box<tera::Error>);

pub fn render(document: &Document) -> Result<String, HtmlError> {
    let boxed = |error: tera::Error| HtmlError(Box::new(error));
    let mut tera = tera::Tera::default();
    // Escaping goes by the name's ending; every name shall be escaped.
    tera.autoescape_on(vec![""]);
    tera.add_raw_template(NAME, TEMPLATE).map_err(boxed)?;
    let mut context = tera::Context::new();
    context.insert("page", &Page::of(document));
    tera.render(NAME, &context).map_err(boxed)
}

/// The document as the template reads it: every field present, charts as shapes.
#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    run: &'a str,
    tone: &'static str,
    state: &'a str,
    words: &'a str,
    tags: &'a [String],
    warnings: &'a [String],
    tiles: Vec<Pair<'a>>,
    sections: Vec<PageSection<'a>>,
    definitions: &'a [(String, String)],
    footer: &'a str,
}

#[derive(Serialize)]
struct Pair<'a> {
    label: &'a str,
    value: &'a str,
    note: &'a str,
    means: &'a str,
}

#[derive(Serialize)]
struct PageSection<'a> {
    id: &'a str,
    title: &'a str,
    blocks: Vec<PageBlock<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum PageBlock<'a> {
    Words {
        words: &'a str,
    },
    Figures {
        figures: Vec<Pair<'a>>,
    },
    Table {
        headers: Vec<Cell>,
        rows: Vec<Vec<Cell>>,
    },
    Chart {
        scene: Scene,
    },
    Shares {
        scene: Option<Scene>,
        title: &'a str,
        whole: &'a str,
        parts: Vec<PagePart<'a>>,
    },
    Log {
        lines: &'a [String],
    },
}

#[derive(Serialize)]
struct Cell {
    class: &'static str,
    text: String,
}

#[derive(Serialize)]
struct PagePart<'a> {
    class: String,
    label: &'a str,
    time: String,
    share: String,
    means: &'a str,
    note: &'a str,
}

impl<'a> Page<'a> {
    fn of(document: &'a Document) -> Page<'a> {
        Page {
            title: &document.title,
            run: &document.run,
            tone: match document.tone {
                Tone::Good => "good",
                Tone::Bad => "bad",
                Tone::Open => "open",
            },
            state: &document.state,
            words: &document.words,
            tags: &document.tags,
            warnings: &document.warnings,
            tiles: pairs(&document.tiles),
            sections: document
                .sections
                .iter()
                .map(|section| PageSection {
                    id: section.id,
                    title: section.title,
                    blocks: section.blocks.iter().filter_map(block).collect(),
                })
                .collect(),
            definitions: &document.definitions,
            footer: &document.footer,
        }
    }
}

fn pairs(figures: &[Figure]) -> Vec<Pair<'_>> {
    figures
        .iter()
        .map(|figure| Pair {
            label: &figure.label,
            value: &figure.value,
            note: &figure.note,
            means: figure.means,
        })
        .collect()
}

fn block(block: &Block) -> Option<PageBlock<'_>> {
    Some(match block {
        Block::Words(words) => PageBlock::Words { words },
        Block::Figures(figures) => PageBlock::Figures {
            figures: pairs(figures),
        },
        Block::Table(table) => PageBlock::Table {
            headers: cells(table, &table.headers),
            rows: table.rows.iter().map(|row| cells(table, row)).collect(),
        },
        Block::Loss(chart) => PageBlock::Chart {
            scene: plot::loss(chart)?,
        },
        Block::StepTimes(chart) => PageBlock::Chart {
            scene: plot::steps(chart)?,
        },
        Block::Shares(shares) => part_block(shares),
        Block::Log(lines) => PageBlock::Log { lines },
    })
}

fn cells(table: &Table, row: &[String]) -> Vec<Cell> {
    row.iter()
        .zip(&table.align)
        .map(|(text, align)| Cell {
            class: match align {
                Align::Left => "left",
                Align::Right => "right",
            },
            text: text.clone(),
        })
        .collect()
}

fn part_block(shares: &Shares) -> PageBlock<'_> {
    PageBlock::Shares {
        scene: plot::shares(shares),
        title: shares.title,
        whole: &shares.whole,
        parts: shares
            .parts
            .iter()
            .map(|part| PagePart {
                class: format!("c{}", part.colour % 10),
                label: &part.label,
                time: units::duration(part.seconds),
                share: part.share.map_or("–".into(), units::percent),
                means: part.means,
                note: &part.note,
            })
            .collect(),
    }
}
