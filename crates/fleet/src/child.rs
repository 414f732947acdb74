//! Starts, watches, restarts and stops one process of the fleet.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bridge::in_words;
use service::config::is_override;
use service::device_loss;

#[cfg(test)]
mod tests;

/// Delay before the first restart; it doubles with every consecutive exit.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Maximum delay before a restart.
const BACKOFF_MAX: Duration = Duration::from_secs(15);
/// Minimum uptime for a process to count as healthy. The next exit then starts a new series of consecutive exits.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);
/// Number of consecutive failures without a healthy uptime after which a process is no longer restarted.
const DEATHS_IN_A_ROW_MAX: u32 = 5;
/// Exit status for a rejected configuration: a restart cannot help.
const EXIT_USAGE: i32 = 2;
/// Bytes read from the end of a log to find the last line.
const LOG_TAIL_BYTES: u64 = 4096;

/// Command line and environment of a process, and the file for the output.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the process on the screen, and of the log file without extension: `actor-0`.
    pub name: String,
    /// Path of the binary.
    pub program: PathBuf,
    /// Arguments, without the name of the program.
    pub arguments: Vec<OsString>,
    /// Environment variables of the process, in addition to the variables of this process.
    pub environment: Vec<(String, String)>,
    /// File to which standard output and standard error are appended.
    pub log: PathBuf,
}

/// A change in the state of a process since the last call of [`Child::watch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The process stopped without a request to drain, and is restarted after `pause`.
    Died {
        /// Exit status or signal, as text that follows the name of the process.
        how: String,
        /// Last line of the log.
        last_log_line: String,
        /// Delay before the restart.
        pause: Duration,
    },
    /// The process was restarted.
    Restarted,
    /// The process does not start with this configuration or on this machine, and is not restarted.
    Refused {
        /// Reason and remedy, as text that follows the name of the process.
        why: String,
    },
    /// The process has failed too often and is not restarted.
    GivenUp {
        /// Reason, as text that follows the name of the process.
        why: String,
    },
}

/// The exit of a process that is not restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// True if the process exited with status 0, or has drained as requested.
    pub succeeded: bool,
    /// Exit status or signal, as text that follows the name of the process.
    pub how: String,
    /// Last log line that reports an error, or else the last line.
    pub last_log_line: String,
}

/// One process of the fleet, running or waiting for a restart.
#[derive(Debug)]
pub struct Child {
    settings: Settings,
    /// Standard output of the process; `None` for the log.
    output: Option<OwnedFd>,
    process: Option<std::process::Child>,
    started: Instant,
    restart_at: Option<Instant>,
    deaths_in_a_row: u32,
    /// Number of consecutive exits so far that were not caused by a signal from outside.
    failures_in_a_row: u32,
    restarts: u32,
    /// True after a request to drain.
    draining: bool,
    /// True after a request to restart.
    restarting: bool,
    /// Arguments without the accelerator, for one restart after the loss of it; empty if the device is configured.
    without_device: Vec<OsString>,
}

impl Child {
    /// Starts the process.
    pub fn start(settings: Settings, now: Instant) -> io::Result<Self> {
        Self::start_writing_to(None, settings, now)
    }

    /// Starts the process with this standard output in place of the log, if given, also after a restart.
    pub fn start_writing_to(output: Option<OwnedFd>, settings: Settings, now: Instant) -> io::Result<Self> {
        let process = spawn(&settings, output.as_ref())?;
        Ok(Self {
            settings,
            output,
            process: Some(process),
            started: now,
            restart_at: None,
            deaths_in_a_row: 0,
            failures_in_a_row: 0,
            restarts: 0,
            draining: false,
            restarting: false,
            without_device: Vec::new(),
        })
    }

    /// Adds `arguments` to the command line if the process loses the accelerator.
    #[must_use]
    pub fn or_without_device(mut self, arguments: impl IntoIterator<Item = OsString>) -> Self {
        self.without_device = arguments.into_iter().collect();
        self
    }

