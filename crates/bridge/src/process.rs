use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal};
use service::DrainPipe;

use crate::error::{Fault, Violation};
use crate::message::{Entry, GREETING_BYTES_MAX, LENGTH_BYTES, printable, write_request};
use crate::{Error, Settings, package};

/// Time limit for a process to exit by itself, once output or input is closed.
const ENDING: Duration = Duration::from_secs(1);
/// Interval between checks of an exiting process.
const ENDING_POLL: Duration = Duration::from_millis(2);
/// Maximum number of logged bytes per line of standard error.
const LINE_BYTES_MAX: usize = 300;
/// Maximum number of logged lines of standard error per process.
const LINES_MAX: u32 = 200;
/// Size to which pipes are enlarged, if the system allows it, so that answers with images need few wake-ups.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1 << 20;

/// Variables that limit the threads of numerical libraries: a process steps the environments one after another, and
/// there are processes for the other cores.
const THREAD_VARIABLES: [&str; 3] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];

/// A Python process with non-blocking pipes. It has at most one request at a time.
#[derive(Debug)]
pub(crate) struct PythonProcess {
    child: Child,
    stdout: ChildStdout,
    /// `None` after the process has closed the pipe.
    stderr: Option<ChildStderr>,
    outbox: Vec<u8>,
    /// Number of written bytes of `outbox`.
    sent: usize,
    /// A buffer of the maximum message size.
    inbox: Vec<u8>,
    /// Number of received bytes in `inbox`.
    filled: usize,
    errors: ErrorLines,
}

impl PythonProcess {
    /// Starts a process with `count` environments, which are described in the first message.
    ///
    /// # Errors
    /// [`Error::Python`] if the interpreter cannot be started.
    pub(crate) fn start(settings: &Settings, count: usize, number: usize) -> Result<Self, Error> {
        let start = || {
            let mut child = command(settings, count)?.spawn()?;
            let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
            let (stdout, stderr) = (stdout.expect("stdout is piped"), stderr.expect("stderr is piped"));
            let process = Self {
                stdout,
                stderr: Some(stderr),
                outbox: Vec::new(),
                sent: 0,
                inbox: vec![0; GREETING_BYTES_MAX],
                filled: 0,
                errors: ErrorLines::new(settings.environment.clone(), number),
                child,
            };
            process.prepare_pipes()?;
            Ok(process)
        };
        start().map_err(|source| Error::Python { python: settings.python.clone(), source })
    }

    fn prepare_pipes(&self) -> io::Result<()> {
        let stderr = self.stderr.as_ref().expect("stderr is piped");
        let stdin = self.child.stdin.as_ref().expect("stdin is piped");
        rustix::fs::fcntl_setfl(stdin, OFlags::NONBLOCK)?;
        rustix::fs::fcntl_setfl(&self.stdout, OFlags::NONBLOCK)?;
        rustix::fs::fcntl_setfl(stderr, OFlags::NONBLOCK)?;
        // A user may own a limited amount of pipe memory; the usual size works as well.
        #[cfg(target_os = "linux")]
        let _ = rustix::pipe::fcntl_setpipe_size(&self.stdout, PIPE_BYTES);
        Ok(())
    }

    /// Accepts later messages of up to `bytes`.
    pub(crate) fn accept_up_to(&mut self, bytes: usize) {
        self.inbox.resize(bytes, 0);
    }

    /// Sends a request, as far as the pipe takes it; [`exchange`](Self::exchange) sends the rest.
    pub(crate) fn request(&mut self, entries: &[Entry]) -> Result<(), Fault> {
        write_request(entries, &mut self.outbox);
        (self.sent, self.filled) = (0, 0);
        self.send()
    }

    /// Sends and reads as much as the pipes allow; returns the message, without the length, once complete.
    pub(crate) fn exchange(&mut self) -> Result<Option<&[u8]>, Fault> {
        self.read_errors();
        self.send()?;
        loop {
            let end = self.end_of_message()?;
            if end.is_some_and(|end| self.filled > end) {
                return Err(Violation::Surplus.into());
            }
            if let Some(end) = end.filter(|&end| self.filled == end) {
                return Ok(Some(&self.inbox[LENGTH_BYTES..end]));
            }
            match self.stdout.read(&mut self.inbox[self.filled..]) {
                Ok(0) => return Err(self.died()),
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Pipe(error)),
            }
        }
    }

    /// Discards the received message.
    pub(crate) fn forget_message(&mut self) {
        self.filled = 0;
    }

    /// Returns the size of the arriving message, including the length, once known.
    fn end_of_message(&self) -> Result<Option<usize>, Violation> {
        let Some((length, _)) = self.inbox[..self.filled].split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        let bytes_max = self.inbox.len() - LENGTH_BYTES;
        if length > bytes_max {
            return Err(Violation::Length { bytes: length, bytes_max });
        }
        Ok(Some(LENGTH_BYTES + length))
    }

    /// Returns the last line printed by the process, if any.
    pub(crate) fn last_line(&mut self) -> Option<String> {
        self.read_errors();
        self.errors.end_line();
        Some(self.errors.last.clone()).filter(|_| self.errors.lines > 0)
    }

    fn send(&mut self) -> Result<(), Fault> {
        let stdin = self.child.stdin.as_mut().expect("stdin is open until the process is dropped");
        while self.sent < self.outbox.len() {
            match stdin.write(&self.outbox[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(self.died()),
                Err(error) => return Err(Fault::Pipe(error)),
            }
        }
        Ok(())
    }

    /// Logs the standard error of the process.
    fn read_errors(&mut self) {
        let mut bytes = [0; 4096];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut bytes) {
                Ok(count) if count > 0 => self.errors.add(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The pipe is only for the log: the process may close it.
                Ok(_) | Err(_) => self.stderr = None,
            }
        }
    }

    /// Returns the fault of a process with a closed pipe: the exit status, if it exits in time.
    fn died(&mut self) -> Fault {
        let status = self.await_end(Instant::now() + ENDING);
        self.read_errors();
        let how = status.map_or_else(|| "closed its pipe".to_owned(), in_words);
        Fault::Died { how, last_line: self.errors.last().to_owned() }
    }

    fn await_end(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(ENDING_POLL);
        }
    }

    /// Closes the input of the process, which makes it exit; dropping waits for the exit.
    pub(crate) fn close(&mut self) {
        self.child.stdin = None;
    }
}

