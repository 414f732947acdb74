//! Validates custom resources of KEDA, the Prometheus operator and cert-manager.
//!
//! No package index has schemas for them, so `foreign.json` describes the used part of each in a subset of JSON Schema:
//! every key, and whether it is required. The validation finds only misspelt and missing keys, and values of the wrong
//! type. A further key in a manifest must be added to that file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::promises::array;

/// Schema of a value. Unlike in JSON Schema, an object has no additional keys, and a list is not empty.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Schema {
    /// Type of the value. If missing, any value is valid: the published schemas check it elsewhere, or it is
    /// unrestricted.
    r#type: Option<Type>,
    #[serde(default)]
    properties: BTreeMap<String, Schema>,
    #[serde(default)]
    required: Vec<String>,
    items: Option<Box<Schema>>,
    #[serde(rename = "description")]
    _description: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    String,
    Integer,
    Boolean,
    Object,
    Array,
}

/// Returns the errors of a custom resource; none for any other document.
pub(super) fn wrong(document: &Value) -> Vec<String> {
    let [version, kind] = ["apiVersion", "kind"].map(|key| document[key].as_str().unwrap_or_default());
    let group = version.split('/').next().unwrap_or_default();
    if !group.contains('.') || group.ends_with(".k8s.io") {
        return Vec::new();
    }
    let known: BTreeMap<String, Schema> =
        serde_json::from_str(include_str!("foreign.json")).expect("foreign.json holds schemas");
    let Some(schema) = known.get(&format!("{version} {kind}")) else {
        return vec![format!("no schema for {kind:?} of {version:?}")];
    };
    let mut found = Vec::new();
    differs(&document["spec"], schema, "spec", &mut found);
    found
}

fn differs(value: &Value, schema: &Schema, path: &str, found: &mut Vec<String>) {
    let is_it = match &schema.r#type {
        None => return,
        Some(Type::String) => value.is_string(),
        Some(Type::Integer) => value.is_u64(),
        Some(Type::Boolean) => value.is_boolean(),
        Some(Type::Array) => array(value).next().is_some(),
        Some(Type::Object) => value.is_object(),
    };
    if !is_it {
        found.push(format!("{path}: {value} has the wrong type"));
        return;
    }
    for (index, item) in array(value).enumerate() {
        schema.items.iter().for_each(|items| differs(item, items, &format!("{path}[{index}]"), found));
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        match schema.properties.get(key) {
            Some(schema) => differs(value, schema, &format!("{path}.{key}"), found),
            None => found.push(format!("{path}.{key}: unknown key")),
        }
    }
    let missing = schema.required.iter().filter(|key| value.get(key).is_none());
    found.extend(missing.map(|key| format!("{path}.{key} is missing")));
}
