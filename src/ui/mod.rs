//! What people see: errors, tables, bars. Standard output carries results, standard error everything else.

/// Prints an error with its causes, one a line, to standard error.
pub fn error(error: &anyhow::Error) {
    use std::io::Write;
    let mut text = format!("error: {error}\n");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("  caused by: {cause}\n"));
    }
    // Nothing to do when the terminal is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
