//! A script, or this program, that measures in a separate process on request. It reads and prints one JSON object per
//! line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A script in a child process, which is killed on drop.
#[derive(Debug)]
pub(crate) struct Script {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    last_id: u64,
}

/// Fields that every response may have.
#[derive(Debug, Deserialize)]
struct Answer {
    /// Number of the request, from 1; the first response, before any request, has 0.
    id: u64,
    /// Reason why the response has no other fields.
    error: Option<String>,
}

/// Response to a request for a measurement.
#[derive(Debug, Deserialize)]
struct Rate {
    per_second: Option<f64>,
}

impl Script {
    /// Starts `command`, and returns the first response.
    ///
    /// # Errors
    /// The script cannot be started, or the first line is late, an error, or no response of type `A`.
    pub(crate) fn start<A: DeserializeOwned>(mut command: Command, patience: Duration) -> anyhow::Result<(Self, A)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start the script")?;
        let requests = child.stdin.take().context("open standard input")?;
        let output = child.stdout.take().context("open standard output")?;
        let (sender, answers) = sync_channel(1);
        let read = move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| sender.send(line).is_ok()) {}
        };
        let reader = Some(std::thread::Builder::new().name("script".to_owned()).spawn(read)?);
        let script = Self { child, requests, answers, reader, last_id: 0 };
        let first = script.receive(patience)?;
        Ok((script, first))
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends an object with a new id, and returns the response.
    ///
    /// # Errors
    /// The script fails, or the response is late or not of type `A`.
    pub(crate) fn ask<A: DeserializeOwned>(&mut self, mut request: Value, patience: Duration) -> anyhow::Result<A> {
        self.last_id += 1;
        request["id"] = self.last_id.into();
        writeln!(self.requests, "{request}").and_then(|()| self.requests.flush()).context("write to the script")?;
        self.receive(patience)
    }

    /// Requests a measurement over `time`, to which the script responds within `patience` more; returns units/s.
    ///
    /// # Errors
    /// The script fails, or the response is late or has no speed.
    pub(crate) fn measure(&mut self, mut request: Value, time: Duration, patience: Duration) -> anyhow::Result<f64> {
        request["seconds"] = time.as_secs_f64().into();
        let Rate { per_second } = self.ask(request, time + patience)?;
        per_second.filter(|&speed| speed > 0.0).context("the response has no positive speed")
    }

    /// Reads the next line, which must respond to the last request.
    fn receive<A: DeserializeOwned>(&self, patience: Duration) -> anyhow::Result<A> {
        let line = self.answers.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => anyhow!("no response within {} s", patience.as_secs()),
            RecvTimeoutError::Disconnected => anyhow!("the script stopped"),
        })?;
        read(&line, self.last_id)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // The script may be busy; any response is dropped.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A reader that still holds a line stops when the channel closes.
        self.answers = sync_channel(0).1;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Response of this program as a script: a count of bytes.
#[derive(Debug, Deserialize)]
pub(crate) struct Count {
    pub(crate) count: u64,
}

/// Acts as a script for the parent process: responds at once with `first`, then to each request with the [`Count`] from
/// `next`, which takes the request number from 1, until standard input closes.
///
/// # Errors
/// `next` fails, or the parent process has exited.
pub(crate) fn answer(
    out: &mut impl Write,
    first: Value,
    mut next: impl FnMut(u64) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    let mut print = |id: u64, mut answer: Value| {
        answer["id"] = id.into();
        writeln!(out, "{answer}").and_then(|()| out.flush()).context("write the response")
    };
    print(0, first)?;
    for (id, request) in (1..).zip(std::io::stdin().lock().lines()) {
        request.context("read a request")?;
        print(id, json!({ "count": next(id)? }))?;
    }
    Ok(())
}

/// Parses a line of the script as the response to request `id`.
fn read<A: DeserializeOwned>(line: &str, id: u64) -> anyhow::Result<A> {
    let not_an_answer = |_| {
        let begin: String = line.chars().take(80).collect();
        anyhow!("`{begin}` is not a response")
    };
    let answer: Answer = serde_json::from_str(line).map_err(not_an_answer)?;
    ensure!(answer.id == id, "response to request {} instead of {id}", answer.id);
    if let Some(error) = answer.error {
        bail!(error);
    }
    serde_json::from_str(line).map_err(not_an_answer)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const FIRST: &str = r#"{"id": 0, "speed": 1.5}"#;

    #[derive(Debug, Deserialize)]
    struct Speed {
        speed: f64,
    }

    /// Returns a script that prints `answers` in turn, one for each request after the first.
    pub(crate) fn replying(answers: &[&str]) -> Command {
        let (first, rest) = answers.split_first().unwrap();
        let replies: String = rest.iter().map(|answer| format!("read request; echo '{answer}'; ")).collect();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("echo '{first}'; {replies}read forever"));
        command
    }

    /// Returns the result of one request with this response.
    fn result_of(answer: &str) -> Result<f64, String> {
        let (mut script, first) = Script::start::<Speed>(replying(&[FIRST, answer]), PATIENCE).unwrap();
        assert_eq!(first.speed, 1.5);
        script.ask(json!({}), PATIENCE).map(|Speed { speed }| speed).map_err(|error| error.to_string())
    }

    #[test]
    fn malformed_lines_are_quoted() {
        for line in ["Illegal instruction", r#"{"id": 1, "speed": NaN}"#, "", r#"{"error": "no id"}"#, r#"{"id": 1}"#] {
            assert_eq!(result_of(line).unwrap_err(), format!("`{line}` is not a response"));
        }
    }

    #[test]
    fn answers_errors_and_wrong_ids_are_reported() {
        assert_eq!(result_of(r#"{"id": 1, "speed": 2.5}"#), Ok(2.5));
        assert_eq!(result_of(r#"{"id": 1, "error": "no module"}"#).unwrap_err(), "no module");
        assert_eq!(result_of(r#"{"id": 4, "speed": 1}"#).unwrap_err(), "response to request 4 instead of 1");
    }

    #[test]
    fn a_script_that_ends_or_does_not_answer_is_reported() {
        let error = |script: &str, patience| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Script::start::<Speed>(command, patience).unwrap_err().to_string()
        };
        assert_eq!(error("exit 3", PATIENCE), "the script stopped");
        assert_eq!(error("read forever", Duration::ZERO), "no response within 0 s");
    }
}
