//! Starts, queries and stops one real process.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use service::net::ReservedPort;

use crate::chaos::Namespace;

/// Interval between polls.
const POLL: Duration = Duration::from_millis(25);
/// Timeout of a request to an admin port.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Polls `condition` until it holds.
///
/// # Errors
/// The condition does not hold by `deadline`, or it returned an error.
pub fn wait_until(
    what: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    while !condition().with_context(|| format!("wait until {what}"))? {
        ensure!(start.elapsed() < deadline, "not within {deadline:?}: {what}");
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Returns the path of the program `name` in the directory of the fleet's binaries.
///
/// # Errors
/// The program is missing.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let directory = match std::env::var_os("ZEROFLEET_BIN_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => {
            let test = std::env::current_exe().context("find the test's own binary")?;
            let target = test.ancestors().nth(2).context("find the target directory of the test")?;
            target.to_owned()
        }
    };
    let path = directory.join(name);
    let advice = "build it with `cargo build --package`, or name its directory in ZEROFLEET_BIN_DIR";
    ensure!(path.is_file(), "{} is missing: {advice}", path.display());
    Ok(path)
}

/// Runs a command until it exits; returns the standard output.
///
/// # Errors
/// The command cannot be started or fails; the error contains the output.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    let [text, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(output.status.success(), "{command:?} ended with {}:\n{text}{errors}", output.status);
    Ok(text)
}

/// Exit status and output of a process that exited by itself.
#[derive(Debug)]
pub struct Output {
    /// Exit status of the process.
    pub status: ExitStatus,
    /// Output of the process.
    pub text: String,
}

impl Output {
    /// Returns the lines that report an error.
    #[must_use]
    pub fn errors(&self) -> Vec<&str> {
        self.text.lines().filter(|line| line.starts_with("error: ")).collect()
    }
}

/// A process with command line and log. A restart uses the same ports.
#[derive(Debug)]
pub struct Process {
    name: String,
    arguments: Vec<OsString>,
    program: PathBuf,
    log: PathBuf,
    /// Admin port; zero if the process has none.
    admin: u16,
    namespace: Option<Arc<Namespace>>,
    /// Command line that starts the program; empty if the program is started directly.
    launcher: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
    child: Option<Child>,
    /// Ports on which the process listens, reserved before the first start.
    ports: Vec<ReservedPort>,
}

impl Process {
    /// Creates a process without starting it.
    ///
    /// # Errors
    /// The binary is missing.
    pub fn new(name: &str, program: &str, arguments: Vec<OsString>, admin: u16, logs: &Path) -> anyhow::Result<Self> {
        let arguments = [arguments, vec!["--admin".into(), format!("127.0.0.1:{admin}").into()]].concat();
        let mut process = Self::without_admin(name, program, arguments, logs)?;
        process.admin = admin;
        Ok(process)
    }

