//! `zerofleet tune`: searches for the settings with which a run learns best.
//!
//! A [`Study`](study::Study) names ranges of settings, the objective and the budget of a trial. The
//! [`Scheduler`](scheduler::Scheduler) starts trials with values from a [`Sampler`](sampler::Sampler), and stops trials
//! that fall behind at a rung of [`Halving`](halving::Halving). Every event is first written to the
//! [`Journal`](journal::Journal), and the [`History`](history::History) summarises the events. A study therefore
//! resumes after any exit of this program, even a crash. [`TrialRuns`](trial_runs::TrialRuns) runs each trial as
//! `zerofleet train`; `report` writes the results.

mod base;
mod budget;
mod halving;
mod history;
mod journal;
mod objective;
mod parzen;
mod picture;
mod range;
mod report;
mod sampler;
mod scheduler;
mod study;
mod table;
mod trial_runs;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fleet::run_directory::RunDirectory;
use indicatif::ProgressBar;
use service::Drain;

use crate::bench;
use crate::printed_command::quoted;
use crate::screen::{Screen, redrawn_text};
use crate::unix_seconds;
use journal::Journal;
use scheduler::Scheduler;
use study::Study;

pub(crate) use base::{Base, BaseSection, StudyText, read, settings_by_key};
pub(crate) use budget::{Budget, BudgetSection};
pub(crate) use objective::measures_of_positions;
pub(crate) use range::Values;
#[cfg(test)]
pub(crate) use scheduler::Measurement;
pub(crate) use scheduler::{Report, Runner, sentence};
pub(crate) use trial_runs::{TrialRuns, TrialSettings};

/// Interval between checks of the runs, which record metrics every five seconds.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between status lines of a study if the output is not a terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(60);

/// Tunes the settings of a run (docs/tuning.md).
///
/// A study runs many short trials and stops poor trials early.
#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    measurement: Option<Measure>,

    #[command(flatten)]
    study: StudyArgs,
}

/// Measurements other than a study.
#[derive(Debug, Clone, clap::Subcommand)]
enum Measure {
    /// Measures speed and memory at several batch and micro-batch sizes.
    ///
    /// Runs on the CPU or a GPU. Recommends sizes and a learning rate as arguments, and as a run file for a study.
    #[command(disable_help_flag = true)]
    Batch {
        /// Options of `zerofleet bench learner`; see `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
}

/// Options of a study.
#[derive(Debug, Clone, clap::Args)]
struct StudyArgs {
    /// Study file (TOML); an interrupted study resumes.
    // Required, except with a measurement.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Directory of all runs; the study is in DIR/STUDY-NAME.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,

    /// Run failed trials again.
    #[arg(long)]
    retry_failed: bool,

    /// Validate the study file, print the plan and exit.
    #[arg(long)]
    check: bool,
}

impl Args {
    /// Runs the study, or the measurement of batch sizes.
    ///
    /// # Errors
    /// The study file is invalid, the study directory is in use, or all trials fail; also the errors of
    /// [`bench::Args::run`].
    pub(crate) fn run(self, out: &mut impl Write) -> anyhow::Result<ExitCode> {
        match self.measurement {
            None => self.study.run(out).map(|()| ExitCode::SUCCESS),
            Some(Measure::Batch { arguments }) => {
                bench::Args::of("learner", [vec!["--parts=batch".into()], arguments].concat()).run()
            }
        }
    }
}

impl StudyArgs {
    /// Runs the trials of the study until all have stopped or a signal requests a stop.
    fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let file = self.file.as_ref().context("expected a study file or `batch`; see zerofleet tune --help")?;
        let study = Study::read(file)?;
        if self.check {
            return Ok(write!(out, "{}", study.describe())?);
        }
        let folder = RunDirectory::new(&self.runs, &study.name).context("check study.name")?;
        let (trials, _lock) = reserve(&folder)?;
        let (journal, events) = Journal::open(&folder.path().join("journal.jsonl"))?;
        let Study { base, budget, parallel, objective, .. } = study.clone();
        let runs = TrialSettings { base, budget, parallel, objective: Some(objective) };
        let runs = TrialRuns::new(runs, trials.clone())?;
        let mut scheduler = Scheduler::new(&study, journal, &events, runs)?;
        if self.retry_failed {
            scheduler.retry_failed()?;
        }
        let (_runtime, drain) = crate::drain_on_signals()?;
        let mut screen = Screen::new(redrawn_text, PLAIN_INTERVAL);
        study.describe().lines().for_each(|line| screen.print(line));
        let ran = watch(&study, &mut scheduler, &drain, &mut screen);
        screen.close();
        let found = report::write(&study, scheduler.history(), folder.path(), &trials);
        // A failure of the trials explains more than the resulting failure of the report.
        ran?;
        for line in found? {
            screen.print(&line);
        }
        if !scheduler.is_complete() {
            screen.print(&format!("continue with: zerofleet tune {}{}", quoted(file), self.folder_option()));
        }
        Ok(())
    }

    fn folder_option(&self) -> String {
        if self.runs == Path::new("runs") { String::new() } else { format!(" --runs {}", quoted(&self.runs)) }
    }
}

/// Creates and locks the directory of a study. Returns the directory of the trials, and the file that holds the lock.
///
/// # Errors
/// The directory is that of a run, cannot be written to, or is in use.
pub(crate) fn reserve(folder: &RunDirectory) -> anyhow::Result<(PathBuf, File)> {
    let is_run = folder.config().exists();
    ensure!(!is_run, "{} is the directory of a run; choose another study.name", folder.path().display());
    let trials = folder.path().join("trials");
    service::directory::writable(&trials)?;
    Ok((trials, service::directory::lock(folder.path())?))
}

/// Runs the scheduler until all trials have stopped. After an error or a signal, all trials drain.
fn watch(
    study: &Study,
    scheduler: &mut Scheduler<'_, TrialRuns>,
    drain: &Drain,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let mut outcome = Ok(());
    let mut is_draining = false;
    while !scheduler.is_over() {
        match scheduler.step(unix_seconds()) {
            Ok(news) => news.iter().for_each(|line| screen.print(line)),
            Err(error) if is_draining => return outcome.and(Err(error)),
            Err(error) => outcome = Err(error),
        }
        if !is_draining && (drain.started() || outcome.is_err()) {
            screen.print("stopping: draining every trial");
            is_draining = true;
            scheduler.drain();
        }
        let (history, running) = (scheduler.history(), scheduler.running());
        let live = |text: &ProgressBar| {
            text.set_message(table::live(study, history, running));
            text.tick();
        };
        screen.show(Instant::now(), live, || table::status(study, history, running));
        std::thread::sleep(WATCH_INTERVAL);
    }
    outcome
}
