//! `program`: a trainer of the user's own; the bundled one without it.

use super::diagnostic::Diagnostic;
use super::section::{Given, Section};

#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// The command, then `args` as options.
    pub command: Vec<Given<String>>,
}

/// `None`: the bundled trainer. A command with a fault is an empty one.
pub(super) fn read(s: &mut Section) -> Option<Program> {
    s.later(&[
        "kind",
        "directory",
        "files",
        "devices",
        "success",
        "progress",
    ]);
    let command = s.texts(
        "command",
        "The program and its arguments, run once a rank; `{dotted.key}` stands for a value of the plan, `{{` for a brace.",
    );
    let args = s.words(
        "args",
        "Options after the command, by name: `lr: 0.1` gives `--lr 0.1`, `true` only `--lr`, `false` nothing, a list all its texts.",
        true,
    );
    if !s.given() {
        return None;
    }
    s.missing("command", "a list such as [python3, train.py]");
    if let Some(command) = &command
        && command.value.is_empty()
    {
        s.fault(
            Diagnostic::error("command", "the command is empty")
                .at(command.at, "")
                .help("name the program to run, such as [python3, train.py]"),
        );
    }
    let mut words = command.map(|c| c.value).unwrap_or_default();
    if let Some(first) = words.first()
        && first.value.is_empty()
    {
        let at = first.at;
        s.fault(
            Diagnostic::error("command", "the program's name is empty")
                .at(at, "")
                .help("name the program to run"),
        );
    }
    for (name, values, quoted) in args {
        let bare = (!quoted)
            .then(|| values.first().map(|v| v.value.as_str()))
            .flatten();
        if bare == Some("false") {
            continue;
        }
        let flag = Given {
            value: format!("--{}", name.value),
            at: name.at,
            origin: name.origin,
        };
        words.push(flag);
        if bare != Some("true") {
            words.extend(values);
        }
    }
    Some(Program { command: words })
}