    /// Creates a process of a program that has no admin port, without starting it.
    ///
    /// # Errors
    /// The binary is missing.
    pub fn without_admin(name: &str, program: &str, arguments: Vec<OsString>, logs: &Path) -> anyhow::Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let (name, program) = (name.to_owned(), self::program(program)?);
        let (launcher, variables, ports) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { name, arguments, program, log, admin: 0, namespace: None, launcher, variables, child: None, ports })
    }

    /// Keeps these ports reserved for the process, even while it does not run.
    pub fn keep(&mut self, ports: impl IntoIterator<Item = ReservedPort>) {
        self.ports.extend(ports);
    }

    /// Runs the process in this network namespace from the next start on.
    pub fn run_in(&mut self, namespace: Arc<Namespace>) {
        self.namespace = Some(namespace);
    }

    /// Starts the program with this command line from the next start on. It must execute the program in the same
    /// process.
    pub(crate) fn launch_with(&mut self, launcher: Vec<OsString>) {
        self.launcher = launcher;
    }

    /// Sets an environment variable from the next start on.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.variables.push((name, value.into()));
    }

    /// Returns the id of the process, if it was started.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the process; output is appended to the log.
    ///
    /// # Errors
    /// The log cannot be opened, or the process cannot be started.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log).context("open the log")?;
        let line: Vec<&OsStr> =
            self.launcher.iter().map(OsString::as_os_str).chain([self.program.as_os_str()]).collect();
        let mut command = Command::new(line[0]);
        command
            .args(&line[1..])
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("OMP_NUM_THREADS", "1")
            .env("MKL_NUM_THREADS", "1")
            // The pipe carries no data: its end-of-file shows that the test has ended, see `--exit-with-parent`.
            .stdin(Stdio::piped())
            .stdout(log.try_clone().context("share the log")?)
            .stderr(log);
        let child = self.inside(|| command.spawn())?.with_context(|| format!("start {}", self.name))?;
        self.child = Some(child);
        Ok(())
    }

    /// Appends arguments to the command line, for the next start.
    pub fn argue(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(OsString::from));
    }

    /// Renames the process and the log.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        self.log.set_file_name(format!("{name}.log"));
    }

    /// Returns the name of the process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the admin port of the process; zero if it has none.
    #[must_use]
    pub fn admin(&self) -> u16 {
        self.admin
    }

    /// Kills the process (SIGKILL) and waits until it has exited.
    ///
    /// # Errors
    /// The process cannot be killed or waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().with_context(|| format!("kill {}", self.name))?;
            child.wait().with_context(|| format!("reap {}", self.name))?;
        }
        Ok(())
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal(libc::SIGINT);
    }

    /// Sends SIGHUP, as a closed terminal does.
    pub fn hang_up(&self) {
        self.signal(libc::SIGHUP);
    }

    /// Requests a drain (SIGTERM).
    pub fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Stops the process (SIGSTOP) until [`resume`](Self::resume); sockets stay open.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Resumes the process (SIGCONT).
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        if let Some(id) = self.child.as_ref().and_then(|child| libc::pid_t::try_from(child.id()).ok()) {
            // SAFETY: kill takes plain numbers. The process is not reaped yet, so its id cannot belong to another
            // process.
            unsafe { libc::kill(id, signal) };
        }
    }

    /// Returns true if the process was started and has not exited.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Waits until the process has exited by itself.
    ///
    /// # Errors
    /// The process was not started, or still runs at the deadline.
    pub fn ended(&mut self, deadline: Duration) -> anyhow::Result<Output> {
        let mut status = None;
        let (name, child) = (&self.name, &mut self.child);
        wait_until(&format!("{name} has ended"), deadline, || {
            status = child.as_mut().context("it was never started")?.try_wait()?;
            Ok(status.is_some())
        })?;
        self.child = None;
        Ok(Output { status: status.context("it has ended")?, text: self.log_text() })
    }

    /// Returns the log so far.
    #[must_use]
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the address of the web console that the process has announced; `None` before that.
    #[must_use]
    pub fn console(&self) -> Option<String> {
        let log = self.log_text();
        let (_, rest) = log.split_once("console: http://")?;
        // The line may be incomplete.
        let (address, _) = rest.split_once(char::is_whitespace)?;
        Some(format!("http://{address}"))
    }

    /// Returns true if the process reports that it is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.get("readyz").is_ok()
    }

    /// Checks that the process reports itself as healthy.
    ///
    /// # Errors
    /// The process does not respond, or reports the reason why it is not healthy.
    pub fn healthy(&self) -> anyhow::Result<()> {
        self.get("healthz").map(drop)
    }

    /// Waits until the process is ready.
    ///
    /// # Errors
    /// The process exits, or is not ready by the deadline.
    pub fn ready(&mut self, deadline: Duration) -> anyhow::Result<()> {
        wait_until(&format!("{} is ready", self.name), deadline, || {
            let ended = self.child.as_mut().context("it was never started")?.try_wait()?;
            if let Some(status) = ended {
                bail!("{} ended with {status}", self.name);
            }
            Ok(self.is_ready())
        })
    }

    /// Returns a metric of the process, without labels; `None` while it has none or does not respond.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        value_of(name, &self.get("metrics").ok()?)
    }

    fn get(&self, path: &str) -> anyhow::Result<String> {
        self.inside(|| get(&format!("127.0.0.1:{}", self.admin), path))?
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match &self.namespace {
            Some(namespace) => namespace.within(work),
            None => Ok(work()),
        }
    }
}

/// Returns a page of an admin port.
pub(crate) fn get(admin: &str, path: &str) -> anyhow::Result<String> {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(ADMIN_TIMEOUT)).build().into();
    Ok(agent.get(&format!("http://{admin}/{path}")).call()?.body_mut().read_to_string()?)
}

/// Returns the value of the metric `name`, without labels, in the text of `/metrics`.
pub(crate) fn value_of(name: &str, metrics: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failed test leaves no running process; a process that has exited by itself cannot be killed.
        let _ = self.kill();
    }
}
