//! What people see: errors, tables, bars. Standard output carries results, standard error everything else.

pub mod format;

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

/// Writes a result to standard output.
pub fn print(text: &str) {
    use std::io::Write;
    // A reader that has gone, such as `head`, wants no more.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes words beside the result to standard error.
pub fn warn(text: &str) {
    use std::io::Write;
    // Nothing to do when the terminal is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
