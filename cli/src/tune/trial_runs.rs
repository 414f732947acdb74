//! Runs each trial as a process `zerofleet train`, with a run directory below the study directory.
//!
//! The run is named after the trial number, and resumes under this name. If this program exits, the process drains the
//! fleet and exits too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fleet::child::{self, Child};
use fleet::plan::{self, Args};
use fleet::{JsonLines, RunDirectory};
use run_metrics::RunMetrics;
use service::cpus::{self, Cpu};

use super::base::Base;
use super::budget::Budget;
use super::objective::Objective;
use super::range::Values;
use super::scheduler::{Measurement, Report, Runner};

/// Maximum time to wait for a run of an earlier session to stop. The run drains within ten seconds and then draws a
/// picture.
const EARLIER_RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for draining a run, after which the process is killed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Settings that all runs of a study share.
#[derive(Debug, Clone)]
pub(crate) struct TrialSettings {
    pub base: Base,
    pub budget: Budget,
    /// Maximum number of parallel runs.
    pub parallel: usize,
    /// Objective to measure during a run; `None` if results are measured after the run.
    pub objective: Option<Objective>,
}

/// Starts and monitors the processes for the runs of a study.
#[derive(Debug)]
pub(crate) struct TrialRuns {
    settings: TrialSettings,
    /// Directory that contains all run directories of the study.
    folder: PathBuf,
    /// Path of this program, which also runs the trials.
    program: PathBuf,
    /// CPUs to divide equally among parallel trials; empty if trials are not pinned to CPUs.
    cpus: Vec<Cpu>,
    runs: BTreeMap<usize, TrialRun>,
}

#[derive(Debug)]
struct TrialRun {
    /// Process of the run; `None` if the run had finished before this session.
    process: Option<Child>,
    metrics: JsonLines<RunMetrics>,
    /// Index among the parallel runs, which determines the CPUs of the process.
    place: usize,
    drained_since: Option<Instant>,
    log: PathBuf,
}

impl TrialRuns {
    /// Creates a runner that keeps the run directories of trials in the directory `folder`.
    ///
    /// # Errors
    /// The system does not report the path of this program.
    pub(crate) fn new(settings: TrialSettings, folder: PathBuf) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        // If the CPUs are unknown, all trials share all CPUs.
        let cpus = if settings.parallel > 1 { cpus::allowed().unwrap_or_default() } else { Vec::new() };
        Ok(Self { settings, folder, program, cpus, runs: BTreeMap::new() })
    }

    /// Returns the run directory of a trial.
    ///
    /// # Errors
    /// The system does not report the working directory.
    pub(crate) fn run(&self, trial: usize) -> anyhow::Result<RunDirectory> {
        RunDirectory::new(&self.folder, &trial.to_string())
    }

    /// Removes the run directory of a trial from an earlier session, after waiting for the process to exit.
    ///
    /// # Errors
    /// The process does not exit in time, or the directory cannot be removed.
    pub(crate) fn clear(&self, trial: usize) -> anyhow::Result<()> {
        let run = self.run(trial)?;
        if !run.path().exists() {
            return Ok(());
        }
        wait_for_earlier(&run)?;
        fs::remove_dir_all(run.path()).with_context(|| format!("remove {}", run.path().display()))
    }

    /// Returns the CPUs for the parallel run with index `place`: an equal part of all CPUs, or a single CPU if there
    /// are fewer CPUs than runs.
    fn share(&self, place: usize) -> Vec<Cpu> {
        let (count, parallel) = (self.cpus.len(), self.settings.parallel);
        if count < parallel {
            return self.cpus.get(place % count.max(1)).copied().into_iter().collect();
        }
        self.cpus.iter().skip(place).step_by(parallel).copied().collect()
    }

    fn free_place(&self) -> usize {
        (0..).find(|place| self.runs.values().all(|run| run.place != *place)).unwrap_or_default()
    }
}

