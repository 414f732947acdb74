//! `cargo xtask kubernetes`: every overlay of `deploy/kubernetes`, rendered and held against the published schemas and
//! against what all of them promise.
//!
//! kubectl renders, `kubernetes-validate` from the package index holds the schemas of Kubernetes; resources of others
//! (KEDA, the Prometheus operator, cert-manager) have none there and are held against `foreign`. `promises`
//! checks what schemas cannot express. No cluster is contacted.

mod foreign;
mod promises;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::python::Python;

#[cfg(test)]
mod tests;

/// The oldest version of Kubernetes that manifests are for (`ReadWriteOncePod`), and the newest that has schemas.
const VERSIONS: &str = "1.29,1.37";

/// The packages that are installed: `kubernetes-validate` and its dependencies, each in a version that was tried.
const REQUIREMENTS: [&str; 10] = [
    "kubernetes-validate==1.37.0",
    "attrs==26.1.0",
    "importlib_resources==7.1.0",
    "jsonschema==4.26.0",
    "jsonschema-specifications==2025.9.1",
    "packaging==26.3",
    "PyYAML==6.0.3",
    "referencing==0.37.0",
    "rpds-py==0.27.1",
    "typing_extensions==4.16.0",
];

/// Reads rendered files, holds each document against the schemas, and writes all of them as JSON.
const VALIDATE: &str = include_str!("kubernetes/validate.py");

/// Components that no overlay takes, since not every cluster has what they are for; rendered over this overlay.
const OPTIONAL_COMPONENTS: [&str; 3] = ["pod-monitor", "cert-manager", "traces"];
const BENEATH_COMPONENTS: &str = "cpu";

/// Renders and checks everything; prints what is wrong, a line for each.
///
/// # Errors
/// If something is wrong, or a tool cannot be had. Without kubectl that is so under CI only.
pub fn run(root: &Path) -> Result<()> {
    if !is_there("kubectl") {
        // Where it is not installed, its absence must not pass for a check.
        ensure!(std::env::var_os("CI").is_none(), "kubectl is not installed");
        println!("kubernetes: SKIPPED, kubectl is not installed here");
        return Ok(());
    }
    let python = Python::find()?;
    let site = install(root, &python)?;
    let folder = root.join("target").join("kubernetes");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;

    let overlays = render_all(root, &folder)?;
    let documents = folder.join("documents.json");
    let arguments: Vec<&OsStr> = [site.as_os_str(), OsStr::new(VERSIONS), documents.as_os_str()]
        .into_iter()
        .chain(overlays.values().map(|path| path.as_os_str()))
        .collect();
    python.script(VALIDATE, &arguments).context("run kubernetes-validate")?;
    let text = fs::read_to_string(&documents).with_context(|| format!("read {}", documents.display()))?;
    let checked: Checked = serde_json::from_str(&text).context("read what kubernetes-validate said")?;

    let guide = fs::read_to_string(root.join("docs/kubernetes.md")).context("read docs/kubernetes.md")?;
    let mut wrong = checked.wrong;
    for (name, documents) in overlays.keys().zip(&checked.documents) {
        wrong.extend(promises::broken(documents, &guide).into_iter().map(|what| format!("{name}: {what}")));
        println!("{name}: {} documents", documents.len());
    }
    println!(
        "held against the schemas of Kubernetes {VERSIONS}; without a published schema, held against what we know of them: {}",
        checked.without_schema.join(", ")
    );
    for what in &wrong {
        println!("{what}");
    }
    ensure!(wrong.is_empty(), "{} things are wrong in deploy/kubernetes", wrong.len());
    Ok(())
}

/// The output of the script.
#[derive(Debug, serde::Deserialize)]
struct Checked {
    /// Documents of each rendered file, in the order of the files.
    documents: Vec<Vec<Value>>,
    /// Violations of a schema.
    wrong: Vec<String>,
    /// Kinds that have none.
    without_schema: Vec<String>,
}

/// Renders every overlay, and the optional components over one, into files in `folder`.
fn render_all(root: &Path, folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let kubernetes = root.join("deploy/kubernetes");
    let mut sources = BTreeMap::new();
    for entry in fs::read_dir(kubernetes.join("overlays")).context("read deploy/kubernetes/overlays")? {
        let entry = entry.context("read deploy/kubernetes/overlays")?;
        sources.insert(entry.file_name().to_string_lossy().into_owned(), entry.path());
    }
    ensure!(!sources.is_empty(), "there is no overlay in deploy/kubernetes/overlays");
    let optional = folder.join("components");
    fs::create_dir_all(&optional).with_context(|| format!("create {}", optional.display()))?;
    let components: String =
        OPTIONAL_COMPONENTS.iter().map(|name| format!("  - ../../../deploy/kubernetes/components/{name}\n")).collect();
    let text =
        format!("resources:\n  - ../../../deploy/kubernetes/overlays/{BENEATH_COMPONENTS}\ncomponents:\n{components}");
    fs::write(optional.join("kustomization.yaml"), text).context("write a kustomization")?;
    sources.insert("components".to_owned(), optional);

    let render = |(name, source): (String, PathBuf)| {
        let rendered = folder.join(format!("{name}.yaml"));
        let output = Command::new("kubectl")
            .arg("kustomize")
            .arg(source)
            .stdin(Stdio::null())
            .output()
            .context("start kubectl")?;
        if !output.status.success() {
            bail!("render {name}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        fs::write(&rendered, output.stdout).with_context(|| format!("write {}", rendered.display()))?;
        Ok((name, rendered))
    };
    sources.into_iter().map(render).collect()
}

/// `kubernetes-validate` in `.tools/kubernetes-validate`, installed unless it is there in these versions.
fn install(root: &Path, python: &Python) -> Result<PathBuf> {
    let folder = root.join(".tools").join("kubernetes-validate");
    let stamp = folder.join("requirements.txt");
    let wanted = REQUIREMENTS.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
        return Ok(folder);
    }
    eprintln!("installing {} into {}", REQUIREMENTS[0], folder.display());
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("remove {}", folder.display()));
        }
        _ => fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?,
    }
    python.install_all(&REQUIREMENTS, &folder)?;
    fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))?;
    Ok(folder)
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.args(["version", "--client"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