impl Drop for PythonProcess {
    /// Kills the process, unless the input was closed and the process exits; also kills processes started by it.
    fn drop(&mut self) {
        if self.child.stdin.is_none() {
            let _ = self.await_end(Instant::now() + ENDING);
        }
        // Processes of the group may outlive the leader. An error means that there are none.
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Waits until a pipe of one of the processes is ready, the drain fires, or the time is up. Returns true if the drain
/// has fired.
pub(crate) fn wait<'a>(
    processes: impl IntoIterator<Item = &'a PythonProcess>,
    drain: Option<&DrainPipe>,
    timeout: Duration,
) -> Result<bool, io::Error> {
    let mut pipes: Vec<PollFd<'_>> = Vec::new();
    pipes.extend(drain.map(|drain| PollFd::from_borrowed_fd(drain.as_fd(), PollFlags::IN)));
    for process in processes {
        pipes.push(PollFd::from_borrowed_fd(process.stdout.as_fd(), PollFlags::IN));
        pipes.extend(process.stderr.as_ref().map(|stderr| PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::IN)));
        let unsent = process.child.stdin.as_ref().filter(|_| process.sent < process.outbox.len());
        pipes.extend(unsent.map(|stdin| PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT)));
    }
    let timeout = Timespec::try_from(timeout).map_err(|_| ErrorKind::InvalidInput)?;
    match rustix::event::poll(&mut pipes, Some(&timeout)) {
        Ok(_) => Ok(drain.is_some() && !pipes[0].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn command(settings: &Settings, count: usize) -> io::Result<Command> {
    let mut command = Command::new(&settings.python);
    service::inherited::restrict(&mut command, &settings.pass_variables);
    // Without buffers, the last output of a dying process is not lost.
    command.args(["-u", "-m", package::NAME, "--env", &settings.environment, "--count", &count.to_string()]);
    command.args(["--arguments", &settings.arguments, "--channels", settings.channels.option()]);
    command.args(settings.render.then_some("--render"));
    command.args(["--seconds", &settings.step_timeout.as_secs_f64().to_string()]);
    command.env("PYTHONPATH", python_path(settings)?);
    for variable in THREAD_VARIABLES.into_iter().filter(|variable| std::env::var_os(variable).is_none()) {
        command.env(variable, "1");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C must reach only the draining process; a group can be killed together with processes started in it.
    command.process_group(0);
    Ok(command)
}

/// Returns the directories of the bridge and of the settings, before the user's directories.
fn python_path(settings: &Settings) -> io::Result<OsString> {
    let inherited = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let inherited: Vec<_> = std::env::split_paths(&inherited).collect();
    let folders = std::iter::once(&settings.folder).chain(&settings.modules).chain(&inherited);
    std::env::join_paths(folders).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))
}

/// Returns the end of a process in words, after a name.
#[must_use]
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The lines of a process's standard error, before logging.
#[derive(Debug)]
struct ErrorLines {
    environment: String,
    number: usize,
    /// The start of the line being read.
    line: Vec<u8>,
    last: String,
    lines: u32,
}

impl ErrorLines {
    fn new(environment: String, number: usize) -> Self {
        Self { environment, number, line: Vec::new(), last: "none".into(), lines: 0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                _ if self.line.len() < LINE_BYTES_MAX => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let text = printable(&std::mem::take(&mut self.line));
        if text.is_empty() {
            return;
        }
        self.lines = self.lines.saturating_add(1);
        let (environment, process) = (&self.environment, self.number);
        match self.lines {
            1..=LINES_MAX => tracing::warn!(environment, process, line = text, "environment output"),
            _ if self.lines == LINES_MAX + 1 => {
                tracing::warn!(environment, process, "not logging further lines of this process");
            }
            _ => {}
        }
        self.last = text;
    }

    /// Returns the last line, even if incomplete.
    fn last(&mut self) -> &str {
        self.end_line();
        &self.last
    }
}