    /// Returns the settings, with the arguments of the latest restart.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the name from the settings.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns the number of restarts.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Returns the process id; `None` while the process does not run.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(std::process::Child::id)
    }

    /// Checks the process, and restarts an exited process once the delay is over. A drain that succeeds is no event.
    pub fn watch(&mut self, now: Instant) -> io::Result<Option<Event>> {
        if self.draining {
            let why = |exit: Exit| format!("{} instead of draining; last log line: {}", exit.how, exit.last_log_line);
            let failed = self.exit()?.filter(|exit| !exit.succeeded);
            return Ok(failed.map(|exit| Event::GivenUp { why: why(exit) }));
        }
        if let Some(status) = self.reap()? {
            if !self.restarting {
                return Ok(Some(self.died(status, now)));
            }
            self.restart_at = Some(now);
        }
        if self.restart_at.is_some_and(|at| at <= now) {
            self.process = Some(spawn(&self.settings, self.output.as_ref())?);
            self.restart_at = None;
            self.started = now;
            self.restarts += u32::from(!std::mem::take(&mut self.restarting));
            return Ok(Some(Event::Restarted));
        }
        Ok(None)
    }

    /// Requests a drain (SIGTERM) and disables restarts.
    pub fn terminate(&mut self) {
        self.restart_at = None;
        self.draining = true;
        self.signal(libc::SIGTERM);
    }

    /// Returns true after a request to drain.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Restarts the process once the requested drain is over.
    pub fn restart_after_drain(&mut self, now: Instant) {
        (self.draining, self.restarting) = (false, true);
        self.restart_at = (!self.running()).then_some(now);
    }

    /// Requests a drain (SIGTERM), and then restarts the process with additional arguments.
    pub fn restart_with(&mut self, arguments: impl IntoIterator<Item = OsString>) {
        self.settings.arguments.extend(arguments);
        self.restarting = self.running();
        self.signal(libc::SIGTERM);
    }

    /// Restarts an exited process with additional arguments.
    pub fn start_again(&mut self, arguments: impl IntoIterator<Item = OsString>) -> io::Result<()> {
        self.settings.arguments.extend(arguments);
        (self.process, self.draining) = (Some(spawn(&self.settings, self.output.as_ref())?), false);
        Ok(())
    }

    /// Kills the process (SIGKILL) and disables restarts.
    pub fn kill(&mut self) {
        self.restart_at = None;
        self.signal(libc::SIGKILL);
    }

    /// Checks for the exit of a process without restarting the process. Returns the exit once.
    pub fn exit(&mut self) -> io::Result<Option<Exit>> {
        let Some(status) = self.reap()? else { return Ok(None) };
        let (how, last_log_line) = (in_words(status), last_line(&self.settings));
        // A drain may end by SIGTERM: the process was still loading libraries, had no signal handler yet, and held no
        // data.
        let succeeded = status.success() || (self.draining && status.signal() == Some(libc::SIGTERM));
        Ok(Some(Exit { succeeded, how, last_log_line }))
    }

    /// Returns the last log line that reports an error, or else the last line.
    pub fn last_log_line(&self) -> String {
        last_line(&self.settings)
    }

    /// Returns true while the process is alive or to be restarted.
    pub fn is_kept(&self) -> bool {
        !self.draining && (self.running() || self.restart_at.is_some())
    }

    /// Returns true while the process is alive or not yet reaped.
    pub fn running(&self) -> bool {
        self.process.is_some()
    }

    fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(process) = &mut self.process else { return Ok(None) };
        let status = process.try_wait()?;
        if status.is_some() {
            self.process = None;
        }
        Ok(status)
    }

    fn died(&mut self, status: ExitStatus, now: Instant) -> Event {
        let (how, last_log_line) = (in_words(status), last_line(&self.settings));
        if status.code() == Some(EXIT_USAGE) {
            return Event::Refused { why: format!("refuses to start: {last_log_line}") };
        }
        if let Some(why) = lacks_libtorch(&last_log_line) {
            return Event::Refused { why: format!("cannot start: {why}") };
        }
        if status.code() == Some(device_loss::EXIT_STATUS) && !self.without_device.is_empty() {
            self.settings.arguments.append(&mut self.without_device);
            self.settings.environment.push((device_loss::STARTED_AGAIN.to_owned(), "1".to_owned()));
            self.restart_at = Some(now + BACKOFF_MIN);
            let how = "lost the accelerator and continues on the CPU".to_owned();
            return Event::Died { how, last_log_line, pause: BACKOFF_MIN };
        }
        if now.duration_since(self.started) >= HEALTHY_AFTER {
            (self.deaths_in_a_row, self.failures_in_a_row) = (0, 0);
        }
        self.failures_in_a_row = if killed(status) { 0 } else { self.failures_in_a_row + 1 };
        if self.failures_in_a_row == DEATHS_IN_A_ROW_MAX {
            let seconds = HEALTHY_AFTER.as_secs();
            let often = format!("ended {DEATHS_IN_A_ROW_MAX} times in a row within {seconds} s of the start");
            return Event::GivenUp { why: format!("{often} (last: {how}); last log line: {last_log_line}") };
        }
        let pause = backoff(self.deaths_in_a_row);
        self.deaths_in_a_row += 1;
        self.restart_at = Some(now + pause);
        Event::Died { how, last_log_line, pause }
    }

    fn signal(&self, signal: libc::c_int) {
        let Some(id) = self.id().and_then(|id| libc::pid_t::try_from(id).ok()) else { return };
        // SAFETY: kill takes plain numbers. The process is not reaped yet, so that no other process can have the same
        // id.
        unsafe { libc::kill(id, signal) };
    }
}

