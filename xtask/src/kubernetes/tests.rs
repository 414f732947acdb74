//! Checks that each violation of a promise is found; `cargo xtask kubernetes` checks the manifests themselves.

use serde_json::{Value, json};

use super::foreign;
use super::promises::{array, broken};

const GUIDE: &str = "| 7001 | | 7002 | | 7003 | | 7080 | | 9100 | `zerofleet-tls`";

struct Role {
    name: &'static str,
    image: &'static str,
    port: Option<u64>,
    callers: &'static [&'static str],
    callees: &'static [(&'static str, u64)],
}

const REPLAY: (&str, u64) = ("replay", 7001);
const LEARNER: (&str, u64) = ("learner", 7002);
const INFERENCE: (&str, u64) = ("inference", 7003);
/// The admin ports of all roles.
const ADMIN: (&str, u64) = ("everyone", 9100);

const ROLES: [Role; 6] = [
    Role {
        name: "replay",
        image: "replay-server",
        port: Some(REPLAY.1),
        callers: &["actor", "learner", "console"],
        callees: &[],
    },
    Role {
        name: "learner",
        image: "learner",
        port: Some(LEARNER.1),
        callers: &["actor", "arena", "inference"],
        callees: &[REPLAY],
    },
    Role {
        name: "inference",
        image: "inference-server",
        port: Some(INFERENCE.1),
        callers: &["actor"],
        callees: &[LEARNER],
    },
    Role { name: "actor", image: "actor", port: None, callers: &[], callees: &[REPLAY, LEARNER, INFERENCE] },
    Role { name: "arena", image: "arena", port: None, callers: &[], callees: &[LEARNER] },
    Role { name: "console", image: "cli", port: Some(7080), callers: &[], callees: &[REPLAY, ADMIN] },
];

fn labels(role: &str) -> Value {
    json!({ "app.kubernetes.io/component": role })
}

fn peer(role: &str) -> Value {
    let labels = if role == ADMIN.0 { json!({ "app.kubernetes.io/part-of": "zerofleet" }) } else { labels(role) };
    json!({ "podSelector": { "matchLabels": labels } })
}

/// Returns a policy that opens the admin ports of all roles to the console.
fn watched() -> Value {
    let rules =
        json!({ "podSelector": {}, "ingress": [{ "from": [peer("console")], "ports": [{ "port": ADMIN.1 }] }] });
    json!({ "kind": "NetworkPolicy", "metadata": { "name": "watched" }, "spec": rules })
}

/// Returns documents that violate no promise.
fn fleet() -> Vec<Value> {
    let deny = json!({
        "kind": "NetworkPolicy",
        "metadata": { "name": "deny" },
        "spec": { "podSelector": { "matchLabels": {} }, "policyTypes": ["Ingress", "Egress"] },
    });
    let mut documents = vec![deny, watched()];
    for Role { name: role, image, port, callers, callees } in ROLES {
        let probe = json!({ "httpGet": { "path": "/healthz", "port": "admin" } });
        let mut ports = vec![json!({ "name": "admin", "containerPort": 9100 })];
        let is_console = role == "console";
        let mut args = vec![json!(if is_console { "--health=0.0.0.0:9100" } else { "--admin=0.0.0.0:9100" })];
        if let Some(port) = port {
            ports.push(json!({ "name": if is_console { "https" } else { "grpc" }, "containerPort": port }));
            args.push(json!(format!("--listen=0.0.0.0:{port}")));
        }
        let container = json!({
            "name": role,
            "image": format!("zerofleet/{image}:1"),
            "args": args,
            "ports": ports,
            "startupProbe": probe,
            "livenessProbe": probe,
            "readinessProbe": probe,
            "resources": { "requests": { "cpu": "1" }, "limits": { "memory": "1Gi" } },
            "securityContext": {
                "readOnlyRootFilesystem": true,
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
            },
        });
        documents.push(json!({
            "kind": "Deployment",
            "metadata": { "name": role, "labels": labels(role) },
            "spec": {
                "selector": { "matchLabels": labels(role) },
                "template": {
                    "metadata": { "labels": labels(role) },
                    "spec": {
                        "automountServiceAccountToken": false,
                        "securityContext": {
                            "runAsNonRoot": true,
                            "runAsUser": 10001,
                            "runAsGroup": 10001,
                            "seccompProfile": { "type": "RuntimeDefault" },
                        },
                        "volumes": [{ "secret": { "secretName": "zerofleet-tls" } }],
                        "containers": [container],
                    },
                },
            },
        }));
        let mut rules = json!({ "podSelector": { "matchLabels": labels(role) } });
        if let Some(port) = port.filter(|_| !callers.is_empty()) {
            let from: Vec<Value> = callers.iter().map(|role| peer(role)).collect();
            rules["ingress"] = json!([{ "from": from, "ports": [{ "port": port }] }]);
        }
        let egress = callees.iter().map(|(role, port)| json!({ "to": [peer(role)], "ports": [{ "port": port }] }));
        rules["egress"] = egress.collect();
        documents.push(json!({ "kind": "NetworkPolicy", "metadata": { "name": role }, "spec": rules }));
    }
    documents
}

