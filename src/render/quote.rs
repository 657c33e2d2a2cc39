//! Quoting for the shell and for #SBATCH lines: the only place that does it.

/// `text` as one word of a POSIX shell, whatever it holds but NUL. Nothing in it is expanded.
pub fn shell(text: &str) -> String {
    if is_bare(text) {
        return text.to_string();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Needs no quotes anywhere but at the start of a command.
fn is_bare(text: &str) -> bool {
    !text.is_empty()
        // An assignment, if it came first.
        && (text.starts_with('-') || !text.contains('='))
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./:,+@%=".contains(&b))
}

/// `text` as one word of an #SBATCH line: sbatch itself reads quotes, backslashes and `#` there, and expands nothing.
pub fn sbatch(text: &str) -> String {
    let bare = !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./:,+@%=".contains(&b));
    if bare {
        return text.to_string();
    }
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}

/// Where control characters may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controls {
    /// Nowhere: comments, #SBATCH lines, options, paths.
    Refused,
    /// Newline and tab may stand in arguments, variables and setup lines.
    Lines,
}

/// Byte of the first control character that `allowed` refuses.
pub fn control(text: &str, allowed: Controls) -> Option<usize> {
    text.char_indices()
        .find(|(_, c)| c.is_control() && !(allowed == Controls::Lines && matches!(c, '\n' | '\t')))
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_they_must_be() {
        for (text, quoted) in [
            ("plain-1.2/x", "plain-1.2/x"),
            ("--lr=0.1", "--lr=0.1"),
            ("A=b", "'A=b'"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("$(x) `y` \"z\" \\", "'$(x) `y` \"z\" \\'"),
            ("a\nb", "'a\nb'"),
            ("~", "'~'"),
            ("é", "'é'"),
        ] {
            assert_eq!(shell(text), quoted);
        }
        assert_eq!(sbatch("--partition=batch"), "--partition=batch");
        assert_eq!(sbatch("/a b/\"c\\#"), "\"/a b/\\\"c\\\\#\"");
    }

    #[test]
    fn control_characters_are_found() {
        assert_eq!(control("a\nb\tc", Controls::Lines), None);
        assert_eq!(control("a\nb", Controls::Refused), Some(1));
        for text in ["a\0", "a\x1b[0m", "a\r", "a\x7f", "a\u{85}"] {
            assert_eq!(control(text, Controls::Lines), Some(1), "{text:?}");
        }
    }
}