impl Drop for Child {
    /// Kills and reaps the process, so that a failing supervisor leaves no process running.
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // The process may have exited already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn spawn(settings: &Settings, output: Option<&OwnedFd>) -> io::Result<std::process::Child> {
    let log = File::options().create(true).append(true).open(&settings.log)?;
    let output = output.map_or_else(|| log.try_clone().map(OwnedFd::from), OwnedFd::try_clone)?;
    command(settings, std::env::vars_os().map(|(name, _)| name))
        // The supervisor holds the write side of the pipe open until it exits; the process treats end-of-file as the
        // exit of the supervisor.
        .stdin(Stdio::piped())
        .stdout(output)
        .stderr(log)
        // Ctrl-C must reach only the supervisor, which drains the fleet in order.
        .process_group(0)
        .spawn()
}

/// Builds the command without the environment `variables` that override the run file. The run file already contains the
/// overrides, and settings of the supervisor must take precedence.
fn command(settings: &Settings, variables: impl Iterator<Item = OsString>) -> Command {
    let mut command = Command::new(&settings.program);
    command.args(&settings.arguments).envs(settings.environment.iter().map(|(name, value)| (name, value)));
    for name in variables.filter(|name| is_override(name)) {
        command.env_remove(name);
    }
    command
}

fn backoff(deaths_in_a_row: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << deaths_in_a_row.min(10)).min(BACKOFF_MAX)
}

/// Returns true for a signal from outside, after which a restart may succeed.
fn killed(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(libc::SIGKILL | libc::SIGTERM | libc::SIGINT))
}

/// Returns the remedy, followed by `output`, if `output` is the message of a dynamic loader (Linux, macOS) that cannot
/// find or read libtorch.
pub fn lacks_libtorch(output: &str) -> Option<String> {
    let has = |texts: [&str; 2]| texts.iter().any(|text| output.contains(text));
    let is_missing = has(["error while loading shared libraries", "Library not loaded"]) && has(["torch", "libc10"]);
    let remedy = "libtorch is missing or damaged; run cargo xtask libtorch to check and fetch it";
    is_missing.then(|| format!("{remedy}: {}", output.trim()))
}

fn last_line(settings: &Settings) -> String {
    let tail = || -> io::Result<String> {
        let mut file = File::open(&settings.log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    // An unreadable log is not an error: the message only lacks the last line.
    let tail = tail().unwrap_or_default();
    let lines: Vec<&str> = tail.lines().filter(|line| !line.trim().is_empty()).collect();
    let reported = lines.iter().rev().find(|line| line.starts_with("error: "));
    reported.or(lines.last()).map_or_else(|| "the log is empty".to_owned(), |line| (*line).to_owned())
}