fn actor(documents: &mut [Value]) -> &mut Value {
    let is_actor = |document: &&mut Value| document["kind"] == "Deployment" && document["metadata"]["name"] == "actor";
    documents.iter_mut().find(is_actor).unwrap()
}

/// Returns the errors after a change to the actor's pod.
fn after(change: impl FnOnce(&mut Value)) -> String {
    let mut documents = fleet();
    change(&mut actor(&mut documents)["spec"]["template"]["spec"]);
    broken(&documents, GUIDE).join("\n")
}

/// Returns the errors with one more document.
fn with(document: Value) -> String {
    let mut documents = fleet();
    documents.push(document);
    broken(&documents, GUIDE).join("\n")
}

#[test]
fn a_fleet_that_keeps_every_promise_passes() {
    assert_eq!(broken(&fleet(), GUIDE), Vec::<String>::new());
}

#[test]
fn a_pod_that_may_be_root_or_write_to_its_image_is_found() {
    let found = after(|pod| pod["securityContext"]["runAsNonRoot"] = false.into());
    assert_eq!(found, "Deployment actor: pod/securityContext/runAsNonRoot is not true");
    let found = after(|pod| pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = Value::Null);
    assert_eq!(found, "Deployment actor: container actor /securityContext/readOnlyRootFilesystem is not true");
    let found = after(|pod| pod["initContainers"] = json!([{ "name": "first", "image": "zerofleet/actor:1" }]));
    assert!(found.contains("container first /securityContext/capabilities/drop is not [\"ALL\"]"), "{found}");
}

#[test]
fn an_image_of_others_or_without_a_tag_is_found() {
    let found = after(|pod| pod["containers"][0]["image"] = "busybox:1".into());
    assert_eq!(found, "Deployment actor: busybox:1 is not an image of this project\nno pod runs zerofleet/actor");
    let found = after(|pod| pod["containers"][0]["image"] = "zerofleet/actor".into());
    assert_eq!(found, "Deployment actor: zerofleet/actor has no fixed tag");
}

#[test]
fn a_gpu_without_its_image_or_its_device_is_found_and_so_is_an_image_without_a_gpu() {
    let gpu = |pod: &mut Value| {
        pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 1.into();
        pod["containers"][0]["image"] = "zerofleet/actor-gpu:1".into();
        pod["containers"][0]["env"] = json!([{ "name": "ZEROFLEET__ACTOR__DEVICE", "value": "cuda" }]);
    };
    assert_eq!(after(gpu), "");
    let found = after(|pod| {
        gpu(pod);
        pod["containers"][0]["image"] = "zerofleet/actor:1".into();
    });
    assert_eq!(found, "Deployment actor: GPU, device `cuda`, image zerofleet/actor:1");
    let found = after(|pod| {
        gpu(pod);
        pod["containers"][0]["env"][0]["value"] = "auto".into();
    });
    assert_eq!(found, "Deployment actor: GPU, no device `cuda`, image zerofleet/actor-gpu:1");
    let found = after(|pod| pod["containers"][0]["image"] = "zerofleet/actor-gpu:1".into());
    assert_eq!(found, "Deployment actor: no GPU, no device `cuda`, image zerofleet/actor-gpu:1");
}

