//! Checks promises about every rendered overlay that no schema can express: images, ports, allowed connections, users
//! of processes, and the existence of referenced resources.
//!
//! Each promise is a function that adds one sentence per violation. Start with [`broken`].

use std::collections::BTreeSet;

use serde_json::Value;

use super::foreign;

/// Images of this project that run in a cluster.
const IMAGES: [&str; 6] = ["replay-server", "learner", "inference-server", "actor", "arena", "cli"];

/// Suffix of image names with CUDA.
const FOR_GPUS: &str = "-gpu";

/// User id of processes in the images.
const USER: u64 = 10001;

/// Ports on which each role listens in addition to the admin port, with names.
const PORTS: [(&str, &str, u64); 4] =
    [("replay", "grpc", 7001), ("learner", "grpc", 7002), ("inference", "grpc", 7003), ("console", "https", 7080)];
const ADMIN_PORT: u64 = 9100;
/// Peer of a rule that selects the pods of all roles.
const EVERYONE: &str = "everyone";

/// Allowed calls, each from the role that opens the connection to the role that it calls, as in ARCHITECTURE.md. The
/// console also calls the admin ports of all roles.
const CALLS: [(&str, &str); 7] = [
    ("actor", "replay"),
    ("actor", "learner"),
    ("actor", "inference"),
    ("learner", "replay"),
    ("inference", "learner"),
    ("arena", "learner"),
    ("console", "replay"),
];

/// Lowest port that Linux assigns automatically. Learners in a group sum gradients over such ports.
const CHOSEN_PORT: u64 = 32768;

const COMPONENT: &str = "app.kubernetes.io/component";
const PART_OF: &str = "app.kubernetes.io/part-of";

/// Returns the promises that these documents violate, and the Secrets that `guide`, the user documentation, does not
/// explain.
pub(super) fn broken(documents: &[Value], guide: &str) -> Vec<String> {
    let mut found = Vec::new();
    for document in documents {
        found.extend(foreign::wrong(document).into_iter().map(|what| format!("{}: {what}", name_of(document))));
        if document["kind"] == "Secret" {
            found.push(format!("{}: secrets must be created in the cluster, not in manifests", name_of(document)));
        }
    }
    let documents = Documents(documents);
    documents.unsafe_pods(&mut found);
    documents.wrong_images(&mut found);
    documents.wrong_ports(guide, &mut found);
    documents.selectors_without_pods(&mut found);
    documents.wrong_calls(&mut found);
    documents.wrong_group(&mut found);
    documents.scaled_twice(&mut found);
    documents.missing_names(guide, &mut found);
    found
}

/// Documents of one overlay.
struct Documents<'a>(&'a [Value]);

impl<'a> Documents<'a> {
    fn of(&self, kinds: &'static [&str]) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(|document| document["kind"].as_str().is_some_and(|kind| kinds.contains(&kind)))
    }

