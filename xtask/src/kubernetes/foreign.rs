//! Validates custom resources of KEDA, the Prometheus operator and cert-manager.
//!
//! No package index has schemas for them, so `foreign.json` describes the used part of each in a subset of JSON Schema:
//! every key, and whether it is required. The validation finds only misspelt and missing keys, and values of the wrong
//! type. A further key in a manifest must be added to that file.

use serde_json::Value;

use super::promises::array;

/// Returns the errors of a custom resource; none for any other document.
pub(super) fn wrong(document: &Value) -> Vec<String> {
    let [version, kind] = ["apiVersion", "kind"].map(|key| document[key].as_str().unwrap_or_default());
    let group = version.split('/').next().unwrap_or_default();
    if !group.contains('.') || group.ends_with(".k8s.io") {
        return Vec::new();
    }
    let known: Value = serde_json::from_str(include_str!("foreign.json")).expect("foreign.json holds schemas");
    let Some(schema) = known.get(format!("{version} {kind}")) else {
        return vec![format!("no schema for {kind:?} of {version:?}")];
    };
    let mut found = Vec::new();
    differs(&document["spec"], schema, "spec", &mut found);
    found
}

/// Compares a value with a schema. Unlike in JSON Schema, an object has no additional keys, and a list is not empty.
/// Without a type, any value is valid: the published schemas check it elsewhere, or it is unrestricted.
fn differs(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    let is_it = match schema["type"].as_str() {
        None => return,
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("array") => array(value).next().is_some(),
        Some(object) => object == "object" && value.is_object(),
    };
    if !is_it {
        found.push(format!("{path}: {value} has the wrong type"));
        return;
    }
    for (index, item) in array(value).enumerate() {
        differs(item, &schema["items"], &format!("{path}[{index}]"), found);
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(key) {
            Some(schema) => differs(value, schema, &format!("{path}.{key}"), found),
            None => found.push(format!("{path}.{key}: unknown key")),
        }
    }
    let missing = array(&schema["required"]).filter_map(Value::as_str).filter(|key| value.get(key).is_none());
    found.extend(missing.map(|key| format!("{path}.{key} is missing")));
}
