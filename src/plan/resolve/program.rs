//! Placeholders of commands and variables, and the variables of the job.

use crate::machine::Machine;
use crate::plan::Variable;
use crate::plan::placeholder::{DYNAMIC, FaultKind, Piece, pieces};
use crate::recipe::Recipe;
use crate::recipe::diagnostic::{Diagnostic, Span};
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
