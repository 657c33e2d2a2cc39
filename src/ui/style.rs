//! Colours, only where somebody sees them: on a terminal, unless NO_COLOR is set or TERM is dumb.

use std::io::IsTerminal;

/// Paints words for one stream, or leaves them as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    colours: bool,
}

impl Style {
    /// No colours at all: files, pipes, tests.
    pub const PLAIN: Style = Style { colours: false };
    /// Colours whatever the stream is.
    pub const COLOURED: Style = Style { colours: true };

    pub fn stdout() -> Style {
        Style {
            colours: wanted(std::io::stdout().is_terminal()),
        }
    }

    pub fn stderr() -> Style {
        Style {
            colours: wanted(std::io::stderr().is_terminal()),
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colours && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

fn wanted(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns of the terminal on standard output; absent when it is none.
pub fn width() -> Option<usize> {
    console::Term::stdout()
        .size_checked()
        .map(|(_, columns)| usize::from(columns))
}

/// Columns `text` takes on a terminal; colours take none.
pub fn columns(text: &str) -> usize {
    console::measure_text_width(text)
}

/// `text` with control characters made visible as `\u{..}`, so that a value cannot steer the terminal.
pub fn visible(text: &str) -> String {
    if text.chars().any(char::is_control) {
        text.chars()
            .flat_map(|c| {
                let shown: Vec<char> = if c.is_control() {
                    c.escape_default().collect()
                } else {
                    vec![c]
                };
                shown
            })
            .collect()
    } else {
        text.to_owned()
    }
}

/// The same but for tabs, for lines of programs.
pub fn visible_line(line: &str) -> String {
    let parts: Vec<String> = line.split('\t').map(visible).collect();
    parts.join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_no_columns_and_plain_has_none() {
        assert_eq!(Style::PLAIN.red("loss"), "loss");
        let painted = Style::COLOURED.red("loss");
        assert!(painted.starts_with("\x1b[31m") && painted.ends_with("\x1b[0m"));
        assert_eq!(columns(&painted), 4);
        assert_eq!(columns("µs 層"), 5);
    }

    #[test]
    fn control_characters_are_shown_not_sent() {
        assert_eq!(visible("a\x1b[2Jb\nc é"), "a\\u{1b}[2Jb\\nc é");
        assert_eq!(visible_line("a\t\x1b]0;b\x07"), "a\t\\u{1b}]0;b\\u{7}");
    }
}
