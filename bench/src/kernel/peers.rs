//! The engines that Python runs: OpenVINO and onnxruntime, in a virtual environment of their own.
//!
//! A missing or failing engine is reported with its reason; it never fails the benchmark.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use weights::Architecture;

const SCRIPT: &str = include_str!("peers.py");
/// The longest time for an answer beyond the measured time: large networks are built and compiled first.
const PATIENCE: Duration = Duration::from_secs(300);

/// A script that measures on request.
#[derive(Debug)]
pub(super) struct Peers {
    /// The versions of the engines.
    pub(super) versions: String,
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    last_id: u64,
    patience: Duration,
}

/// An answer of the script.
#[derive(Debug, Deserialize)]
struct Answer {
    id: u64,
    evaluations_per_second: Option<f64>,
    versions: Option<String>,
    error: Option<String>,
}

impl Peers {
    /// Starts the script with the Python environment in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// The step that failed, in words.
    pub(super) fn start(folder: &Path, threads: usize, seed: u64) -> anyhow::Result<Self> {
        let python = environment(folder)?;
        let script = folder.join("peers.py");
        std::fs::write(&script, SCRIPT).with_context(|| format!("write {}", script.display()))?;
        let mut command = Command::new(python);
        command.arg(script).arg(threads.to_string()).arg(seed.to_string());
        Self::converse(command, PATIENCE)
    }

    /// Starts `command` and waits for its line of versions.
    fn converse(mut command: Command, patience: Duration) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("start the script")?;
        let requests = child.stdin.take().context("open its standard input")?;
        let output = child.stdout.take().context("open its standard output")?;
        let (sender, answers) = sync_channel(1);
        let read = move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| sender.send(line).is_ok()) {}
        };
        let reader = Some(std::thread::Builder::new().name("peers".to_owned()).spawn(read)?);
        let mut peers = Self { versions: String::new(), child, requests, answers, reader, last_id: 0, patience };
        let hello = peers.receive(patience)?;
        peers.versions = hello.versions.context("its first answer has no field `versions`")?;
        Ok(peers)
    }

    /// Measures the evaluations/s of an engine of the script, such as `openvino bf16`, over all threads.
    ///
    /// # Errors
    /// The error of the engine or of the script.
    pub(super) fn measure(
        &mut self,
        engine: &str,
        architecture: &Architecture,
        batch: usize,
        time: Duration,
    ) -> anyhow::Result<f64> {
        self.last_id += 1;
        let line = request(self.last_id, engine, architecture, batch, time);
        writeln!(self.requests, "{line}").and_then(|()| self.requests.flush()).context("write to the script")?;
        let answer = self.receive(self.patience + time)?;
        match (answer.evaluations_per_second, answer.error) {
            (_, Some(error)) => Err(anyhow!(error)),
            (Some(speed), None) if speed > 0.0 => Ok(speed),
            _ => Err(anyhow!("it did not answer with a speed")),
        }
    }

    /// Reads the next line, which must answer the last request.
    fn receive(&mut self, patience: Duration) -> anyhow::Result<Answer> {
        let line = self.answers.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => anyhow!("it did not answer within {} s", patience.as_secs()),
            RecvTimeoutError::Disconnected => anyhow!("it ended"),
        })?;
        read(&line, self.last_id)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // The script may be busy; its answer is dropped.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A reader that still holds a line ends when the channel closes.
        self.answers = sync_channel(0).1;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// A request to the script.
fn request(id: u64, engine: &str, architecture: &Architecture, batch: usize, time: Duration) -> Value {
    let Architecture { blocks, channels, planes, height, width, actions, .. } = architecture;
    let network = json!({
        "blocks": blocks, "channels": channels, "planes": planes, "height": height, "width": width, "actions": actions
    });
    json!({ "id": id, "engine": engine, "network": network, "batch": batch, "seconds": time.as_secs_f64() })
}

/// Parses a line of the script as the answer to request `id`.
fn read(line: &str, id: u64) -> anyhow::Result<Answer> {
    let answer: Answer = serde_json::from_str(line).map_err(|_| {
        let begin: String = line.chars().take(80).collect();
        anyhow!("`{begin}` is not an answer")
    })?;
    ensure!(answer.id == id, "it answered request {} instead of {id}", answer.id);
    Ok(answer)
}

