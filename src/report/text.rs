//! The report for a terminal.

use super::document::{Block, Document, Figure, LossChart, Shares, StepChart, Tone};
use crate::ui::curve::{self, Series};
use crate::ui::style::{Style, columns, visible};
use crate::ui::table::{Table, wrap};

/// No line is made wider than this, however wide the terminal is.
const WIDEST: usize = 110;

/// Text of `document` for a terminal of `width` columns.
pub fn render(document: &Document, width: Option<usize>, style: Style) -> String {
    let mut text = Text::new(width, style);
    text.head(document);
    for section in &document.sections {
        text.title(section.title);
        for (i, block) in section.blocks.iter().enumerate() {
            let apart = matches!(
                block,
                Block::Figures(_) | Block::Table(_) | Block::Shares(_)
            );
            if i > 0 && apart {
                text.out.push('\n');
            }
            text.block(block);
        }
    }
    if !document.definitions.is_empty() {
        text.title("Definitions");
        for (label, means) in &document.definitions {
            text.wrapped(label, means);
        }
    }
    text.out.push('\n');
    text.line(&style.dim(&visible(&document.footer)));
    text.out
}

/// The first figures and the loss curve only: what is shown at the end of a run.
pub fn brief(document: &Document, width: Option<usize>, style: Style) -> String {
    let mut text = Text::new(width, style);
    text.head(document);
    let blocks = document.sections.iter().flat_map(|section| &section.blocks);
    for block in blocks.filter(|block| matches!(block, Block::Loss(_))) {
        text.out.push('\n');
        text.block(block);
    }
    text.out
}

struct Text {
    out: String,
    width: usize,
    style: Style,
}

impl Text {
    fn new(width: Option<usize>, style: Style) -> Text {
        Text {
            out: String::new(),
            width: width.unwrap_or(100).clamp(40, WIDEST),
            style,
        }
    }

    fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    /// `text` broken into lines; `label` stands before the first in yellow, blanks before the others.
    fn words(&mut self, text: &str, label: &str, paint: fn(Style, &str) -> String) {
        let indent = columns(label);
        for (i, line) in wrap(&visible(text), self.width - indent).iter().enumerate() {
            let before = match i {
                0 => self.style.yellow(label),
                _ => " ".repeat(indent),
            };
            let line = paint(self.style, line);
            self.line(&format!("{before}{line}"));
        }
    }

    fn head(&mut self, document: &Document) {
        let style = self.style;
        let state = visible(&document.state);
        let state = match document.tone {
            Tone::Good => style.green(&state),
            Tone::Bad => style.red(&state),
            Tone::Open => style.yellow(&state),
        };
        let title = visible(&document.title);
        self.line(&format!(
            "{}  {state}  {}",
            style.bold(&title),
            style.dim(&visible(&document.run))
        ));
        self.words(&document.words, "", |_, line| line.to_owned());
        self.words(&document.tags.join(" · "), "", Style::dim);
        for warning in &document.warnings {
            self.words(warning, "warning: ", |_, line| line.to_owned());
        }
        self.out.push('\n');
        self.tiles(&document.tiles);
    }

    /// Tiles beside each other: labels, values, notes in three lines.
    fn tiles(&mut self, tiles: &[Figure]) {
        let widths: Vec<usize> = tiles
            .iter()
            .map(|t| {
                [&t.label, &t.value, &t.note]
                    .iter()
                    .map(|s| columns(s))
                    .max()
                    .unwrap_or(0)
                    .min(28)
                    + 3
            })
            .collect();
        let mut at = 0;
        while at < tiles.len() {
            let mut end = at;
            let mut used = 0;
            while end < tiles.len() && (end == at || used + widths[end] <= self.width + 3) {
                used += widths[end];
                end += 1;
            }
            let style = self.style;
            let rows: [fn(&Figure) -> &str; 3] = [|t| &t.label, |t| &t.value, |t| &t.note];
            for (row, pick) in rows.iter().enumerate() {
                let mut line = String::new();
                for (tile, width) in tiles[at..end].iter().zip(&widths[at..end]) {
                    let words = visible(pick(tile));
                    let words = console::truncate_str(&words, width - 3, "…").into_owned();
                    let pad = " ".repeat(width.saturating_sub(columns(&words)));
                    let words = match row {
                        1 => style.bold(&words),
                        _ => style.dim(&words),
                    };
                    line.push_str(&words);
                    line.push_str(&pad);
                }
                self.line(&line);
            }
            at = end;
            if at < tiles.len() {
                self.out.push('\n');
            }
        }
    }