impl Runner for TrialRuns {
    fn start(&mut self, trial: usize, values: &Values) -> anyhow::Result<()> {
        let run = self.run(trial)?;
        let metrics = JsonLines::new(run.metrics());
        let log = run.logs().join("train.log");
        let place = self.free_place();
        let mut ended = TrialRun { process: None, metrics, place, drained_since: None, log: log.clone() };
        if has_finished(&run, self.settings.budget.run_minutes())? {
            self.runs.insert(trial, ended);
            return Ok(());
        }
        let arguments = self.settings.base.arguments(values);
        let is_new = !run.config().exists();
        if is_new {
            plan::check_new(&arguments, std::iter::empty())?;
        }
        fs::create_dir_all(run.logs()).with_context(|| format!("create {}", run.logs().display()))?;
        wait_for_earlier(&run)?;
        let settings = child::Settings {
            name: format!("trial {trial}"),
            program: self.program.clone(),
            arguments: command_line(&arguments, &self.folder, run.name(), is_new),
            environment: Vec::new(),
            log,
        };
        let share = self.share(place);
        // A process inherits the CPU affinity of the thread that starts the process.
        let started = std::thread::scope(|scope| {
            let start = || {
                if !share.is_empty() {
                    cpus::pin_to(&share)?;
                }
                Child::start(settings, Instant::now())
            };
            scope.spawn(start).join().unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked")))
        });
        ended.process = Some(started.with_context(|| format!("start {} train", self.program.display()))?);
        self.runs.insert(trial, ended);
        Ok(())
    }

    fn poll(&mut self, trial: usize) -> anyhow::Result<Report> {
        let run = self.runs.get_mut(&trial).context("find the run of the trial")?;
        // Checks for the end before reading the metrics, so that no measurement is missed.
        let end = run.end()?;
        let readings = run.metrics.read()?;
        let TrialSettings { budget, objective, .. } = &self.settings;
        let measurement = |reading: &RunMetrics| Measurement {
            budget: budget.used(reading),
            metric: objective.as_ref().and_then(|objective| objective.of(reading)),
        };
        let measurements = readings.iter().map(measurement).collect();
        if end.is_some() {
            self.runs.remove(&trial);
        }
        Ok(Report { measurements, end })
    }

    fn stop(&mut self, trial: usize) {
        if let Some(run) = self.runs.get_mut(&trial) {
            run.drained_since = Some(Instant::now());
            run.process.iter_mut().for_each(Child::terminate);
        }
    }
}

impl TrialRun {
    /// Returns the result of the run, with the reason for a failure; `None` while the run continues.
    fn end(&mut self) -> anyhow::Result<Option<Result<(), String>>> {
        let Some(process) = &mut self.process else { return Ok(Some(Ok(()))) };
        if self.drained_since.is_some_and(|since| since.elapsed() > DRAIN_TIMEOUT) {
            process.kill();
        }
        let exit = process.exit().context("wait for the run of a trial")?;
        Ok(exit.map(|exit| {
            if exit.succeeded {
                return Ok(());
            }
            Err(format!("the run {}; last line of {}: {}", exit.how, self.log.display(), exit.last_log_line))
        }))
    }
}

/// Returns true if the run has trained for the full time of `minutes` minutes.
fn has_finished(run: &RunDirectory, minutes: f64) -> anyhow::Result<bool> {
    Ok(run.progress()?.is_some_and(|progress| progress.elapsed_seconds >= minutes * 60.0))
}

/// Waits until the process of an earlier session has released the lock on the run directory.
fn wait_for_earlier(run: &RunDirectory) -> anyhow::Result<()> {
    let begin = Instant::now();
    loop {
        match run.lock() {
            Ok(_lock) => return Ok(()),
            Err(error) => ensure!(begin.elapsed() < EARLIER_RUN_TIMEOUT, "{}", service::chain(&error)),
        }
        std::thread::sleep(POLL);
    }
}

/// Returns the arguments of `zerofleet` for a run. A resumed run reads its settings from the run directory.
fn command_line(options: &Args, runs: &Path, name: &str, is_new: bool) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["train".into(), "--exit-with-parent".into(), "--no-console".into()];
    let mut option = |option: &str, value: OsString| line.extend([option.into(), value]);
    option("--runs", runs.into());
    option("--run", name.into());
    Base::session_options(options).into_iter().for_each(|(name, value)| option(name, value.into()));
    if is_new {
        options.game.iter().for_each(|game| option("--game", game.into()));
        options.algorithm.iter().for_each(|algorithm| option("--algorithm", algorithm.to_string().into()));
        options.config.iter().for_each(|config| option("--config", config.into()));
        options.sets.iter().for_each(|set| option("--set", set.into()));
    }
    line
}