    /// Returns the documents of kinds that create pods.
    fn workloads(&self) -> impl Iterator<Item = &'a Value> {
        self.of(&["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod", "ReplicaSet"])
    }

    /// Returns every container with the workload of the pod.
    fn containers(&self) -> impl Iterator<Item = (&'a Value, &'a Value)> {
        self.workloads().flat_map(|workload| containers(workload).map(move |container| (workload, container)))
    }

    /// Returns the workloads with pods that `selector` selects: by all labels of `matchLabels`, or by a Service's map.
    fn picked(&self, selector: &Value) -> Vec<&'a Value> {
        let labels = selector.get("matchLabels").unwrap_or(selector).as_object();
        let picks = |workload: &&Value| {
            let of_pod = &workload["spec"]["template"]["metadata"]["labels"];
            labels.is_some_and(|labels| labels.iter().all(|(key, value)| of_pod[key] == *value))
        };
        self.workloads().filter(picks).collect()
    }

    /// Checks that no container runs as root, writes to its image, gains privileges or has a token of the cluster, and
    /// that each requests CPU and limits memory.
    fn unsafe_pods(&self, found: &mut Vec<String>) {
        for workload in self.workloads() {
            let pod = &workload["spec"]["template"]["spec"];
            let mut must = |place: &Value, path: &str, wanted: Value, whose: &str| {
                if place.pointer(path) != Some(&wanted) {
                    found.push(format!("{}: {whose}{path} is not {wanted}", name_of(workload)));
                }
            };
            must(pod, "/securityContext/runAsNonRoot", true.into(), "pod");
            must(pod, "/securityContext/runAsUser", USER.into(), "pod");
            must(pod, "/securityContext/runAsGroup", USER.into(), "pod");
            must(pod, "/securityContext/seccompProfile/type", "RuntimeDefault".into(), "pod");
            must(pod, "/automountServiceAccountToken", false.into(), "pod");
            for container in containers(workload) {
                let whose = format!("container {} ", container["name"].as_str().unwrap_or_default());
                must(container, "/securityContext/readOnlyRootFilesystem", true.into(), &whose);
                must(container, "/securityContext/allowPrivilegeEscalation", false.into(), &whose);
                must(container, "/securityContext/capabilities/drop", vec!["ALL"].into(), &whose);
                let resources = &container["resources"];
                let bounded =
                    resources.pointer("/limits/memory").is_some() && resources.pointer("/requests/cpu").is_some();
                must(&Value::from(vec![bounded]), "/0", true.into(), &format!("{whose}requests CPU, limits memory: "));
            }
        }
        for account in self.of(&["ServiceAccount"]) {
            if account["automountServiceAccountToken"] != false {
                found.push(format!("{}: automountServiceAccountToken is not false", name_of(account)));
            }
        }
    }

    /// Checks that all images belong to this project, that each is used, and that each has a fixed tag. Exactly the
    /// containers that request a GPU run an image with CUDA and name the device: with `auto`, a pod without a working
    /// GPU would compute on the CPU.
    fn wrong_images(&self, found: &mut Vec<String>) {
        let mut unused: BTreeSet<&str> = IMAGES.into();
        for (workload, container) in self.containers() {
            let image = container["image"].as_str().unwrap_or_default();
            let (name, tag) = image.rsplit_once(':').unwrap_or((image, ""));
            let without_suffix = name.strip_suffix(FOR_GPUS);
            let ours = without_suffix.unwrap_or(name).strip_prefix("zerofleet/");
            match IMAGES.into_iter().find(|image| ours == Some(*image)) {
                Some(ours) => drop(unused.remove(ours)),
                None => found.push(format!("{}: {image} is not an image of this project", name_of(workload))),
            }
            if tag.is_empty() || tag == "latest" {
                found.push(format!("{}: {image} has no fixed tag", name_of(workload)));
            }
            let has_gpu = !container["resources"]["limits"]["nvidia.com/gpu"].is_null();
            let names_cuda = array(&container["env"]).any(|variable| {
                let name = variable["name"].as_str().unwrap_or_default();
                name.starts_with("ZEROFLEET__") && name.ends_with("__DEVICE") && variable["value"] == "cuda"
            });
            if has_gpu != without_suffix.is_some() || has_gpu != names_cuda {
                let [gpu, device] = [has_gpu, names_cuda].map(|yes| if yes { "" } else { "no " });
                found.push(format!("{}: {gpu}GPU, {device}device `cuda`, image {image}", name_of(workload)));
            }
        }
        found.extend(unused.into_iter().map(|image| format!("no pod runs zerofleet/{image}")));
    }

    /// Checks that containers listen on the declared ports, and that Services and probes name existing ports.
    fn wrong_ports(&self, guide: &str, found: &mut Vec<String>) {
        for (workload, container) in self.containers() {
            let role = component(workload);
            let mut wanted = vec![("admin", ADMIN_PORT)];
            wanted.extend(PORTS.iter().filter(|(whose, ..)| *whose == role).map(|(_, name, port)| (*name, *port)));
            let mut ports: Vec<(&str, u64)> = array(&container["ports"])
                .map(|port| (port["name"].as_str().unwrap_or_default(), number(&port["containerPort"])))
                .collect();
            ports.sort_unstable();
            if ports != wanted {
                found.push(format!("{}: ports {ports:?} are not {wanted:?}", name_of(workload)));
            }
            for (name, port) in &wanted {
                let admin = if role == "console" { "health" } else { "admin" };
                let flag = if *name == "admin" { admin } else { "listen" };
                let argument = format!("--{flag}=0.0.0.0:{port}");
                if !array(&container["args"]).any(|given| *given == *argument) {
                    found.push(format!("{}: argument {argument} is missing", name_of(workload)));
                }
                if !guide.contains(&format!("| {port} |")) {
                    found.push(format!("{}: docs/kubernetes.md does not list port {port}", name_of(workload)));
                }
            }
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                if container[probe]["httpGet"]["port"] != "admin" {
                    found.push(format!("{}: {probe} does not use the admin port", name_of(workload)));
                }
            }
        }
        for service in self.of(&["Service"]) {
            for port in array(&service["spec"]["ports"]) {
                for workload in self.picked(&service["spec"]["selector"]) {
                    let has = |container: &Value| {
                        array(&container["ports"])
                            .any(|of| of["name"] == port["targetPort"] && of["containerPort"] == port["port"])
                    };
                    if !containers(workload).any(has) {
                        let (name, target) = (name_of(workload), &port["targetPort"]);
                        found.push(format!("{}: {name} has no port {target} of this number", name_of(service)));
                    }
                }
            }
        }
    }

    /// Checks that selectors match existing pods, and that the Service of each StatefulSet exists.
    fn selectors_without_pods(&self, found: &mut Vec<String>) {
        for document in self.0 {
            let spec = &document["spec"];
            let selector = match document["kind"].as_str().unwrap_or_default() {
                "Service" | "PodDisruptionBudget" | "Deployment" | "StatefulSet" | "PodMonitor" => &spec["selector"],
                "NetworkPolicy" => &spec["podSelector"],
                _ => continue,
            };
            if self.picked(selector).is_empty() {
                found.push(format!("{}: {selector} selects no pod", name_of(document)));
            }
        }
        for set in self.of(&["StatefulSet"]) {
            let service = &set["spec"]["serviceName"];
            if !self.of(&["Service"]).any(|other| other["metadata"]["name"] == *service) {
                found.push(format!("{}: there is no Service {service}", name_of(set)));
            }
        }
    }

    /// Returns the StatefulSets of learners.
    fn learners(&self) -> impl Iterator<Item = &'a Value> {
        self.of(&["StatefulSet"]).filter(|set| component(set) == "learner")
    }

    /// Checks that each of several learners has the addresses of the whole group, and the pod index as the learner
    /// index.
    fn wrong_group(&self, found: &mut Vec<String>) {
        for set in self.learners() {
            let replicas = number(&set["spec"]["replicas"]);
            let (name, service) = (&set["metadata"]["name"], &set["spec"]["serviceName"]);
            let [name, service] = [name, service].map(|name| name.as_str().unwrap_or_default());
            let endpoint = |pod: u64| format!("https://learner@{name}-{pod}.{service}:7002");
            let group =
                if replicas > 1 { (0..replicas).map(endpoint).collect::<Vec<_>>().join(",") } else { String::new() };
            for container in containers(set) {
                let variable = |key: &str| array(&container["env"]).find(|variable| variable["name"] == key);
                let listed = variable("ZEROFLEET__LEARNER__GROUP").map_or("", |of| of["value"].as_str().unwrap_or("?"));
                if listed != group {
                    found.push(format!("{}: learner.group is `{listed}`, not `{group}`", name_of(set)));
                }
                let index =
                    variable("ZEROFLEET__LEARNER__INDEX").and_then(|of| of.pointer("/valueFrom/fieldRef/fieldPath"));
                if replicas > 1 && index.is_none_or(|path| path != "metadata.labels['apps.kubernetes.io/pod-index']") {
                    found.push(format!("{}: the learner index is not the pod index", name_of(set)));
                }
            }
        }
    }

    /// Checks that network policies allow exactly [`CALLS`] on both sides, and deny everything by default.
    fn wrong_calls(&self, found: &mut Vec<String>) {
        let (mut outgoing, mut incoming) = (BTreeSet::new(), BTreeSet::new());
        for policy in self.of(&["NetworkPolicy"]) {
            let this = policy["spec"]["podSelector"]["matchLabels"][COMPONENT].as_str();
            for (side, peers, calls) in [("egress", "to", &mut outgoing), ("ingress", "from", &mut incoming)] {
                for rule in array(&policy["spec"][side]) {
                    let ports: Vec<u64> = array(&rule["ports"]).map(|port| number(&port["port"])).collect();
                    if ports.is_empty() || array(&rule[peers]).next().is_none() {
                        found.push(format!("{}: a rule of {side} allows any peer or any port", name_of(policy)));
                    }
                    let role = |peer: &'a Value| {
                        let labels = &peer["podSelector"]["matchLabels"];
                        labels[COMPONENT].as_str().or_else(|| labels[PART_OF].as_str().map(|_| EVERYONE))
                    };
                    for other in array(&rule[peers]).filter_map(role) {
                        let this = this.unwrap_or(EVERYONE);
                        let (from, to) = if side == "egress" { (this, other) } else { (other, this) };
                        calls.extend(ports.iter().map(|port| (from, to, *port)));
                    }
                }
            }
        }
        let port_of = |role| PORTS.iter().find(|(whose, ..)| *whose == role).map_or(0, |(_, _, port)| *port);
        let mut wanted: BTreeSet<(&str, &str, u64)> = CALLS.map(|(from, to)| (from, to, port_of(to))).into();
        wanted.insert(("console", EVERYONE, ADMIN_PORT));
        if self.learners().any(|learners| number(&learners["spec"]["replicas"]) > 1) {
            wanted.extend([port_of("learner"), CHOSEN_PORT].map(|port| ("learner", "learner", port)));
        }
        for (side, calls) in [("egress", &outgoing), ("ingress", &incoming)] {
            for call in wanted.symmetric_difference(calls) {
                let (from, to, port) = call;
                let what = if calls.contains(call) { "allows" } else { "forbids" };
                found.push(format!("network policies: {side} {what} {from} to {to}:{port}"));
            }
        }
        let denies = |policy: &Value| {
            let spec = &policy["spec"];
            let all = spec["podSelector"]["matchLabels"][COMPONENT].is_null();
            all && array(&spec["policyTypes"]).count() == 2 && spec["ingress"].is_null() && spec["egress"].is_null()
        };
        if !self.of(&["NetworkPolicy"]).any(denies) {
            found.push("network policies: no default deny".to_owned());
        }
    }

    /// Checks that the target of each autoscaler exists, that no other autoscaler scales it, and that the target's
    /// manifest sets no replica count.
    fn scaled_twice(&self, found: &mut Vec<String>) {
        let mut seen = BTreeSet::new();
        for scaler in self.of(&["HorizontalPodAutoscaler", "ScaledObject"]) {
            let target = &scaler["spec"]["scaleTargetRef"];
            let is_target = |workload: &&Value| {
                workload["metadata"]["name"] == target["name"] && workload["kind"] == target["kind"]
            };
            match self.workloads().find(is_target) {
                None => found.push(format!("{}: there is no {target}", name_of(scaler))),
                Some(workload) => {
                    if !workload["spec"]["replicas"].is_null() {
                        found.push(format!("{}: has replicas and an autoscaler", name_of(workload)));
                    }
                    if !seen.insert(name_of(workload)) {
                        found.push(format!("{}: has two autoscalers", name_of(workload)));
                    }
                }
            }
        }
    }

    /// Checks that the ConfigMaps, claims and accounts named by pods exist, and that the user guide documents the
    /// Secrets.
    fn missing_names(&self, guide: &str, found: &mut Vec<String>) {
        for workload in self.workloads() {
            let pod = &workload["spec"]["template"]["spec"];
            let mut needs = |kind: &'static str, name: &Value| {
                let is_it = |document: &&Value| document["kind"] == kind && document["metadata"]["name"] == *name;
                if name.is_string() && !self.0.iter().any(|document| is_it(&document)) {
                    found.push(format!("{}: there is no {kind} {name}", name_of(workload)));
                }
            };
            needs("ServiceAccount", &pod["serviceAccountName"]);
            let mut secrets = Vec::new();
            for volume in array(&pod["volumes"]) {
                needs("ConfigMap", &volume["configMap"]["name"]);
                needs("PersistentVolumeClaim", &volume["persistentVolumeClaim"]["claimName"]);
                secrets.push(&volume["secret"]["secretName"]);
                secrets.extend(array(&volume["projected"]["sources"]).map(|source| &source["secret"]["name"]));
            }
            for container in containers(workload) {
                secrets.extend(array(&container["envFrom"]).map(|source| &source["secretRef"]["name"]));
            }
            for secret in secrets.into_iter().filter_map(Value::as_str) {
                if !guide.contains(&format!("`{secret}`")) {
                    found.push(format!("{}: docs/kubernetes.md does not explain `{secret}`", name_of(workload)));
                }
            }
        }
    }
}

fn containers(workload: &Value) -> impl Iterator<Item = &Value> {
    let pod = &workload["spec"]["template"]["spec"];
    array(&pod["containers"]).chain(array(&pod["initContainers"]))
}

fn component(document: &Value) -> &str {
    document["metadata"]["labels"][COMPONENT].as_str().unwrap_or_default()
}

fn name_of(document: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!("{} {}", text(&document["kind"]), text(&document["metadata"]["name"]))
}

/// Iterates over the items of a list; any other value has none.
pub(super) fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