    fn title(&mut self, title: &str) {
        let rule = "─".repeat(self.width.saturating_sub(columns(title) + 4));
        let (left, title, rule) = (
            self.style.dim("──"),
            self.style.bold(title),
            self.style.dim(&rule),
        );
        self.out.push('\n');
        self.line(&format!("{left} {title} {rule}"));
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Words(words) => self.words(words, "", |_, line| line.to_owned()),
            Block::Figures(figures) => self.figures(figures),
            Block::Table(table) => {
                let text = shown(table).render(Some(self.width), self.style);
                self.out.push_str(&text);
            }
            Block::Loss(chart) => self.loss(chart),
            Block::StepTimes(chart) => self.step_times(chart),
            Block::Shares(shares) => self.shares(shares),
            Block::Log(lines) => {
                for line in lines {
                    let line = format!("  │ {}", visible(line));
                    let cut = console::truncate_str(&line, self.width, "…").into_owned();
                    let line = self.style.dim(&cut);
                    self.line(&line);
                }
            }
        }
    }

    fn figures(&mut self, figures: &[Figure]) {
        let widest = figures.iter().map(|f| columns(&f.label)).max().unwrap_or(0);
        for figure in figures {
            let label = visible(&figure.label);
            let pad = " ".repeat(widest.saturating_sub(columns(&label)) + 2);
            let note = match figure.note.is_empty() {
                true => String::new(),
                false => self.style.dim(&format!("  {}", visible(&figure.note))),
            };
            let line = format!(
                "{}{pad}{}{note}",
                self.style.dim(&label),
                visible(&figure.value)
            );
            let line = console::truncate_str(&line, self.width, "…").into_owned();
            self.line(&line);
        }
    }

    fn loss(&mut self, chart: &LossChart) {
        let mut series: Vec<Series> = chart
            .abandoned
            .iter()
            .map(|points| Series {
                points,
                paint: Style::dim,
                marker: None,
            })
            .collect();
        series.extend(chart.train.iter().map(|points| Series {
            points,
            paint: Style::cyan,
            marker: None,
        }));
        series.push(Series {
            points: &chart.validation,
            paint: Style::yellow,
            marker: Some('•'),
        });
        let text = curve::plot(&series, self.width.min(90), 12, self.style);
        self.out.push_str(&text);
        let style = self.style;
        let mut legend = vec![format!("{} training", style.cyan("━"))];
        if !chart.validation.is_empty() {
            legend.push(format!("{} validation", style.yellow("•")));
        }
        if !chart.abandoned.is_empty() {
            legend.push(format!("{} lost steps", style.dim("━")));
        }
        self.line(&format!("      {}", legend.join("   ")));
        for (_, words) in &chart.marks {
            self.line(&format!("      {}", style.dim(words)));
        }
    }

    fn step_times(&mut self, chart: &StepChart) {
        // One outlier must not flatten the rest.
        let limit = chart.p95 + 2.0 * (chart.p95 - chart.p5);
        let seconds: Vec<f64> = chart.points.iter().map(|p| p.1.min(limit)).collect();
        let spark = curve::spark(&seconds, self.width.min(90) - 12);
        if seconds.len() > 1 {
            let label = self.style.dim("step times");
            let line = format!("{label}  {}", self.style.cyan(&spark));
            self.line(&line);
        }
    }

    fn shares(&mut self, shares: &Shares) {
        const BAR: usize = 16;
        let mut table = Table::new(&[shares.title, ">time", ">share", "", "what it is"]);
        for (part, row) in shares.parts.iter().zip(&shares.table().rows) {
            let bar = curve::bar(part.share.unwrap_or(0.0), BAR);
            let bar = format!("{bar}{}", " ".repeat(BAR - columns(&bar)));
            table.row([
                row[0].clone(),
                row[1].clone(),
                row[2].clone(),
                self.style.cyan(&bar),
                row[3].clone(),
            ]);
        }
        let text = table.render(Some(self.width), self.style);
        self.out.push_str(&text);
        let whole = self.style.dim(&format!("100 % is {}", shares.whole));
        self.line(&whole);
    }

    fn wrapped(&mut self, label: &str, means: &str) {
        let words = wrap(&format!("{label}: {means}"), self.width - 4);
        for (i, line) in words.iter().enumerate() {
            let line = match (i, line.strip_prefix(label)) {
                (0, Some(rest)) => format!("{}{rest}", self.style.bold(label)),
                _ => format!("    {line}"),
            };
            self.line(&line);
        }
    }
}

/// The table with control characters of its cells made visible.
fn shown(table: &Table) -> Table {
    let mut table = table.clone();
    for cell in table.rows.iter_mut().flatten() {
        *cell = visible(cell);
    }
    table
}
