//! Resources that Kubernetes does not know: KEDA's, the Prometheus operator's, cert-manager's.
//!
//! Their schemas are in no package index, so what we use of each is written down here: every key, and whether it must
//! be there. It finds a misspelt or missing key and a value of the wrong type, and no more; a manifest that uses
//! another key needs it added here.

use serde_json::Value;

/// The type of a value.
enum Shape {
    Text,
    Count,
    Bool,
    Object(&'static [(&'static str, Need, Shape)]),
    /// At least one.
    List(&'static Shape),
    /// Checked by the published schemas elsewhere, or free.
    Any,
}

#[derive(PartialEq)]
enum Need {
    Must,
    May,
}

use Need::{May, Must};
use Shape::{Any, Bool, Count, List, Object, Text};

const SCALED_OBJECT: Shape = Object(&[
    ("scaleTargetRef", Must, Object(&[("apiVersion", May, Text), ("kind", May, Text), ("name", Must, Text)])),
    ("pollingInterval", May, Count),
    ("cooldownPeriod", May, Count),
    ("minReplicaCount", May, Count),
    ("maxReplicaCount", May, Count),
    (
        "triggers",
        Must,
        List(&Object(&[
            ("type", Must, Text),
            ("metricType", May, Text),
            (
                "metadata",
                Must,
                // All of it is text, numbers too.
                Object(&[
                    ("serverAddress", Must, Text),
                    ("query", Must, Text),
                    ("threshold", Must, Text),
                    ("ignoreNullValues", May, Text),
                ]),
            ),
        ])),
    ),
    (
        "advanced",
        May,
        Object(&[(
            "horizontalPodAutoscalerConfig",
            May,
            Object(&[("behavior", May, Object(&[("scaleUp", May, Any), ("scaleDown", May, Any)]))]),
        )]),
    ),
]);

const POD_MONITOR: Shape = Object(&[
    ("selector", Must, Object(&[("matchLabels", Must, Any)])),
    ("podMetricsEndpoints", Must, List(&Object(&[("port", Must, Text), ("path", May, Text), ("interval", May, Text)]))),
    ("podTargetLabels", May, List(&Text)),
]);

const ISSUER: Shape = Object(&[("selfSigned", May, Object(&[])), ("ca", May, Object(&[("secretName", Must, Text)]))]);

const CERTIFICATE: Shape = Object(&[
    ("secretName", Must, Text),
    ("commonName", May, Text),
    ("dnsNames", May, List(&Text)),
    ("isCA", May, Bool),
    ("usages", May, List(&Text)),
    ("duration", May, Text),
    ("privateKey", May, Object(&[("algorithm", May, Text), ("size", May, Count), ("rotationPolicy", May, Text)])),
    ("issuerRef", Must, Object(&[("name", Must, Text), ("kind", May, Text)])),
]);

const KNOWN: [(&str, &str, Shape); 4] = [
    ("keda.sh/v1alpha1", "ScaledObject", SCALED_OBJECT),
    ("monitoring.coreos.com/v1", "PodMonitor", POD_MONITOR),
    ("cert-manager.io/v1", "Issuer", ISSUER),
    ("cert-manager.io/v1", "Certificate", CERTIFICATE),
];

/// The errors of a document of a kind that Kubernetes does not know.
pub(super) fn wrong(document: &Value) -> Vec<String> {
    let (version, kind) = (&document["apiVersion"], &document["kind"]);
    let group = version.as_str().unwrap_or_default().split('/').next().unwrap_or_default();
    if !group.contains('.') || group.ends_with(".k8s.io") {
        return Vec::new();
    }
    let known = KNOWN.iter().find(|(known_version, known_kind, _)| version == known_version && kind == known_kind);
    let Some((_, _, shape)) = known else { return vec![format!("nothing is known of {kind} of {version}")] };
    let mut found = Vec::new();
    differs(&document["spec"], shape, "spec", &mut found);
    found
}

fn differs(value: &Value, shape: &Shape, path: &str, found: &mut Vec<String>) {
    let is_it = match shape {
        Text => value.is_string(),
        Count => value.is_u64(),
        Bool => value.is_boolean(),
        Any => true,
        List(_) => value.as_array().is_some_and(|list| !list.is_empty()),
        Object(_) => value.is_object(),
    };
    if !is_it {
        found.push(format!("{path}: {value} is of another type"));
        return;
    }
    match (shape, value) {
        (List(item), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                differs(value, item, &format!("{path}[{index}]"), found);
            }
        }
        (Object(keys), Value::Object(object)) => {
            for name in object.keys().filter(|name| !keys.iter().any(|(key, ..)| key == name)) {
                found.push(format!("{path}.{name}: no such key is known"));
            }
            for (key, need, shape) in *keys {
                match object.get(*key) {
                    Some(value) => differs(value, shape, &format!("{path}.{key}"), found),
                    None if *need == Must => found.push(format!("{path}.{key} is missing")),
                    None => {}
                }
            }
        }
        _ => {}
    }
}
