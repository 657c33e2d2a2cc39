//! The resolved recipe: every value in force and where it came from, as a list, as YAML and as values for placeholders.

use crate::recipe::section::{Resolved, Shown};
use std::collections::BTreeMap;

/// Sections whose keys are words of the user, dots and all.
const FREE: [&str; 2] = ["environment.variables.", "program.args."];

/// Values by dotted key for placeholders: all but lists, programs and environment.
pub fn values(list: &[Resolved]) -> BTreeMap<String, String> {
    list.iter()
        .filter(|r| {
            !r.key.starts_with("program.")
                && !r.key.starts_with("environment.")
                && r.key != "extends"
        })
        .filter_map(|r| match &r.value {
            Shown::Plain(text) | Shown::Text(text) => Some((r.key.clone(), text.clone())),
            Shown::List(_) => None,
        })
        .collect()
}

/// A recipe that resolves to the same values; `leave_out` are keys that others of it imply.
pub fn yaml(list: &[Resolved], leave_out: &[&str]) -> String {
    let mut text = String::from("# The recipe as resolved, with defaults.\n");
    let mut open: Vec<&str> = Vec::new();
    for resolved in sorted(list) {
        if leave_out.contains(&resolved.key.as_str()) || resolved.key == "extends" {
            continue;
        }
        let parts = parts(&resolved.key);
        let (name, sections) = match parts.split_last() {
            Some((name, sections)) => (*name, sections),
            None => continue,
        };
        let shared = open
            .iter()
            .zip(sections)
            .take_while(|(a, b)| a == b)
            .count();
        open.truncate(shared);
        for section in &sections[shared..] {
            text.push_str(&format!("{}{}:\n", "  ".repeat(open.len()), word(section)));
            open.push(section);
        }
        let indent = "  ".repeat(open.len());
        text.push_str(&format!(
            "{indent}{}: {}\n",
            word(name),
            shown(&resolved.value)
        ));
    }
    text
}

/// Sections together, in the order in which they first appear.
pub fn sorted(list: &[Resolved]) -> Vec<&Resolved> {
    let mut order: Vec<&str> = Vec::new();
    for resolved in list {
        let parts = parts(&resolved.key);
        let mut end = 0;
        for part in parts {
            end += part.len() + usize::from(end > 0);
            let prefix = &resolved.key[..end];
            if !order.contains(&prefix) {
                order.push(prefix);
            }
        }
    }
    let place = |key: &str| -> Vec<usize> {
        let mut end = 0;
        parts(key)
            .into_iter()
            .map(|part| {
                end += part.len() + usize::from(end > 0);
                order.iter().position(|p| *p == &key[..end]).unwrap_or(0)
            })
            .collect()
    };
    let mut sorted: Vec<&Resolved> = list.iter().collect();
    sorted.sort_by_cached_key(|r| place(&r.key));
    sorted
}

fn parts(key: &str) -> Vec<&str> {
    for free in FREE {
        if let Some(rest) = key.strip_prefix(free) {
            let mut parts: Vec<&str> = free.trim_end_matches('.').split('.').collect();
            parts.push(rest);
            return parts;
        }
    }
    key.split('.').collect()
}

/// A value as YAML on one line.
pub fn shown(value: &Shown) -> String {
    match value {
        Shown::Plain(text) => word(text),
        Shown::Text(text) => quoted(text),
        Shown::List(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

/// A word, quoted only where it must be.
fn word(text: &str) -> String {
    let bare = !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b'+'))
        && !text.starts_with('-')
        && !matches!(text, "null" | "Null" | "NULL");
    // A negative number is a word, too.
    if bare || crate::recipe::scalar::number(text).is_ok() {
        text.to_string()
    } else {
        quoted(text)
    }
}

/// A text in double quotes, all that is not printable as an escape.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            ' '..='~' => quoted.push(c),
            c if c.is_alphanumeric() => quoted.push(c),
            c if u32::from(c) <= 0xffff => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}