/// Returns the Python interpreter of a virtual environment with the packages that the script needs.
fn environment(folder: &Path) -> anyhow::Result<PathBuf> {
    // Absolute, because the environment's own scripts name it.
    let folder = std::path::absolute(folder).context("find the folder")?;
    let python = folder.join("bin").join("python");
    if !python.is_file() {
        let mut command = Command::new("python3");
        run(command.args(["-m", "venv"]).arg(&folder), "make a virtual environment")?;
    }
    install(&python, &["numpy", "onnx"])?;
    // Either can be measured without the other; the script reports the missing one.
    let found = ["openvino", "onnxruntime"].map(|package| install(&python, &[package]));
    match found {
        [Err(error), Err(_)] => Err(error),
        _ => Ok(python),
    }
}

/// Installs the packages unless they can be imported; the name of each is also its import name.
fn install(python: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let import = format!("import {}", packages.join(", "));
    if run(Command::new(python).args(["-c", &import]), "import").is_ok() {
        return Ok(());
    }
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    run(&mut command, &format!("install {}", packages.join(" and ")))
}

/// Runs a command to its end; if it fails, the error holds the last line that it printed.
fn run(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| what.to_owned())?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
    let last = printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
    bail!("{what}: {}", last.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::NetworkSize;

    fn architecture() -> Architecture {
        NetworkSize { blocks: 1, channels: 16, height: 3, width: 4 }.architecture()
    }

    /// A script that prints `answers` in turn, one for each request after the first.
    fn script(answers: &[&str]) -> anyhow::Result<Peers> {
        let (first, rest) = answers.split_first().unwrap();
        let replies: String = rest.iter().map(|answer| format!("read request; echo '{answer}'; ")).collect();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("echo '{first}'; {replies}read forever"));
        Peers::converse(command, Duration::from_secs(60))
    }

    const HELLO: &str = r#"{"id": 0, "versions": "openvino 1.2.3"}"#;

    /// The result of one request with this answer.
    fn result_of(answer: &str) -> Result<f64, String> {
        let mut peers = script(&[HELLO, answer]).unwrap();
        peers.measure("onnxruntime f32", &architecture(), 8, Duration::ZERO).map_err(|error| error.to_string())
    }

    #[test]
    fn speeds_are_read_in_turn() {
        let answer = |id, speed| format!(r#"{{"id": {id}, "evaluations_per_second": {speed}}}"#);
        let mut peers = script(&[HELLO, &answer(1, 10.5), &answer(2, 20.0)]).unwrap();
        assert_eq!(peers.versions, "openvino 1.2.3");
        for expected in [10.5, 20.0] {
            let speed = peers.measure("openvino bf16", &architecture(), 1, Duration::ZERO);
            assert_eq!(speed.unwrap(), expected);
        }
    }

    #[test]
    fn malformed_lines_are_quoted() {
        for line in ["Illegal instruction", r#"{"id": 1, "evaluations_per_second": NaN}"#, "", r#"{"error": "no id"}"#]
        {
            assert_eq!(result_of(line).unwrap_err(), format!("`{line}` is not an answer"));
        }
    }

    #[test]
    fn errors_wrong_ids_and_missing_speeds_are_reported() {
        assert_eq!(result_of(r#"{"id": 1, "error": "no module"}"#).unwrap_err(), "no module");
        assert_eq!(
            result_of(r#"{"id": 4, "evaluations_per_second": 1}"#).unwrap_err(),
            "it answered request 4 instead of 1"
        );
        for nothing in [r#"{"id": 1}"#, r#"{"id": 1, "evaluations_per_second": 0}"#] {
            assert_eq!(result_of(nothing).unwrap_err(), "it did not answer with a speed");
        }
    }

    #[test]
    fn a_script_that_ends_or_does_not_answer_is_reported() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        assert_eq!(Peers::converse(command, Duration::from_secs(60)).unwrap_err().to_string(), "it ended");
        let mut command = Command::new("sh");
        command.args(["-c", "read forever"]);
        let error = Peers::converse(command, Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "it did not answer within 0 s");
    }

    #[test]
    fn a_request_names_engine_and_network() {
        let architecture = NetworkSize { blocks: 6, channels: 64, height: 6, width: 7 }.architecture();
        assert_eq!(
            request(9, "openvino bf16", &architecture, 8, Duration::from_millis(500)).to_string(),
            r#"{"batch":8,"engine":"openvino bf16","id":9,"network":{"actions":7,"blocks":6,"channels":64,"height":6,"planes":3,"width":7},"seconds":0.5}"#
        );
    }

    #[test]
    fn a_virtual_environment_that_cannot_be_created_is_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Peers::start(file.path(), 1, 1).unwrap_err().to_string();
        assert!(error.starts_with("make a virtual environment"), "{error}");
    }
}
