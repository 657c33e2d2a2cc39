//! A text that is drawn again and again in its place on a terminal; it is no higher than the terminal.

use std::io::{IsTerminal, Write};

/// Standard output, where it is a terminal that can move its cursor.
#[derive(Debug)]
pub struct Screen {
    /// Lines of what stands there.
    lines: usize,
}

impl Screen {
    /// Absent elsewhere.
    pub fn stdout() -> Option<Screen> {
        let moves = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        (moves && std::io::stdout().is_terminal()).then_some(Screen { lines: 0 })
    }

    /// Puts `text` in the place of what was drawn before.
    pub fn draw(&mut self, text: &str) -> std::io::Result<()> {
        let (rows, columns) = console::Term::stdout().size();
        let drawn = self.redrawn(text, rows.into(), columns.into());
        let mut out = std::io::stdout().lock();
        out.write_all(drawn.as_bytes()).and_then(|()| out.flush())
    }

    fn redrawn(&mut self, text: &str, rows: usize, columns: usize) -> String {
        let mut drawn = match self.lines {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r"),
        };
        // The cursor stands below the last line.
        let shown: Vec<&str> = text.lines().take(rows.saturating_sub(1).max(1)).collect();
        for line in &shown {
            // Each line is cleared to its end as it is written, and what is left below at last: nothing flickers.
            drawn.push_str(&console::truncate_str(line, columns, "…"));
            drawn.push_str("\x1b[K\n");
        }
        drawn.push_str("\x1b[J");
        self.lines = shown.len();
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_drawn_in_its_place_and_cut_to_the_terminal() {
        let mut screen = Screen { lines: 0 };
        assert_eq!(
            screen.redrawn("one\ntwo\nthree\n", 3, 4),
            "one\x1b[K\ntwo\x1b[K\n\x1b[J"
        );
        assert_eq!(
            screen.redrawn("a longer one", 3, 4),
            "\x1b[2A\ra l…\x1b[K\n\x1b[J"
        );
        assert!(screen.redrawn("", 3, 4).starts_with("\x1b[1A\r"));
    }
}
