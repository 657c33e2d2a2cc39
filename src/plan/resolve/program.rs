//! Placeholders of commands and variables, and the variables of the job.

use crate::machine::Machine;
use crate::plan::placeholder::{DYNAMIC, FaultKind, Piece, pieces};
use crate::plan::{Notify, On, Program, Variable};
use crate::recipe::Recipe;
use crate::recipe::diagnostic::{Diagnostic, Sources, Span};
use crate::recipe::notify::{self, Notify as Wanted};
use crate::recipe::section::{Given, Notes, suggestion};
use std::collections::BTreeMap;

/// Every placeholder must have a value at launch.
pub(super) fn check(recipe: &Recipe, values: &BTreeMap<String, String>, notes: &mut Notes) {
    let command = recipe.program.iter().flat_map(|p| &p.command);
    let variables = recipe.environment.variables.iter().map(|(_, value)| value);
    for text in command
        .clone()
        .chain(variables.clone())
        .chain(&recipe.environment.setup)
    {
        let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        if let Some((at, c)) = text.value.char_indices().find(|(_, c)| control(*c)) {
            notes.faults.push(
                Diagnostic::error(
                    "control",
                    format!(
                        "a control character (U+{:04X}) cannot stand in a script",
                        u32::from(c)
                    ),
                )
                .at(within(text, at, at + c.len_utf8()), "")
                .help("newline and tab may; let the program make others itself"),
            );
        }
    }
    for text in command.chain(variables) {
        let fault = match pieces(&text.value) {
            Ok(pieces) => pieces.iter().find_map(|piece| match piece {
                Piece::Key(key, start) => key_fault(key, *start, text, recipe, values),
                Piece::Text(_) => None,
            }),
            Err(fault) => {
                let brace = match fault.kind {
                    FaultKind::Brace(brace) => brace,
                    FaultKind::Unknown(_) => '{',
                };
                Some(
                    Diagnostic::error("placeholder", format!("a single `{brace}` is not part of a placeholder"))
                        .at(within(text, fault.start, fault.end), "")
                        .help(format!("write `{brace}{brace}` for a brace, `{{dotted.key}}` for a value of the plan")),
                )
            }
        };
        notes.faults.extend(fault);
    }
}

fn key_fault(
    key: &str,
    start: usize,
    text: &Given<String>,
    recipe: &Recipe,
    values: &BTreeMap<String, String>,
) -> Option<Diagnostic> {
    let at = within(text, start, start + key.len() + 2);
    if key == "job.minutes_left" && recipe.job.walltime.is_none() {
        return Some(
            Diagnostic::error(
                "placeholder",
                "`{job.minutes_left}` is unknown: the job has no walltime",
            )
            .at(at, "")
            .help("set `job.walltime`"),
        );
    }
    if values.contains_key(key) || DYNAMIC.contains(&key) {
        return None;
    }
    let known = values.keys().map(String::as_str).chain(DYNAMIC);
    let help = match suggestion(key, known) {
        Some(known) => format!("did you mean `{{{known}}}`? write `{{{{` for a brace"),
        None => "`haul check --show` lists the keys; write `{{` for a brace".into(),
    };
    Some(
        Diagnostic::error("placeholder", format!("unknown placeholder `{{{key}}}`"))
            .at(at, "")
            .help(help),
    )
}

/// Bytes of a text's value in its file: exact where the text is written as it is, else all of it.
fn within(text: &Given<String>, start: usize, end: usize) -> Option<Span> {
    let at = text.at?;
    if at.end - at.start == text.value.len() {
        return Some(Span {
            start: at.start + start,
            end: at.start + end,
            ..at
        });
    }
    // Quotes around a text without escapes.
    if at.end - at.start == text.value.len() + 2 {
        return Some(Span {
            start: at.start + 1 + start,
            end: at.start + 1 + end,
            ..at
        });
    }
    Some(at)
}

/// What the ranks run. A relative path of a program (a first word with a slash) is relative to the file it stands in, since a
/// job starts in a directory of its own; a name without a slash is looked for in PATH.
pub(super) fn program(recipe: &Recipe, sources: &Sources) -> Program {
    let Some(program) = &recipe.program else {
        return Program::Bundled;
    };
    let mut command: Vec<String> = program.command.iter().map(|w| w.value.clone()).collect();
    if let Some((word, given)) = command.first_mut().zip(program.command.first())
        && !word.contains(['{', '}'])
        && let Some(path) = beside(given, sources)
    {
        // Braces of the directory stand for themselves.
        *word = path.replace('{', "{{").replace('}', "}}");
    }
    Program::Command { command }
}

/// The absolute path of a program that is given relative to the file it stands in; absent for other words.
fn beside(given: &Given<String>, sources: &Sources) -> Option<String> {
    let word = &given.value;
    let relative = word.contains('/') && !word.starts_with('/');
    let source = sources.get(given.at.filter(|_| relative)?.source)?;
    let path = source.directory.join(word);
    let path = super::normal(&std::path::absolute(&path).unwrap_or(path));
    Some(path.to_string_lossy().into_owned())
}

/// Who is told of the end. The program is found like that of the ranks.
pub(super) fn notify(given: &Wanted, sources: &Sources) -> Notify {
    let mut command: Vec<String> = given.command.iter().map(|w| w.value.clone()).collect();
    let path = given.command.first().and_then(|word| beside(word, sources));
    if let (Some(first), Some(path)) = (command.first_mut(), path) {
        *first = path;
    }
    let on = given.on.iter().map(|on| match on {
        notify::On::Failed => On::Failed,
        notify::On::Finished => On::Finished,
    });
    Notify {
        on: on.collect(),
        command,
    }
}

/// The profile's variables, then the recipe's, which win; each group by name.
pub(super) fn variables(recipe: &Recipe, machine: &Machine) -> Vec<Variable> {
    let own = &recipe.environment.variables;
    let mut site: Vec<Variable> = machine
        .environment
        .iter()
        .filter(|v| !own.iter().any(|(name, _)| name.value == v.name))
        .map(|v| Variable {
            name: v.name.clone(),
            // Texts of a profile have no placeholders.
            value: v.value.replace('{', "{{").replace('}', "}}"),
        })
        .collect();
    site.sort_by(|a, b| a.name.cmp(&b.name));
    site.extend(own.iter().map(|(name, value)| Variable {
        name: name.value.clone(),
        value: value.value.clone(),
    }));
    site
}
