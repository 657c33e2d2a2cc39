//! The JSON schema of recipes, from the calls that read them.

use super::Recipe;
use super::section::{Key, Kind, Notes};
use serde_json::{Map, Value, json};

/// Durations, for editors; the reader is stricter.
const DURATION: &str =
    "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$|^([0-9]+-)?[0-9]+:[0-9]{2}:[0-9]{2}$";
/// Whole numbers in the forms that are no YAML numbers.
const COUNT: &str = "^[0-9]+(_[0-9]+)*[kMG]?$";

/// The schema as `recipes/recipe.schema.json` holds it.
pub fn document() -> Value {
    let mut notes = Notes::default();
    let (_, kind) = Recipe::read(None, &mut notes);
    let mut root = schema(&kind);
    if let Value::Object(map) = &mut root {
        map.insert(
            "$schema".into(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        map.insert("title".into(), json!("haul recipe"));
    }
    root
}

/// [`document`] as text.
pub fn text() -> String {
    // Maps with text keys cannot fail to serialize.
    let mut text = serde_json::to_string_pretty(&document()).unwrap_or_default();
    text.push('\n');
    text
}

fn schema(kind: &Kind) -> Value {
    match kind {
        Kind::Text { pattern: None } => json!({"type": ["string", "number", "boolean"]}),
        Kind::Text {
            pattern: Some(pattern),
        } => json!({"type": "string", "pattern": pattern}),
        Kind::Count { range } => {
            let mut number = json!({"type": "integer", "minimum": range.start()});
            if *range.end() < 1 << 53 {
                number["maximum"] = json!(range.end());
            }
            json!({"anyOf": [number, {"type": "string", "pattern": COUNT}]})
        }
        Kind::Number { range } => {
            json!({"type": "number", "minimum": range.start(), "maximum": range.end()})
        }
        Kind::Duration => json!({"type": "string", "pattern": DURATION}),
        Kind::Choice(words) => json!({"enum": words}),
        Kind::List { item, length } => {
            let mut list = json!({"type": "array", "items": schema(item)});
            if let Some(length) = length {
                list["minItems"] = json!(length);
                list["maxItems"] = json!(length);
            }
            list
        }
        Kind::Map(item) => json!({"type": "object", "additionalProperties": schema(item)}),
        Kind::Any(kinds) => {
            let kinds: Vec<Value> = kinds.iter().map(schema).collect();
            json!({"anyOf": kinds})
        }
        Kind::Section { keys, exactly_one } => section(keys, exactly_one),
    }
}

fn section(keys: &[Key], exactly_one: &[&str]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut property = schema(&key.kind);
        let words = match &key.default {
            Some(default) => format!("{} Default: {default}.", key.words),
            None => key.words.to_string(),
        };
        property["description"] = json!(words);
        properties.insert(key.name.into(), property);
    }
    let mut object = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    let required: Vec<&str> = keys.iter().filter(|k| k.required).map(|k| k.name).collect();
    // With `extends` any key may stand in the base.
    if !required.is_empty() && !keys.iter().any(|k| k.name == "extends") {
        object["required"] = json!(required);
    }
    if !exactly_one.is_empty() {
        let others: Vec<Value> = exactly_one
            .iter()
            .enumerate()
            .flat_map(|(i, a)| {
                exactly_one[i + 1..]
                    .iter()
                    .map(move |b| json!({"required": [a, b]}))
            })
            .collect();
        object["not"] = json!({"anyOf": others});
    }
    object
}
