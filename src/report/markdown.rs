//! The report as Markdown, for issues and notebooks: figures and tables, no charts.

use super::document::{Block, Document, Figure};
use crate::ui::table::{Align, Table};

pub fn render(document: &Document) -> String {
    let mut out = format!("# {}\n\n", escape(&document.title));
    out.push_str(&format!(
        "**{}** · `{}`",
        escape(&document.state),
        document.run.replace('`', "'")
    ));
    for tag in &document.tags {
        out.push_str(&format!(" · {}", escape(tag)));
    }
    out.push_str("\n\n");
    if !document.words.is_empty() {
        out.push_str(&format!("{}\n\n", escape(&document.words)));
    }
    for warning in &document.warnings {
        out.push_str(&format!("> warning: {}\n", escape(warning)));
    }
    if !document.warnings.is_empty() {
        out.push('\n');
    }
    figures(&document.tiles, &mut out);
    for section in &document.sections {
        out.push_str(&format!("## {}\n\n", section.title));
        for block in &section.blocks {
            match block {
                Block::Words(words) => out.push_str(&format!("{}\n\n", escape(words))),
                Block::Figures(list) => figures(list, &mut out),
                Block::Table(rows) => table(rows, &mut out),
                Block::Shares(shares) => {
                    table(&shares.table(), &mut out);
                    out.push_str(&format!("100 % is {}.\n\n", escape(&shares.whole)));
                }
                Block::Log(lines) => log(lines, &mut out),
                Block::Loss(_) | Block::StepTimes(_) => {}
            }
        }
    }
    if !document.definitions.is_empty() {
        out.push_str("## Definitions\n\n");
        for (label, means) in &document.definitions {
            out.push_str(&format!("- **{}**: {}\n", escape(label), escape(means)));
        }
        out.push('\n');
    }
    out.push_str(&format!("_{}_\n", escape(&document.footer)));
    out
}

fn figures(figures: &[Figure], out: &mut String) {
    let mut rows = Table::new(&["figure", ">value", "note"]);
    for figure in figures {
        rows.row([&figure.label, &figure.value, &figure.note].map(String::clone));
    }
    table(&rows, out);
}

fn table(table: &Table, out: &mut String) {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    out.push_str(&row(&table.headers));
    for align in &table.align {
        out.push_str(match align {
            Align::Left => "|---",
            Align::Right => "|---:",
        });
    }
    out.push_str("|\n");
    for cells in &table.rows {
        out.push_str(&row(cells));
    }
    out.push('\n');
}

/// A fenced block longer than any fence in it.
fn log(lines: &[String], out: &mut String) {
    let text = lines.join("\n");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    out.push_str(&format!("{fence}\n{text}\n{fence}\n\n"));
}

/// Text that Markdown and the HTML it becomes show as it is, in one line.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            c if c.is_control() => {}
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}
