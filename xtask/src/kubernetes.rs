//! `cargo xtask kubernetes`: renders every overlay of `deploy/kubernetes`, and validates the result against the
//! published schemas and the promises that hold for all overlays.
//!
//! kubectl renders the overlays, and `kubernetes-validate` from the package index has the schemas of Kubernetes. It has
//! no schemas for custom resources (KEDA, the Prometheus operator, cert-manager), which `foreign` validates. `promises`
//! checks the properties that schemas cannot express. No cluster is contacted.

mod foreign;
mod promises;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::python::{self, Python};
use crate::skip::may_skip;
use crate::{files, workspace};

#[cfg(test)]
mod tests;

/// The oldest version of Kubernetes that the manifests support (because of `ReadWriteOncePod`), and the latest with
/// schemas.
const VERSIONS: &str = "1.29,1.37";

/// Requirements file for `kubernetes-validate` and its dependencies, each in a tested version.
const REQUIREMENTS: &str = include_str!("kubernetes/requirements.txt");

/// Script that reads rendered files, validates each document against the schemas, and writes all documents as JSON.
const VALIDATE: &str = include_str!("kubernetes/validate.py");

/// Renders and checks everything; prints one line per error.
///
/// # Errors
/// A check fails, or a tool is unavailable. A missing kubectl is an error under CI only.
pub fn run(root: &Path) -> Result<()> {
    if workspace::output(Command::new("kubectl").args(["version", "--client"])).is_err() {
        ensure!(may_skip("kubectl"), "kubectl is not installed");
        println!("kubernetes: SKIPPED, kubectl is not installed here");
        return Ok(());
    }
    let python = Python::find()?;
    let site = python::packages(root, "kubernetes-validate", REQUIREMENTS)?;
    let folder = root.join("target").join("kubernetes");
    files::create_folder(&folder)?;

    let overlays = render_all(root, &folder)?;
    let documents = folder.join("documents.json");
    let arguments: Vec<&OsStr> = [site.as_os_str(), OsStr::new(VERSIONS), documents.as_os_str()]
        .into_iter()
        .chain(overlays.values().map(|path| path.as_os_str()))
        .collect();
    python.script(VALIDATE, &arguments).context("run kubernetes-validate")?;
    let checked: Checked =
        serde_json::from_str(&files::read(&documents)?).context("read the output of kubernetes-validate")?;

    let guide = files::read(&root.join("docs/kubernetes.md"))?;
    let mut wrong = checked.wrong;
    for (name, documents) in overlays.keys().zip(&checked.documents) {
        wrong.extend(promises::broken(documents, &guide).into_iter().map(|what| format!("{name}: {what}")));
        println!("{name}: {} documents", documents.len());
    }
    println!(
        "validated against the schemas of Kubernetes {VERSIONS}; kinds without a published schema, \
         against local schemas: {}",
        checked.without_schema.join(", ")
    );
    workspace::report(&wrong, "defects in deploy/kubernetes")
}

/// Output of the validation script.
#[derive(Debug, serde::Deserialize)]
struct Checked {
    /// Documents of each rendered file, in the order of the files.
    documents: Vec<Vec<Value>>,
    /// Schema violations.
    wrong: Vec<String>,
    /// Kinds without a schema.
    without_schema: Vec<String>,
}

/// Renders every overlay, and the optional components over one overlay, into files in `folder`.
fn render_all(root: &Path, folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut sources = BTreeMap::new();
    for overlay in files::list(&root.join("deploy/kubernetes/overlays"))? {
        sources.insert(files::name(&overlay), overlay);
    }
    ensure!(!sources.is_empty(), "no overlay in deploy/kubernetes/overlays");
    sources.insert("components".to_owned(), root.join("xtask/src/kubernetes/components"));

    let render = |(name, source): (String, PathBuf)| {
        let rendered = folder.join(format!("{name}.yaml"));
        let text = workspace::output(Command::new("kubectl").arg("kustomize").arg(source));
        let text = text.with_context(|| format!("render {name}"))?;
        files::write(&rendered, text)?;
        Ok((name, rendered))
    };
    sources.into_iter().map(render).collect()
}
