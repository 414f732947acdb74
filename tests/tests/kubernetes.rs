//! Every process accepts the run file of `deploy/kubernetes`, and the environment variables with which overlays
//! override it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

fn kubernetes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes")
}

/// Returns the variables `ZEROFLEET__…` that a manifest sets to literal values. The manifest is scanned line by line,
/// not parsed as YAML.
fn variables(manifest: &str) -> BTreeMap<String, String> {
    let lines: Vec<&str> = manifest.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter_map(|pair| {
        let name = pair[0].strip_prefix("- name: ")?;
        let value = pair[1].strip_prefix("value: ")?;
        name.starts_with("ZEROFLEET__")
            .then(|| (name.to_owned(), value.trim_matches('"').replace("$(POD_NAME)", "replay-0")))
    });
    pairs.collect()
}

/// Adds every manifest below `folder` to `found`.
fn manifests(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            manifests(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the configuration of a process with the run file and these variables.
fn configuration(program: &str, variables: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let mut command = Command::new(tests::program(program)?);
    let file = kubernetes().join("base/zerofleet.toml");
    let output = command.arg("--config").arg(file).arg("--print-config").envs(variables).output()?;
    let refusal = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} refuses the run file with {variables:?}: {refusal}");
    String::from_utf8(output.stdout).context("read the configuration")
}

#[test]
fn every_process_accepts_the_run_file_and_the_variables_of_all_manifests() -> anyhow::Result<()> {
    let mut paths = Vec::new();
    manifests(&kubernetes(), &mut paths)?;
    let mut all = BTreeMap::new();
    for path in paths {
        for (name, value) in variables(&std::fs::read_to_string(&path)?) {
            let other = all.insert(name.clone(), value.clone()).unwrap_or_else(|| value.clone());
            ensure!(other == value, "{name} is {value} here and {other} there: try one after the other");
        }
    }
    for name in ["ZEROFLEET__ACTOR__INFERENCE", "ZEROFLEET__REPLAY__ARCHIVE", "ZEROFLEET__LEARNER__DEVICE"] {
        ensure!(all.contains_key(name), "no manifest sets {name}: {all:?}");
    }
    for program in ["replay-server", "learner", "actor", "arena", "inference-server"] {
        for set in [&BTreeMap::new(), &all] {
            let text = configuration(program, set)?;
            ensure!(text.contains("directory = \"/data\""), "{program} does not keep its data on the volume:\n{text}");
        }
    }
    Ok(())
}

#[test]
fn the_console_takes_the_same_run_file_and_serves_other_machines_with_a_certificate_only() -> anyhow::Result<()> {
    let mut command = Command::new(tests::program("zerofleet")?);
    // A console that starts against expectation stops, as standard input is closed.
    command.args(["console", "--exit-with-parent", "--listen", "0.0.0.0:0", "--config"]);
    command.arg(kubernetes().join("base/zerofleet.toml"));
    // The certificate of the pod is not on this machine.
    let output = command.env("ZEROFLEET__SECURITY__CLIENT_CA", "").output()?;
    let refusal = String::from_utf8_lossy(&output.stderr);
    let names_it = refusal.contains("security.certificate") && refusal.contains("/secrets/server.pem");
    ensure!(output.status.code() == Some(2) && names_it, "{}: {refusal}", output.status);
    let output = command.env("ZEROFLEET__SECURITY__CERTIFICATE", "").env("ZEROFLEET__SECURITY__KEY", "").output()?;
    let refusal = String::from_utf8_lossy(&output.stderr);
    ensure!(refusal.contains("security.certificate: is missing"), "{}: {refusal}", output.status);
    Ok(())
}
