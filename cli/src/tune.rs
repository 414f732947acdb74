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
use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fleet::run_directory::RunDirectory;
use indicatif::ProgressBar;
use service::Drain;

use crate::bench;
use crate::printed_command::quoted;
use crate::screen::redrawn_text;
use crate::unix_seconds;
use journal::Journal;
use scheduler::Scheduler;
use study::Study;

pub(crate) use base::{Base, BaseSection, StudyText, read};
pub(crate) use budget::{Budget, BudgetSection};
pub(crate) use range::{Values, short};
#[cfg(test)]
pub(crate) use scheduler::Measurement;
pub(crate) use scheduler::{Report, Runner};
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
    /// Recommends a batch size.
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
    #[arg(value_name = "FILE", default_value = "", hide_default_value = true)]
    file: PathBuf,

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
        ensure!(!self.file.as_os_str().is_empty(), "expected a study file or `batch`; see zerofleet tune --help");
        let study = Study::read(&self.file)?;
        if self.check {
            return Ok(write!(out, "{}", study.describe())?);
        }
        let folder = RunDirectory::new(&self.runs, &study.name).context("check study.name")?;
        let is_run = folder.config().exists();
        ensure!(!is_run, "{} is the directory of a run; choose another study.name", folder.path().display());
        let trials = folder.path().join("trials");
        service::directory::writable(&trials)?;
        let _lock = service::directory::lock(folder.path())?;
        let (journal, events) = Journal::open(&folder.path().join("journal.jsonl"))?;
        let Study { base, budget, parallel, objective, .. } = study.clone();
        let runs = TrialSettings { base, budget, parallel, objective: Some(objective) };
        let runs = TrialRuns::new(runs, trials.clone())?;
        let mut scheduler = Scheduler::new(&study, journal, &events, runs)?;
        if self.retry_failed {
            scheduler.retry_failed()?;
        }
        let (_runtime, drain) = crate::drain_on_signals()?;
        let mut screen = Screen::new(&study, out);
        let ran = watch(&study, &mut scheduler, &drain, &mut screen);
        screen.close();
        let found = report::write(&study, scheduler.history(), folder.path(), &trials);
        // A failure of the trials explains more than the resulting failure of the report.
        ran?;
        for line in found? {
            screen.print(&line);
        }
        if !scheduler.is_complete() {
            screen.print(&format!("continue with: zerofleet tune {}{}", quoted(&self.file), self.folder_option()));
        }
        Ok(())
    }

    fn folder_option(&self) -> String {
        if self.runs == Path::new("runs") { String::new() } else { format!(" --runs {}", quoted(&self.runs)) }
    }
}

/// Runs the scheduler until all trials have stopped. After an error or a signal, all trials drain.
fn watch(
    study: &Study,
    scheduler: &mut Scheduler<'_, TrialRuns>,
    drain: &Drain,
    screen: &mut Screen<'_, impl Write>,
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
        screen.show(study, scheduler);
        std::thread::sleep(WATCH_INTERVAL);
    }
    outcome
}

/// The output of a study: on a terminal, a table that is redrawn below the messages; otherwise plain lines.
struct Screen<'a, W> {
    out: &'a mut W,
    live: Option<ProgressBar>,
    last: Instant,
}

impl<'a, W: Write> Screen<'a, W> {
    fn new(study: &Study, out: &'a mut W) -> Self {
        let live = std::io::stdout().is_terminal().then(redrawn_text);
        let mut screen = Self { out, live, last: Instant::now() };
        study.describe().lines().for_each(|line| screen.print(line));
        screen
    }

    /// Prints a line that stays on the screen. Errors are ignored: a closed output must not stop the trials.
    fn print(&mut self, line: &str) {
        match &self.live {
            Some(live) if !live.is_finished() => live.println(line),
            _ => drop(writeln!(self.out, "{line}").and_then(|()| self.out.flush())),
        }
    }

    /// Shows the state of the study.
    fn show(&mut self, study: &Study, scheduler: &Scheduler<'_, TrialRuns>) {
        let (history, running) = (scheduler.history(), scheduler.running());
        if let Some(live) = &self.live {
            live.set_message(table::live(study, history, running));
            live.tick();
        } else if self.last.elapsed() >= PLAIN_INTERVAL {
            self.last = Instant::now();
            self.print(&table::status(study, history, running));
        }
    }

    /// Leaves the last table on the screen.
    fn close(&self) {
        self.live.iter().for_each(ProgressBar::abandon);
    }
}
