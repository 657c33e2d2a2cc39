//! Tables in columns: words to the left, numbers to the right, a rule under the header, no wider than the terminal.

use super::style::{Style, columns};

/// How the cells of a column stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    /// For numbers.
    Right,
}

/// A table of text; cells may carry colours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    pub headers: Vec<String>,
    pub align: Vec<Align>,
    /// Each as long as `headers`; shorter ones are filled with nothing.
    pub rows: Vec<Vec<String>>,
}

const GAP: usize = 2;
/// No column is cut to fewer columns than this.
const NARROWEST: usize = 8;
/// Columns of a table that is read elsewhere than on a terminal, where its last column has room for some words then.
const PIPED: usize = 110;
const ROOM: usize = 40;

impl Table {
    /// Columns by title; a title that starts with `>` stands over right-aligned cells.
    pub fn new(titles: &[&str]) -> Table {
        Table {
            headers: titles
                .iter()
                .map(|t| t.trim_start_matches('>').to_owned())
                .collect(),
            align: titles
                .iter()
                .map(|t| match t.starts_with('>') {
                    true => Align::Right,
                    false => Align::Left,
                })
                .collect(),
            rows: Vec::new(),
        }
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// Lines, each ended. Where `width` (columns of the terminal) is too small, cells of words are cut with an
    /// ellipsis, and those of a last column of words go on in the next line. Without a width nothing is cut.
    pub fn render(&self, width: Option<usize>, style: Style) -> String {
        let widths = self.widths(width);
        let mut text = String::new();
        if self.headers.iter().any(|h| !h.is_empty()) {
            let mut header = String::new();
            self.line(&self.headers, &widths, &mut header);
            text.push_str(&style.bold(header.trim_end_matches('\n')));
            text.push('\n');
            let rules: Vec<String> = widths
                .iter()
                .zip(&self.headers)
                .map(|(w, title)| if title.is_empty() { " " } else { "─" }.repeat(*w))
                .collect();
            text.push_str(&style.dim(&rules.join(&" ".repeat(GAP))));
            text.push('\n');
        }
        for row in &self.rows {
            self.wrapped(row, &widths, width.is_some(), &mut text);
        }
        text
    }

    /// A row whose last cell of words takes as many lines as it needs.
    fn wrapped(&self, row: &[String], widths: &[usize], cut: bool, text: &mut String) {
        let last = widths.len().saturating_sub(1);
        let cell = row.get(last).map_or("", String::as_str);
        if self.align.last() == Some(&Align::Right) || columns(cell) <= widths[last] {
            return self.line(row, widths, text);
        }
        let mut cells: Vec<String> = row[..last].to_vec();
        let mut widths = widths.to_vec();
        for part in wrap(cell, widths[last]) {
            if !cut {
                widths[last] = columns(&part);
            }
            cells.push(part);
            self.line(&cells, &widths, text);
            cells = vec![String::new(); last];
        }
    }

    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.headers.len())
            .map(|i| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(i))
                    .map(|cell| columns(cell))
                    .chain([columns(&self.headers[i])])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        let Some(limit) = limit else {
            if let (Some(Align::Left), Some((last, before))) =
                (self.align.last(), widths.split_last_mut())
            {
                let used = before.iter().sum::<usize>() + gaps;
                *last = (*last).min(PIPED.saturating_sub(used).max(ROOM));
            }
            return widths;
        };
        while widths.iter().sum::<usize>() + gaps > limit {
            // Numbers are never cut: a number without its end is a wrong number.
            let widest = (0..widths.len())
                .filter(|i| self.align[*i] == Align::Left && widths[*i] > NARROWEST)
                .max_by_key(|i| widths[*i]);
            match widest {
                Some(i) => widths[i] -= 1,
                None => break,
            }
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize], text: &mut String) {
        let mut line = String::new();
        for (i, width) in widths.iter().enumerate() {
            let cell = cells.get(i).map_or("", String::as_str);
            let cell = console::truncate_str(cell, *width, "…");
            let pad = " ".repeat(width.saturating_sub(columns(&cell)));
            if i > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            match self.align[i] {
                Align::Left => line.extend([cell.as_ref(), &pad]),
                Align::Right => line.extend([pad.as_str(), &cell]),
            }
        }
        text.push_str(line.trim_end_matches(' '));
        text.push('\n');
    }
}

/// `text` in lines of at most `width` columns, broken at blanks; a longer word has its own line. Colours are dropped.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let text = console::strip_ansi_codes(text);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["run", ">step", "state"]);
        table.row(["quickstart-261120-k3fa", "600", "finished"]);
        table.row(["шёл-снег", "7", "failed"]);
        table
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_blanks_at_their_end() {
        let text = table().render(None, Style::PLAIN);
        let expected = "\
run                     step  state
──────────────────────  ────  ────────
quickstart-261120-k3fa   600  finished
шёл-снег                   7  failed
";
        assert_eq!(text, expected);
    }

    #[test]
    fn words_are_cut_to_the_width_and_numbers_never() {
        for width in [24, 30, 40] {
            let text = table().render(Some(width), Style::COLOURED);
            assert!(text.lines().all(|line| columns(line) <= width), "{text}");
            assert!(text.contains("600"), "{text}");
        }
        let text = table().render(Some(30), Style::PLAIN);
        assert!(text.contains("…"), "{text}");
    }

    #[test]
    fn without_a_terminal_only_the_last_words_are_wrapped_and_nothing_is_cut() {
        let (id, path) = ("i".repeat(90), format!("/{}", "p".repeat(200)));
        let words = "its program was killed by SIGKILL at step 37; 4 failures, 3 allowed";
        let mut table = Table::new(&["run", "what"]);
        table.row([id.as_str(), words]).row([&id, &path]);
        let text = table.render(None, Style::PLAIN);
        assert_eq!(text.matches(&id).count(), 2, "{text}");
        assert!(text.contains(&path) && !text.contains('…'), "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn words_of_the_last_column_go_on_in_the_next_line() {
        let mut table = Table::new(&[">step", "in words"]);
        table.row(["12", "rank 1 was killed by SIGKILL"]);
        table.row(["7", "done"]);
        let expected = "\
step  in words
────  ─────────────
  12  rank 1 was
      killed by
      SIGKILL
   7  done
";
        assert_eq!(table.render(Some(19), Style::PLAIN), expected);
    }
}
