//! Engines that Python runs: OpenVINO and onnxruntime, in a separate virtual environment.
//!
//! A missing or failing engine is reported with the reason; it never fails the benchmark.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use weights::Architecture;

use crate::output;
use crate::python;
use crate::script::Script;

const SCRIPT: &str = include_str!("peers.py");
/// Maximum wait for a response beyond the measured time: large networks are built and compiled first.
const PATIENCE: Duration = Duration::from_secs(300);

/// A script that measures on request.
#[derive(Debug)]
pub(super) struct Peers {
    /// Versions of the engines.
    pub(super) versions: String,
    script: Script,
}

/// First response of the script.
#[derive(Debug, Deserialize)]
struct Hello {
    versions: String,
}

impl Peers {
    /// Starts the script with the Python environment in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// A step fails; the error describes it.
    pub(super) fn start(folder: &Path, threads: usize, seed: u64) -> anyhow::Result<Self> {
        let python = environment(folder)?;
        let script = folder.join("peers.py");
        output::write(&script, SCRIPT)?;
        let mut command = Command::new(python);
        command.arg(script).arg(threads.to_string()).arg(seed.to_string()).stderr(Stdio::null());
        Self::converse(command)
    }

    /// Starts `command` and waits for the line with the versions.
    fn converse(command: Command) -> anyhow::Result<Self> {
        let (script, Hello { versions }) = Script::start(command, PATIENCE)?;
        Ok(Self { versions, script })
    }

    /// Measures the evaluations/s of an engine of the script, such as `openvino bf16`, over all threads.
    ///
    /// # Errors
    /// The engine or the script fails.
    pub(super) fn measure(
        &mut self,
        engine: &str,
        architecture: &Architecture,
        batch: usize,
        time: Duration,
    ) -> anyhow::Result<f64> {
        self.script.measure(request(engine, architecture, batch), time, PATIENCE)
    }
}

/// Builds a request to the script.
fn request(engine: &str, architecture: &Architecture, batch: usize) -> Value {
    let Architecture { blocks, channels, planes, height, width, actions, .. } = architecture;
    let network = json!({
        "blocks": blocks, "channels": channels, "planes": planes, "height": height, "width": width, "actions": actions
    });
    json!({ "engine": engine, "network": network, "batch": batch })
}

/// Returns the Python interpreter of a virtual environment with the packages that the script needs.
fn environment(folder: &Path) -> anyhow::Result<PathBuf> {
    let python = python::environment(folder)?;
    install(&python, &["numpy", "onnx"])?;
    // Each can be measured without the other; the script reports the missing package.
    let found = ["openvino", "onnxruntime"].map(|package| install(&python, &[package]));
    match found {
        [Err(error), Err(_)] => Err(error),
        _ => Ok(python),
    }
}

/// Installs the packages unless they can be imported; package names equal import names.
fn install(python: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let import = format!("import {}", packages.join(", "));
    if python::run(Command::new(python).args(["-c", &import]), "import").is_ok() {
        return Ok(());
    }
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    python::run(&mut command, &format!("install {}", packages.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::NetworkSize;
    use crate::script::tests::replying;

    fn architecture() -> Architecture {
        NetworkSize { blocks: 1, channels: 16, height: 3, width: 4 }.architecture()
    }

    fn script(answers: &[&str]) -> anyhow::Result<Peers> {
        Peers::converse(replying(answers))
    }

    const HELLO: &str = r#"{"id": 0, "versions": "openvino 1.2.3"}"#;

    #[test]
    fn speeds_are_read_in_turn() {
        let answer = |id, speed| format!(r#"{{"id": {id}, "per_second": {speed}}}"#);
        let mut peers = script(&[HELLO, &answer(1, 10.5), &answer(2, 20.0)]).unwrap();
        assert_eq!(peers.versions, "openvino 1.2.3");
        for expected in [10.5, 20.0] {
            let speed = peers.measure("openvino bf16", &architecture(), 1, Duration::ZERO);
            assert_eq!(speed.unwrap(), expected);
        }
    }

    #[test]
    fn missing_speeds_are_reported() {
        for nothing in [r#"{"id": 1}"#, r#"{"id": 1, "per_second": 0}"#] {
            let mut peers = script(&[HELLO, nothing]).unwrap();
            let error = peers.measure("onnxruntime f32", &architecture(), 8, Duration::ZERO).unwrap_err();
            assert_eq!(error.to_string(), "the response has no positive speed");
        }
    }

    #[test]
    fn a_request_names_engine_and_network() {
        let architecture = NetworkSize { blocks: 6, channels: 64, height: 6, width: 7 }.architecture();
        assert_eq!(
            request("openvino bf16", &architecture, 8).to_string(),
            r#"{"batch":8,"engine":"openvino bf16","network":{"actions":7,"blocks":6,"channels":64,"height":6,"planes":3,"width":7}}"#
        );
    }

    #[test]
    fn a_virtual_environment_that_cannot_be_created_is_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Peers::start(file.path(), 1, 1).unwrap_err().to_string();
        assert!(error.starts_with("create a virtual environment"), "{error}");
    }
}
