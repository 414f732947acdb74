use std::collections::BTreeMap;

use serde_json::Value;

use crate::messages::{Kind, Setting};

/// Flattens settings to one entry per key: `learner.batch_size`. Lists become text; keys without a value are left out.
pub(crate) fn flat(settings: &Value) -> BTreeMap<String, Setting> {
    let mut entries = BTreeMap::new();
    add("", settings, &mut entries);
    entries
}

fn add(key: &str, value: &Value, entries: &mut BTreeMap<String, Setting>) {
    let kind = match value {
        Value::Object(section) => {
            for (name, value) in section {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                add(&key, value, entries);
            }
            return;
        }
        Value::Null => return,
        Value::Bool(value) => Kind::Bool(*value),
        Value::Number(number) => match number.as_f64() {
            Some(number) => Kind::Number(number),
            None => Kind::Text(number.to_string()),
        },
        Value::String(text) => Kind::Text(text.clone()),
        Value::Array(_) => Kind::Text(value.to_string()),
    };
    entries.insert(key.to_owned(), Setting { kind: Some(kind) });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sections_become_keys_with_dots_of_numbers_text_and_switches() {
        let settings = json!({
            "learner": { "batch_size": 256, "kernel": "auto", "steps": [0.5, 0.75], "none": null, "event_files": true },
            "depth": { "of": { "key": 0.5 } },
        });
        let found: Vec<(String, Kind)> =
            flat(&settings).into_iter().map(|(key, setting)| (key, setting.kind.unwrap())).collect();
        let expected = [
            ("depth.of.key", Kind::Number(0.5)),
            ("learner.batch_size", Kind::Number(256.0)),
            ("learner.event_files", Kind::Bool(true)),
            ("learner.kernel", Kind::Text("auto".to_owned())),
            ("learner.steps", Kind::Text("[0.5,0.75]".to_owned())),
        ];
        assert_eq!(found, expected.map(|(key, kind)| (key.to_owned(), kind)));
    }
}
