//! One process of the fleet: started, watched, started again when it dies, ended in order.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use service::config::is_override;

#[cfg(test)]
mod tests;

/// The pause before the first restart; it doubles with every death in a row.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// The longest pause before a restart.
const BACKOFF_MAX: Duration = Duration::from_secs(15);
/// A process that has lived this long was healthy: its next death is the first in a row.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);
/// A process that ends by itself so many times in a row, never healthy, will do so the next time.
const DEATHS_IN_A_ROW_MAX: u32 = 5;
/// The exit status of a process that refuses its configuration: starting it again cannot help.
const EXIT_USAGE: i32 = 2;
/// How much of the end of a log is read for its last line.
const LOG_TAIL_BYTES: u64 = 4096;

/// How to start a process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it is called on the screen and in the name of its log: `actor-0`.
    pub name: String,
    /// The binary.
    pub program: PathBuf,
    /// Its command line.
    pub arguments: Vec<OsString>,
    /// Where its output goes, appended.
    pub log: PathBuf,
}

/// What happened to a process since it was last looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It ended though nobody asked it to, and is started again after `pause`.
    Died {
        /// How it ended, in words.
        how: String,
        /// The last line of its log.
        last_words: String,
        /// How long until it is started again.
        pause: Duration,
    },
    /// It runs again.
    Restarted,
    /// Starting it again cannot help; it is not started again.
    GivenUp {
        /// Why not, and what to do, in words that follow its name.
        why: String,
    },
}

/// One process of the fleet.
#[derive(Debug)]
pub struct Child {
    settings: Settings,
    process: Option<std::process::Child>,
    started: Instant,
    restart_at: Option<Instant>,
    deaths_in_a_row: u32,
    /// Of those deaths, the last ones that nobody else caused.
    failures_in_a_row: u32,
    restarts: u32,
    /// Whether it was asked to drain.
    asked: bool,
}

impl Child {
    /// Starts it.
    pub fn start(settings: Settings, now: Instant) -> io::Result<Self> {
        let process = spawn(&settings)?;
        Ok(Self {
            settings,
            process: Some(process),
            started: now,
            restart_at: None,
            deaths_in_a_row: 0,
            failures_in_a_row: 0,
            restarts: 0,
            asked: false,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Its process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(std::process::Child::id)
    }

    /// Looks at it, and starts it again when its pause is over.
    pub fn watch(&mut self, now: Instant) -> io::Result<Option<Event>> {
        if let Some(status) = self.reap()? {
            return Ok(Some(self.died(status, now)));
        }
        if self.restart_at.is_some_and(|at| at <= now) {
            self.process = Some(spawn(&self.settings)?);
            self.restart_at = None;
            self.started = now;
            self.restarts += 1;
            return Ok(Some(Event::Restarted));
        }
        Ok(None)
    }

    /// Asks it to drain; from now on it is not started again.
    pub fn terminate(&mut self) {
        self.restart_at = None;
        self.asked = true;
        self.signal(libc::SIGTERM);
    }

    /// Ends it without asking.
    pub fn kill(&mut self) {
        self.restart_at = None;
        self.signal(libc::SIGKILL);
    }

    /// Looks whether it has ended. Says once how, in words that follow its name, if it was asked to drain and failed.
    pub fn ended(&mut self) -> io::Result<Option<String>> {
        let failed = self.reap()?.filter(|status| self.failed_to_drain(*status));
        Ok(failed.map(|status| format!("{}; its last words: {}", in_words(status), last_line(&self.settings))))
    }

    /// Nobody can listen to a signal while its libraries are still being loaded: such a process our signal simply ends,
    /// and it holds nothing to hand in.
    fn failed_to_drain(&self, status: ExitStatus) -> bool {
        self.asked && !status.success() && status.signal() != Some(libc::SIGTERM)
    }

    /// Whether a process of it is alive or not yet reaped.
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
        let (how, last_words) = (in_words(status), last_line(&self.settings));
        if status.code() == Some(EXIT_USAGE) {
            return Event::GivenUp { why: format!("refuses to start: {last_words}") };
        }
        if lacks_libtorch(&last_words) {
            return Event::GivenUp { why: format!("cannot start: {LIBTORCH_REMEDY}: {last_words}") };
        }
        if now.duration_since(self.started) >= HEALTHY_AFTER {
            (self.deaths_in_a_row, self.failures_in_a_row) = (0, 0);
        }
        self.failures_in_a_row = if killed(status) { 0 } else { self.failures_in_a_row + 1 };
        if self.failures_in_a_row == DEATHS_IN_A_ROW_MAX {
            let seconds = HEALTHY_AFTER.as_secs();
            let often = format!("ended {DEATHS_IN_A_ROW_MAX} times in a row within {seconds} s of its start");
            return Event::GivenUp { why: format!("{often} (it {how}); its last words: {last_words}") };
        }
        let pause = backoff(self.deaths_in_a_row);
        self.deaths_in_a_row += 1;
        self.restart_at = Some(now + pause);
        Event::Died { how, last_words, pause }
    }

    fn signal(&self, signal: libc::c_int) {
        let Some(id) = self.id().and_then(|id| libc::pid_t::try_from(id).ok()) else { return };
        // SAFETY: kill takes plain numbers. The process is not reaped yet, so its id cannot belong to another one.
        unsafe { libc::kill(id, signal) };
    }
}

impl Drop for Child {
    /// A supervisor that fails half-way leaves nobody behind.
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It may have ended by itself in this very moment.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn spawn(settings: &Settings) -> io::Result<std::process::Child> {
    let log = File::options().create(true).append(true).open(&settings.log)?;
    command(settings, std::env::vars_os().map(|(name, _)| name))
        // Held open as long as the supervisor lives; its end tells the process that the supervisor is gone.
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C must reach the supervisor alone: it decides in which order the fleet drains.
        .process_group(0)
        .spawn()
}

/// The command line, without those of the `variables` around us that go over the run file: the supervisor has written what
/// they said into it, and has put its own decisions over them.
fn command(settings: &Settings, variables: impl Iterator<Item = OsString>) -> Command {
    let mut command = Command::new(&settings.program);
    command.args(&settings.arguments);
    for name in variables.filter(|name| is_override(name)) {
        command.env_remove(name);
    }
    command
}

fn backoff(deaths_in_a_row: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << deaths_in_a_row.min(10)).min(BACKOFF_MAX)
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Whether somebody else ended it, and the next time may go better.
fn killed(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(libc::SIGKILL | libc::SIGTERM | libc::SIGINT))
}

/// The remedy for a libtorch that the dynamic loader cannot use.
pub const LIBTORCH_REMEDY: &str =
    "libtorch is missing or damaged; run cargo xtask libtorch, which checks and fetches it";

/// Whether output is the message of a dynamic loader (Linux, macOS) that cannot find or read libtorch.
pub fn lacks_libtorch(last_words: &str) -> bool {
    let missing = ["error while loading shared libraries", "Library not loaded"];
    missing.iter().any(|words| last_words.contains(words)) && ["torch", "libc10"].iter().any(|l| last_words.contains(l))
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
    // A log that cannot be read only makes the message poorer.
    let tail = tail().unwrap_or_default();
    let lines: Vec<&str> = tail.lines().filter(|line| !line.trim().is_empty()).collect();
    let reported = lines.iter().rev().find(|line| line.starts_with("error: "));
    reported.or(lines.last()).map_or_else(|| "its log is empty".to_owned(), |line| (*line).to_owned())
}
