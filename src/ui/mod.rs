//! What people see: errors, tables, bars. Standard output carries results, standard error everything else.

pub mod curve;
pub mod frame;
pub mod progress;
pub mod screen;
pub mod style;
pub mod table;
pub mod units;

use std::io::Write;

/// Prints an error with its causes, one a line, to standard error.
pub fn error(error: &anyhow::Error) {
    let style = style::Style::stderr();
    let mut text = format!("{} {error}\n", style.red("error:"));
    for cause in error.chain().skip(1) {
        text.push_str(&format!("  caused by: {cause}\n"));
    }
    // Nothing to do when the terminal is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes a result to standard output; a closed pipe (such as `| head`) is not an error.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Writes a line of information to standard error.
pub fn say(text: &str) {
    // Nothing to do when the terminal is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
}
