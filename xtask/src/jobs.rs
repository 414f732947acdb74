//! Runs several commands at a time, and prints the output of each as a whole after it exits.
//!
//! Tests of processes mostly wait for clocks and for each other, so that a single test command leaves a core idle.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// A command with a human-readable name.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// Outcome of a finished job.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// Standard output and standard error, interleaved as written.
    pub(crate) output: String,
    pub(crate) is_success: bool,
}

/// Runs all jobs in order, and returns them in the order in which they finish. Runs at most `together` of `jobs` at a
/// time, plus one of `background`, or more once no other job waits. A job that cannot be started counts as a failure,
/// with the reason as output.
pub(crate) fn run(jobs: Vec<Job>, background: Vec<Job>, together: usize) -> Vec<Ended> {
    let (jobs, background) = (Mutex::new(VecDeque::from(jobs)), Mutex::new(VecDeque::from(background)));
    let ended = Mutex::new(Vec::new());
    let work = |waiting: &[&Mutex<VecDeque<Job>>]| {
        // The list is not locked while a job runs.
        while let Some(job) = waiting.iter().find_map(|jobs| locked(jobs).pop_front()) {
            let one = end(job);
            let mut ended = locked(&ended);
            print(&one);
            ended.push(one);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..together.max(1) {
            scope.spawn(|| work(&[&jobs, &background]));
        }
        scope.spawn(|| work(&[&background]));
    });
    ended.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Locks a list. A list stays consistent even if a thread that held the lock has panicked.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn end(Job { name, mut command }: Job) -> Ended {
    let begun = Instant::now();
    let (output, is_success) = match output(&mut command) {
        Ok(output) => output,
        Err(error) => (format!("{error:#}\n"), false),
    };
    Ended { name, took: begun.elapsed(), output, is_success }
}

/// Runs a command until it exits; returns the output and whether it succeeded.
fn output(command: &mut Command) -> Result<(String, bool)> {
    let (mut reader, writer) = std::io::pipe().context("create a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("share a pipe")?).stderr(writer);
    let mut child = command.spawn().context("start the process")?;
    // The command also holds write ends of the pipe; reading finishes once all are closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut output = Vec::new();
    reader.read_to_end(&mut output).context("read the output")?;
    let status = child.wait().context("wait for the process")?;
    let mut output = String::from_utf8_lossy(&output).into_owned();
    if !status.success() {
        output.push_str(&format!("{status}\n"));
    }
    Ok((output, status.success()))
}

fn print(Ended { name, took, output, is_success }: &Ended) {
    let mark = if *is_success { "" } else { " FAILED" };
    // A closed standard output fails no job.
    drop(writeln!(std::io::stdout().lock(), "\n── {name}: {:.1} s{mark}\n{output}", took.as_secs_f64()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, line: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        Job { name: name.to_owned(), command }
    }

    #[test]
    fn every_job_runs_and_its_output_and_failure_are_its_own() {
        let jobs = || {
            let missing = Job { name: "missing".to_owned(), command: Command::new("/nowhere/at/all") };
            vec![shell("both", "echo out; echo err >&2; echo again"), shell("fails", "echo before; exit 3"), missing]
        };
        for together in [1, 3] {
            let mut ended = run(jobs(), Vec::new(), together);
            ended.sort_by(|a, b| a.name.cmp(&b.name));
            let [both, fails, missing] = &ended[..] else { panic!("{ended:?}") };
            assert_eq!((both.output.as_str(), both.is_success), ("out\nerr\nagain\n", true));
            assert!(!fails.is_success && fails.output.starts_with("before\n"), "{fails:?}");
            assert!(!missing.is_success && missing.output.starts_with("start the process"), "{missing:?}");
        }
    }

    /// The first job finishes only after the second has started.
    #[test]
    fn jobs_run_together_and_beside_one_in_the_background() {
        for (together, behind) in [(2, false), (1, true)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("begun").display().to_string();
            let waits = format!("for i in $(seq 600); do [ -e '{path}' ] && exit 0; sleep 0.1; done; exit 1");
            let mut jobs = vec![shell("waits", &waits), shell("begins", &format!("touch '{path}'"))];
            let background = jobs.split_off(if behind { 1 } else { 2 });
            let ended = run(jobs, background, together);
            assert!(ended.len() == 2 && ended.iter().all(|one| one.is_success), "{ended:?}");
        }
    }
}
