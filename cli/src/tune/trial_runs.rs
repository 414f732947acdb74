//! The runs of the trials: `zerofleet train` in a process each, with a folder below that of the study.
//!
//! A trial's run is named by its number and goes on by that name. Its process ends, and drains its fleet, when this
//! program is gone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use fleet::RunDirectory;
use fleet::child::{self, Child};
use fleet::plan::{self, Args};
use service::cpus::{self, Cpu};

use super::base::Base;
use super::budget::Budget;
use super::objective::Objective;
use super::range::Values;
use super::scheduler::{Measurement, Report, Runner};
use crate::run_metrics::RunMetrics;

/// Time for a run of an earlier session to end: it drains within ten seconds and then draws its picture.
const EARLIER_RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which a run that was requested to drain is killed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// The most bytes of metrics that are read at once.
const READ_BYTES_MAX: u64 = 16 << 20;

/// What the runs of a study have in common.
#[derive(Debug, Clone)]
pub(crate) struct TrialSettings {
    pub base: Base,
    pub budget: Budget,
    /// The number of runs at the same time.
    pub parallel: usize,
    /// The metric that is measured meanwhile, if any is.
    pub objective: Option<Objective>,
}

/// Starts and watches the runs of a study.
#[derive(Debug)]
pub(crate) struct TrialRuns {
    settings: TrialSettings,
    /// The folder of the runs.
    folder: PathBuf,
    /// This program.
    program: PathBuf,
    /// The cpus of this machine, shared equally by the trials; empty if they cannot be assigned.
    cpus: Vec<Cpu>,
    runs: BTreeMap<usize, TrialRun>,
}

#[derive(Debug)]
struct TrialRun {
    /// The process; `None` for a run that had ended before this session.
    process: Option<Child>,
    metrics: MetricsReader,
    /// The place among those that run at the same time, which decides the cpus.
    place: usize,
    drained_since: Option<Instant>,
    log: PathBuf,
}

impl TrialRuns {
    /// Runs the trials of a study in the folder `folder`.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub(crate) fn new(settings: TrialSettings, folder: PathBuf) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        // Trials share all cores where they cannot be assigned.
        let cpus = if settings.parallel > 1 { cpus::allowed().unwrap_or_default() } else { Vec::new() };
        Ok(Self { settings, folder, program, cpus, runs: BTreeMap::new() })
    }

    /// Returns the folder of a trial's run.
    ///
    /// # Errors
    /// The folder of this program is unknown.
    pub(crate) fn run(&self, trial: usize) -> anyhow::Result<RunDirectory> {
        RunDirectory::new(&self.folder, &trial.to_string())
    }

    /// Removes what an earlier session has left of a trial, once its process has ended.
    ///
    /// # Errors
    /// The process does not end, or the folder cannot be removed.
    pub(crate) fn clear(&self, trial: usize) -> anyhow::Result<()> {
        let run = self.run(trial)?;
        if !run.path().exists() {
            return Ok(());
        }
        wait_for_earlier(&run)?;
        fs::remove_dir_all(run.path()).with_context(|| format!("remove {}", run.path().display()))
    }

    /// Returns the cpus of a place: an equal share, or one cpu where there are fewer than places.
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
        let metrics = MetricsReader::new(run.metrics());
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
        // A process inherits the cpus of the thread that starts it.
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
        // The end is read first, so that no measurement before it is missed.
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
    /// Returns the end of the run, once it has ended.
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
            Err(format!("its run {}; last line of {}: {}", exit.how, self.log.display(), exit.last_log_line))
        }))
    }
}

/// Returns true for a run that has trained for all of its minutes.
fn has_finished(run: &RunDirectory, minutes: f64) -> anyhow::Result<bool> {
    Ok(run.progress()?.is_some_and(|progress| progress.elapsed_seconds >= minutes * 60.0))
}

/// Waits until the process of an earlier session has left the run.
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

/// Returns the command line of a run. A run that goes on has its settings in its folder.
fn command_line(options: &Args, runs: &Path, name: &str, is_new: bool) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["train".into(), "--exit-with-parent".into()];
    let mut option = |option: &str, value: OsString| line.extend([option.into(), value]);
    option("--runs", runs.into());
    option("--run", name.into());
    options.minutes.iter().for_each(|minutes| option("--minutes", minutes.to_string().into()));
    options.actors.iter().for_each(|actors| option("--actors", actors.to_string().into()));
    options.replay_servers.iter().for_each(|servers| option("--replay-servers", servers.to_string().into()));
    if let Some(inference) = options.inference.as_ref().and_then(clap::ValueEnum::to_possible_value) {
        option("--inference", inference.get_name().into());
    }
    if is_new {
        options.game.iter().for_each(|game| option("--game", game.into()));
        options.algorithm.iter().for_each(|algorithm| option("--algorithm", algorithm.to_string().into()));
        options.config.iter().for_each(|config| option("--config", config.into()));
        options.sets.iter().for_each(|set| option("--set", set.into()));
    }
    line
}

/// Reads the metrics of a run as they are written.
#[derive(Debug)]
struct MetricsReader {
    path: PathBuf,
    /// The bytes of whole lines that have been read.
    read: u64,
}

impl MetricsReader {
    fn new(path: PathBuf) -> Self {
        Self { path, read: 0 }
    }

    /// Returns the readings since the last call; none without a file. A line that is still being written is read later.
    fn read(&mut self) -> anyhow::Result<Vec<RunMetrics>> {
        let named = || format!("read {}", self.path.display());
        let Some(mut file) = service::directory::if_exists(File::open(&self.path)).with_context(named)? else {
            return Ok(Vec::new());
        };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.read))
            .and_then(|_| file.take(READ_BYTES_MAX).read_to_end(&mut bytes))
            .with_context(named)?;
        let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') else {
            let is_endless = bytes.len() as u64 == READ_BYTES_MAX;
            return if is_endless { Err(anyhow!("a line is too long")).with_context(named) } else { Ok(Vec::new()) };
        };
        self.read += end as u64 + 1;
        let lines = bytes[..end].split(|&byte| byte == b'\n');
        // Lines that a crash cut short are skipped.
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn metrics_are_read_once_by_whole_lines_while_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut reader = MetricsReader::new(path.clone());
        let mut read = || reader.read().unwrap().iter().map(|reading| reading.elapsed_seconds).collect::<Vec<_>>();
        assert_eq!(read(), [0.0; 0]);
        let mut file = File::create(&path).unwrap();
        file.write_all(b"{\"elapsed_seconds\": 5.0}\n{\"elapsed_sec").unwrap();
        assert_eq!(read(), [5.0]);
        assert_eq!(read(), [0.0; 0]);
        file.write_all(b"onds\": 6.0}\n{\"torn\n{\"elapsed_seconds\": 7.0}\n").unwrap();
        assert_eq!(read(), [6.0, 7.0]);
    }
}