#[test]
fn a_port_that_is_not_listed_or_not_served_is_found() {
    let found = after(|pod| pod["containers"][0]["ports"][0]["containerPort"] = 9200.into());
    assert!(found.starts_with("Deployment actor: ports [(\"admin\", 9200)] are not [(\"admin\", 9100)]"), "{found}");
    let found = broken(&fleet(), "| 7001 | | 7002 | | 7080 | | 9100 | `zerofleet-tls`").join("\n");
    assert_eq!(found, "Deployment inference: docs/kubernetes.md does not list port 7003");
    let ports = json!([{ "name": "grpc", "port": 7009, "targetPort": "grpc" }]);
    let service = json!({ "kind": "Service", "metadata": { "name": "learner" }, "spec": { "selector": labels("learner"), "ports": ports } });
    assert_eq!(with(service), "Service learner: Deployment learner has no port \"grpc\" of this number");
}

#[test]
fn a_selector_that_matches_no_pod_is_found() {
    let budget = json!({ "kind": "PodDisruptionBudget", "metadata": { "name": "b" }, "spec": { "selector": { "matchLabels": labels("lerner") } } });
    assert!(with(budget).contains("PodDisruptionBudget b: "), "a misspelt label");
}

#[test]
fn an_additional_or_missing_network_rule_is_found_on_either_side() {
    let rules = json!({ "podSelector": { "matchLabels": labels("arena") }, "egress": [{ "to": [peer("replay")], "ports": [{ "port": 7001 }] }] });
    let more = json!({ "kind": "NetworkPolicy", "metadata": { "name": "more" }, "spec": rules });
    assert_eq!(with(more), "network policies: egress allows arena to replay:7001");
    let mut documents = fleet();
    documents.retain(|document| document["kind"] != "NetworkPolicy" || document["metadata"]["name"] != "arena");
    assert_eq!(broken(&documents, GUIDE), ["network policies: egress forbids arena to learner:7002"]);
    let mut documents = fleet();
    documents.retain(|document| document["metadata"]["name"] != "deny");
    assert_eq!(broken(&documents, GUIDE), ["network policies: no default deny"]);
    let mut documents = fleet();
    documents.retain(|document| document["metadata"]["name"] != "watched");
    assert_eq!(broken(&documents, GUIDE), ["network policies: ingress forbids console to everyone:9100"]);
    let anyone = json!({ "podSelector": { "matchLabels": {} }, "ingress": [{ "ports": [{ "port": 9100 }] }] });
    let anyone = json!({ "kind": "NetworkPolicy", "metadata": { "name": "n" }, "spec": anyone });
    assert_eq!(with(anyone), "NetworkPolicy n: a rule of ingress allows any peer or any port");
}

