//! Tests the devices with the program `learner` in a separate process, since a driver may crash or hang.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use service::device_trial::{DeviceTrial, OPTION};

use crate::child::lacks_libtorch;

/// Maximum time for the test of all devices. The first use of a GPU takes some seconds, on slow disks up to a minute.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Interval between checks for the exit of the process.
const POLL: Duration = Duration::from_millis(20);

/// Runs `learner --devices` with `environment` in addition to the variables of this process.
///
/// # Errors
/// The error is a human-readable reason why there is no result.
pub fn try_devices(
    learner: &Path,
    environment: &[(String, String)],
    time_limit: Duration,
) -> Result<DeviceTrial, String> {
    let mut child = Command::new(learner)
        .arg(OPTION)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", learner.display()))?;
    let (printed, errors) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
    let Some(status) = wait(&mut child, time_limit) else {
        let seconds = time_limit.as_secs();
        return Err(format!(
            "`learner {OPTION}` did not finish within {seconds} s; a driver may hang, and a run would hang too"
        ));
    };
    let text = |output: Receiver<Vec<u8>>| String::from_utf8_lossy(&output.recv().unwrap_or_default()).into_owned();
    let errors = text(errors);
    if let Some(error) = lacks_libtorch(&errors) {
        return Err(error);
    }
    if !status.success() {
        let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
        return Err(format!("`learner {OPTION}` failed ({status}), as a run would; last line: {last}"));
    }
    serde_json::from_str(&text(printed)).map_err(|error| format!("`learner {OPTION}` has another version: {error}"))
}

/// Waits for the exit of a process; kills it after `time_limit` and then returns `None`.
fn wait(child: &mut Child, time_limit: Duration) -> Option<std::process::ExitStatus> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if begin.elapsed() < time_limit => std::thread::sleep(POLL),
            _ => break,
        }
    }
    // The process may have exited already. A process that hangs in a driver exits only when the driver returns, so no
    // code waits for the exit.
    let _ = child.kill();
    let _ = child.try_wait();
    None
}

/// Reads an output of the process on another thread, so that the process never blocks on a full pipe.
fn read_all(output: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // After a read error, the bytes read before are kept.
        let _ = output.map(|mut output| output.read_to_end(&mut bytes));
        // The receiver is gone if the process was killed.
        let _ = done.send(bytes);
    });
    result
}
