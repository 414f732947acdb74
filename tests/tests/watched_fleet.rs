//! A fleet that Prometheus scrapes, and the dashboards that query it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tests::{Cluster, Process, Role, Target};

/// Starting libtorch on a busy machine takes a while.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Returns the directory `deploy` of the repository.
pub(crate) fn deployed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the repository").join("deploy")
}

/// Returns the paths of the deployed dashboards, sorted by name.
pub(crate) fn dashboards() -> Vec<PathBuf> {
    let listed = std::fs::read_dir(deployed().join("grafana/dashboards")).expect("list the dashboards");
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.expect("list the dashboards").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths
}

/// A panel of a dashboard.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) kind: String,
    /// Legend and expression of each query.
    pub(crate) targets: Vec<(String, String)>,
}

impl Panel {
    /// Returns the panel with each of the expressions.
    pub(crate) fn queries(self) -> Vec<(Self, String)> {
        self.targets.iter().map(|(_, expression)| (self.clone(), expression.clone())).collect()
    }
}

/// Returns every panel of every dashboard, without the rows that only group panels.
pub(crate) fn panels() -> Vec<Panel> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for path in dashboards() {
        let read = std::fs::read_to_string(&path).expect("read a dashboard");
        let dashboard: Value = serde_json::from_str(&read).expect("a dashboard is JSON");
        for panel in dashboard["panels"].as_array().expect("a dashboard has panels") {
            let targets = panel["targets"].as_array().into_iter().flatten();
            found.push(Panel {
                title: text(&panel["title"]),
                unit: text(&panel["fieldConfig"]["defaults"]["unit"]),
                kind: text(&panel["type"]),
                targets: targets.map(|target| (text(&target["legendFormat"]), text(&target["expr"]))).collect(),
            });
        }
    }
    found.retain(|panel| panel.kind != "row");
    found
}

/// A cluster with an inference server that evaluates for the actor.
pub(crate) struct Fleet {
    pub(crate) cluster: Cluster,
    inference: Process,
}

impl Fleet {
    /// Creates the processes without starting them.
    pub(crate) fn new(game: &str, sections: &str, settings: &[(Role, &str)]) -> anyhow::Result<Self> {
        let mut cluster = Cluster::new(game, sections)?;
        let (inference, endpoint) = cluster.inference_server()?;
        let archive = format!("replay.archive=file://{}", cluster.directory().join("archive").display());
        let inference_endpoint = format!("actor.inference={endpoint}");
        let own = [(Role::Replay, archive.as_str()), (Role::Actor, inference_endpoint.as_str())];
        for (role, setting) in own.iter().chain(settings) {
            cluster.process(*role).argue(&["--set", setting]);
        }
        Ok(Self { cluster, inference })
    }

    /// Starts servers first, so that the actor finds them.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.cluster.start(&[Role::Replay, Role::Learner])?;
        self.inference.start()?;
        self.inference.ready(START_DEADLINE)?;
        self.cluster.start(&[Role::Actor, Role::Arena])
    }

    /// Returns the targets for Prometheus to scrape.
    pub(crate) fn targets(&mut self) -> Vec<Target> {
        let roles =
            [(Role::Replay, "replay"), (Role::Learner, "learner"), (Role::Actor, "actor"), (Role::Arena, "arena")];
        let mut found: Vec<Target> =
            roles.map(|(role, service)| Target { service, admin: self.cluster.process(role).admin() }).into();
        found.push(Target { service: "inference", admin: self.inference.admin() });
        found
    }
}
