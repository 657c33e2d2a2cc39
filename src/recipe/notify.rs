//! `notify`: what is told to whom when a run ends.

use super::diagnostic::Diagnostic;
use super::section::{Given, Section};

#[derive(Debug, Clone, PartialEq)]
pub struct Notify {
    pub on: Vec<On>,
    /// The program and its arguments, as they are: nothing is put into them.
    pub command: Vec<Given<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Failed,
    Finished,
}

/// `None`: nobody is told, or something in it is wrong and noted.
pub fn read(s: &mut Section) -> Option<Notify> {
    let on = s.choices(
        "on",
        "The ends of a run that are told.",
        &[("failed", On::Failed), ("finished", On::Finished)],
        &["stuck"],
    );
    let command = s.texts(
        "command",
        "Program and arguments, run once an end by the job; HAUL_RUN, HAUL_EVENT and HAUL_WORDS tell it which.",
    );
    if !s.given() {
        return None;
    }
    s.missing("on", "say when, such as `on: [failed, finished]`");
    s.missing("command", "say what to run, such as [/home/me/tell.sh]");
    let (on, command) = (on?, command?);
    if command
        .value
        .first()
        .is_none_or(|word| word.value.is_empty())
    {
        s.fault(
            Diagnostic::error("command", "the command names no program")
                .at(command.at, "")
                .help("its first word is the program to run"),
        );
        return None;
    }
    Some(Notify {
        on,
        command: command.value,
    })
}
