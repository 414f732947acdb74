//! Runs `zerofleet train` on a tiny run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::cluster::print_log;
use crate::process::{Output, Process, get, run, value_of, wait_until};
use crate::{SEED, SMALL_TIC_TAC_TOE};

/// The supervisor stops all processes within ten seconds; a busy machine draws the picture slowly.
const END_DEADLINE: Duration = Duration::from_secs(30);

/// A run of `zerofleet train`. The output is printed if the test panics.
#[derive(Debug)]
pub struct TrainingRun {
    supervisor: Process,
    directory: PathBuf,
}

impl TrainingRun {
    /// Creates a run of tic-tac-toe below `runs` without starting it. The output of the supervisor goes to `logs`.
    ///
    /// # Errors
    /// The binary is missing, or a directory cannot be written to.
    pub fn new(runs: &Path, logs: &Path) -> anyhow::Result<Self> {
        Self::of(runs, logs, &["--game", "tic_tac_toe", "--actors", "1"])
    }

    /// Creates a run as [`new`](Self::new) does, with these options, which name the game.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn of(runs: &Path, logs: &Path, options: &[&str]) -> anyhow::Result<Self> {
        Self::with_console(runs, logs, &[options, &["--no-console"][..]].concat())
    }

    /// Creates a run as [`of`](Self::of) does, with a console.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn with_console(runs: &Path, logs: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let config = logs.join("given.toml");
        std::fs::write(&config, format!("[run]\nseed = {SEED}\n{SMALL_TIC_TAC_TOE}")).context("write the run file")?;
        let [runs_argument, config] = [runs, &config].map(|path| path.display().to_string());
        let arguments = ["train", "--minutes", "30", "--run", "first"];
        let paths = ["--runs", &runs_argument, "--config", &config];
        let arguments = arguments.into_iter().chain(options.iter().copied()).chain(paths).map(Into::into).collect();
        let supervisor = Process::without_admin("zerofleet", "zerofleet", arguments, logs)?;
        Ok(Self { supervisor, directory: runs.join("first") })
    }

    /// Overrides a setting of the run file for the next start, such as `replay.archive_seconds=1`.
    pub fn set(&mut self, setting: &str) {
        self.argue(&["--set", setting]);
    }

    /// Sets an environment variable of all processes for the next start.
    pub fn set_variable(&mut self, name: &'static str, value: &str) {
        self.supervisor.set(name, value);
    }

    /// Starts or resumes the run.
    ///
    /// # Errors
    /// The supervisor cannot be started.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.supervisor.start()
    }

    /// Sends SIGINT to the supervisor, as Ctrl-C does, and returns exit status and output.
    ///
    /// # Errors
    /// The supervisor does not exit by the deadline, or fails.
    pub fn stop(&mut self) -> anyhow::Result<Output> {
        self.supervisor.interrupt();
        let output = self.supervisor.ended(END_DEADLINE)?;
        ensure!(output.status.success(), "{}: {}", output.status, output.text);
        Ok(output)
    }

    /// Sends SIGHUP to the supervisor, as a closed terminal does.
    pub fn hang_up(&self) {
        self.supervisor.hang_up();
    }

    /// Appends options to the command line, for the next start.
    pub fn argue(&mut self, options: &[&str]) {
        self.supervisor.argue(options);
    }

    /// Starts the supervisor with this program from the next start on.
    pub fn launch_with(&mut self, launcher: &str) {
        self.supervisor.launch_with(vec![launcher.into()]);
    }

    /// Waits until the supervisor has exited, and returns exit status and output.
    ///
    /// # Errors
    /// The supervisor does not exit by the deadline.
    pub fn ended(&mut self, deadline: Duration) -> anyhow::Result<Output> {
        self.supervisor.ended(deadline)
    }

    /// Waits until a condition holds while the supervisor runs.
    ///
    /// # Errors
    /// The condition does not hold by the deadline, or the supervisor has exited.
    pub fn until(
        &mut self,
        what: &str,
        deadline: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> anyhow::Result<()> {
        wait_until(what, deadline, || {
            ensure!(self.supervisor.is_running(), "the supervisor has ended: {}", self.output());
            Ok(holds(self))
        })
    }

    /// Returns the output of the supervisor since the first start.
    #[must_use]
    pub fn output(&self) -> String {
        self.supervisor.log_text()
    }

    /// Returns a metric of the process `process`; `None` while it has none or does not respond.
    #[must_use]
    pub fn metric(&self, process: &str, name: &str) -> Option<f64> {
        let admin = self.admins().into_iter().find(|(listed, _)| listed == process)?.1;
        value_of(name, &get(&admin, "metrics").ok()?)
    }

    /// Returns the names of the processes of the last session that still respond.
    #[must_use]
    pub fn answering(&self) -> Vec<String> {
        let answers = |admin: &str| get(admin, "healthz").is_ok();
        self.admins().into_iter().filter(|(_, admin)| answers(admin)).map(|(name, _)| name).collect()
    }

    /// Returns the address of the console that the supervisor has announced; `None` before that.
    #[must_use]
    pub fn console(&self) -> Option<String> {
        self.supervisor.console()
    }

    /// Returns the id of a process of the run, such as `learner` or `console`; `None` while it does not run, and on
    /// systems without `/proc`.
    #[must_use]
    pub fn process_id(&self, name: &str) -> Option<u32> {
        let runs = self.directory.parent()?.display().to_string();
        let is_named = |id: &u32| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            // A program of a fleet has the name of the role; `zerofleet` names the console as the command.
            let mut words = line.split('\0').take(2);
            let is_named = words.any(|word| word.rsplit('/').next() == Some(name));
            is_named && line.contains(&runs)
        };
        let entries = std::fs::read_dir("/proc").ok()?.flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_named)
    }

    /// Kills a process of the run (SIGKILL).
    ///
    /// # Errors
    /// The process does not run, or cannot be killed.
    pub fn kill(&self, name: &str) -> anyhow::Result<()> {
        let id = self.process_id(name).with_context(|| format!("find the process {name}"))?;
        run(Command::new("kill").args(["-9", &id.to_string()])).map(drop)
    }

    /// Returns the directory of the run.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns name and admin address of each process that the supervisor lists.
    fn admins(&self) -> Vec<(String, String)> {
        let text = std::fs::read(self.directory.join("fleet.json")).unwrap_or_default();
        let list: Vec<Value> = serde_json::from_slice(&text).unwrap_or_default();
        let field = |entry: &Value, key: &str| Some(entry.get(key)?.as_str()?.to_owned());
        list.iter().filter_map(|entry| Some((field(entry, "name")?, field(entry, "admin")?))).collect()
    }
}

impl Drop for TrainingRun {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_log(&self.supervisor);
        }
    }
}