#[test]
fn several_learners_must_list_each_other_know_their_place_and_reach_each_other() {
    let of = |replicas: u64, environment: Value| {
        let mut documents = fleet();
        let learner = documents
            .iter_mut()
            .find(|document| document["metadata"]["name"] == "learner" && document["kind"] == "Deployment");
        let learner = learner.unwrap();
        learner["kind"] = json!("StatefulSet");
        learner["spec"]["replicas"] = json!(replicas);
        learner["spec"]["serviceName"] = json!("learner");
        learner["spec"]["template"]["spec"]["containers"][0]["env"] = environment;
        documents.push(
            json!({ "kind": "Service", "metadata": { "name": "learner" }, "spec": { "selector": labels("learner") } }),
        );
        documents
    };
    let index = json!({ "name": "ZEROFLEET__LEARNER__INDEX", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']" } } });
    let group = |value: &str| json!({ "name": "ZEROFLEET__LEARNER__GROUP", "value": value });
    let both = "https://learner@learner-0.learner:7002,https://learner@learner-1.learner:7002";
    let ports = json!([{ "port": 7002 }, { "port": 32768, "endPort": 60999 }]);
    let rules = json!({ "podSelector": { "matchLabels": labels("learner") }, "ingress": [{ "from": [peer("learner")], "ports": ports.clone() }], "egress": [{ "to": [peer("learner")], "ports": ports }] });
    let policy = json!({ "kind": "NetworkPolicy", "metadata": { "name": "learners" }, "spec": rules });

    assert_eq!(broken(&of(1, json!([])), GUIDE), Vec::<String>::new());
    let mut two = of(2, json!([group(both), index.clone()]));
    assert_eq!(
        broken(&two, GUIDE),
        [
            "network policies: egress forbids learner to learner:7002",
            "network policies: egress forbids learner to learner:32768",
            "network policies: ingress forbids learner to learner:7002",
            "network policies: ingress forbids learner to learner:32768",
        ]
    );
    two.push(policy.clone());
    assert_eq!(broken(&two, GUIDE), Vec::<String>::new());
    let found = broken(&[of(3, json!([group(both)])), vec![policy]].concat(), GUIDE).join("\n");
    assert!(found.contains("learner-2.learner:7002`") && found.contains("is not the pod index"), "{found}");
    let found = broken(&of(1, json!([group(both), index])), GUIDE).join("\n");
    assert!(found.contains("learner.group is") && found.ends_with("not ``"), "{found}");
}

#[test]
fn a_workload_that_is_scaled_twice_is_found() {
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "actor" });
    let by_time = json!({ "kind": "HorizontalPodAutoscaler", "metadata": { "name": "actor" }, "spec": { "scaleTargetRef": target } });
    let mut documents = fleet();
    documents.extend([by_time.clone(), by_time.clone()]);
    assert_eq!(broken(&documents, GUIDE), ["Deployment actor: has two autoscalers"]);
    let mut documents = fleet();
    actor(&mut documents)["spec"]["replicas"] = 3.into();
    documents.push(by_time);
    assert_eq!(broken(&documents, GUIDE), ["Deployment actor: has replicas and an autoscaler"]);
}

#[test]
fn references_to_missing_or_undocumented_resources_are_found() {
    let found = after(|pod| pod["volumes"][0]["configMap"]["name"] = "run".into());
    assert_eq!(found, "Deployment actor: there is no ConfigMap \"run\"");
    let found = after(|pod| pod["serviceAccountName"] = "nobody".into());
    assert_eq!(found, "Deployment actor: there is no ServiceAccount \"nobody\"");
    let found = after(|pod| pod["volumes"][0]["secret"]["secretName"] = "token".into());
    assert_eq!(found, "Deployment actor: docs/kubernetes.md does not explain `token`");
}

#[test]
fn a_secret_in_the_manifests_is_found() {
    let found = with(json!({ "kind": "Secret", "metadata": { "name": "token" } }));
    assert_eq!(found, "Secret token: secrets must be created in the cluster, not in manifests");
}

#[test]
fn a_misspelt_key_of_a_resource_that_has_no_schema_is_found() {
    let trigger = json!({ "type": "prometheus", "metadata": { "serverAddress": "http://p:9090", "query": "up", "treshold": "1" } });
    let document = json!({ "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "spec": { "scaleTargetRef": { "name": "actor" }, "triggers": [trigger] } });
    let found = foreign::wrong(&document);
    assert_eq!(
        found,
        ["spec.triggers[0].metadata.treshold: unknown key", "spec.triggers[0].metadata.threshold is missing"]
    );
    let unknown = json!({ "apiVersion": "example.org/v1", "kind": "Thing" });
    assert_eq!(foreign::wrong(&unknown), ["no schema for \"Thing\" of \"example.org/v1\""]);
    assert_eq!(
        foreign::wrong(&json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy" })),
        Vec::<String>::new()
    );
    assert_eq!(array(&json!("no list")).count(), 0);
}
