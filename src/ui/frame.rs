//! Lines of text that are not ours, in a frame.

use super::style::{Style, columns, visible};

/// The narrowest frame that holds a title and some words.
const NARROWEST: usize = 24;
const WIDEST: usize = 80;

/// `text` under `title`, at most `width` columns wide; longer lines are broken where they are too long.
pub fn frame(title: &str, text: &str, width: Option<usize>, style: Style) -> String {
    let width = width.unwrap_or(WIDEST).clamp(NARROWEST, WIDEST);
    let rule = "─".repeat(width.saturating_sub(columns(title) + 4));
    let mut out = format!("{} {title} {}\n", style.dim("┌─"), style.dim(&rule));
    for line in text.lines() {
        for part in parts(&visible(line), width - 2) {
            out.push_str(format!("{} {part}", style.dim("│")).trim_end());
            out.push('\n');
        }
    }
    out.push_str(&style.dim(&format!("└{}", "─".repeat(width - 1))));
    out.push('\n');
    out
}

/// `line` in parts of at most `width` columns; one part where it is empty.
fn parts(line: &str, width: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut used = 0;
    for character in line.chars() {
        let wide = columns(character.encode_utf8(&mut [0; 4]));
        if used + wide > width {
            parts.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(part) = parts.last_mut() {
            part.push(character);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_keeps_its_width_and_what_is_in_it() {
        let text = "To be, or not\n\nабвгдежзийклмнопрстуфхцчш\x1b[2J";
        let expected = "\
┌─ step 9 ──────────────
│ To be, or not
│
│ абвгдежзийклмнопрстуфх
│ цчш\\u{1b}[2J
└───────────────────────
";
        let framed = frame("step 9", text, Some(10), Style::PLAIN);
        assert_eq!(framed, expected);
        let coloured = frame("step 9", text, Some(24), Style::COLOURED);
        assert!(
            coloured.lines().all(|line| columns(line) <= 24),
            "{coloured}"
        );
    }
}
