//! A program of the user in place of the learner: `zerofleet train --learner own`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use tests::{TrainingRun, program, wait_until};
use version_store::VersionStore;
use weights::{Architecture, WeightsVersion};

const DEADLINE: Duration = Duration::from_secs(90);
const VERSION: &str = "zerofleet_learner_weights_version";
const STEPS: &str = "zerofleet_learner_steps_total";
const VERSION_OF_ACTOR: &str = "zerofleet_actor_weights_version";

/// The headers of the batches that `zerofleet replay batches` writes.
struct Batches {
    command: Child,
    headers: Receiver<Value>,
}

impl Batches {
    /// Starts the command without reading the output.
    fn start(runs: &Path, options: &[&str]) -> Self {
        let command = Command::new(program("zerofleet").unwrap())
            .args(["replay", "batches", "--run", "first", "--batch-size", "64", "--runs"])
            .arg(runs)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { command, headers: channel().1 }
    }

    fn draw(runs: &Path) -> Self {
        let mut batches = Self::start(runs, &[]);
        let mut output = BufReader::new(batches.command.stdout.take().unwrap());
        let (sender, headers) = channel();
        std::thread::spawn(move || while header(&mut output).is_some_and(|header| sender.send(header).is_ok()) {});
        batches.headers = headers;
        batches
    }

    /// Waits until the command ends without an error.
    fn end(mut self, with: &str) {
        let mut status = None;
        wait_until(&format!("the command ends with {with}"), DEADLINE, || {
            status = self.command.try_wait()?;
            Ok(status.is_some())
        })
        .unwrap();
        assert!(status.unwrap().success(), "{status:?}");
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // The command may have exited already.
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

/// Reads the next batch, and returns the header.
fn header(output: &mut impl BufRead) -> Option<Value> {
    let mut line = Vec::new();
    output.read_until(b'\n', &mut line).ok()?;
    let header: Value = serde_json::from_slice(&line).ok()?;
    for array in header["arrays"].as_array()? {
        let count: u64 = array["shape"].as_array()?.iter().filter_map(Value::as_u64).product();
        let size = if array["dtype"] == "uint8" { 1 } else { 4 };
        let mut numbers = Vec::new();
        output.by_ref().take(count * size).read_to_end(&mut numbers).ok()?;
    }
    Some(header)
}

#[test]
fn a_program_of_the_user_draws_batches_and_publishes_weights_with_which_actors_play() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = TrainingRun::new(folder.path(), folder.path()).unwrap();
    run.argue(&["--learner", "own"]);
    run.start().unwrap();
    run.until("actors play with the first version", DEADLINE, |run| {
        run.metric("learner", VERSION) == Some(1.0) && run.metric("actor-0", VERSION_OF_ACTOR) == Some(1.0)
    })
    .unwrap();
    let incoming = run.directory().join("incoming");
    let architecture = fs::read(incoming.join("architecture.json")).unwrap();
    let architecture: Architecture = serde_json::from_slice(&architecture).unwrap();
    assert_eq!((architecture.game.as_str(), architecture.channels), ("tic_tac_toe", 16));

    let first = fs::read(run.directory().join("weights/v000001.safetensors")).unwrap();
    fs::write(incoming.join("next"), first).unwrap();
    fs::rename(incoming.join("next"), incoming.join("000001.safetensors")).unwrap();
    let response = incoming.join("000001.json");
    run.until("the weights are published", DEADLINE, |_| response.exists()).unwrap();
    assert_eq!(fs::read_to_string(response).unwrap(), "{\"version\":2}");
    let (manifest, _) = VersionStore::of_learner(run.directory()).read(WeightsVersion(2)).unwrap();
    assert_eq!((manifest.training_step, &manifest.architecture), (1, &architecture));

    let mut batches = Batches::draw(folder.path());
    let mut headers = Vec::new();
    run.until("batches arrive and actors play with the second version", DEADLINE, |run| {
        headers.extend(batches.headers.try_iter());
        headers.len() >= 3 && run.metric("actor-0", VERSION_OF_ACTOR) == Some(2.0)
    })
    .unwrap();
    for header in &headers {
        assert_eq!(header["arrays"][1]["shape"], serde_json::json!([64, 9]), "{header}");
        assert_eq!(header["rejected"], 0);
    }
    assert_eq!(run.metric("learner", STEPS), Some(1.0));
    // Without a receiver, the thread closes the pipe after the next batch, which ends the command.
    batches.headers = channel().1;
    batches.end("the reader");

    let batches = Batches::draw(folder.path());
    run.until("a further batch arrives", DEADLINE, |_| batches.headers.try_recv().is_ok()).unwrap();
    let output = run.stop().unwrap();
    batches.end("the run");
    assert!(!output.text.contains("was killed") && !output.text.contains("learns nothing"), "{}", output.text);
    let progress = fs::read(run.directory().join("progress.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&progress).unwrap()["learner"], "own");
}

#[test]
fn batches_end_with_the_reader_while_no_sample_arrives() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("first")).unwrap();
    fs::write(folder.path().join("first/config.toml"), "[run]\ngame = \"tic_tac_toe\"\n").unwrap();
    // The system accepts connections, and no program responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut batches = Batches::start(folder.path(), &["--endpoint", &endpoint]);
    drop(batches.command.stdout.take());
    batches.end("the reader");
}
