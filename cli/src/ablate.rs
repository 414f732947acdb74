//! `zerofleet ablate`: measures the effects of on/off settings (switches) with paired runs.
//!
//! A [`Study`](study::Study) names the switches and the design; [`design`] lists the pairs. The
//! [`Schedule`](schedule::Schedule) runs the pairs in a [`Laboratory`](schedule::Laboratory), as `zerofleet tune` runs
//! trials, and appends each result to the [`Rows`](rows::Rows) of a file. That file suffices to resume a study, and
//! [`report`] computes the effects from it.

mod design;
mod effects;
mod laboratory;
mod report;
mod rows;
mod schedule;
mod study;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fleet::RunDirectory;

use crate::printed_command::quoted;
use crate::tune::{self, TrialRuns, TrialSettings, WATCH_INTERVAL};
use laboratory::Processes;
use rows::Rows;
use schedule::Schedule;
use study::Study;

/// Measures effects of on/off settings in paired runs (docs/ablation.md).
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Study file (TOML).
    ///
    /// An interrupted study resumes with the runs missing from the results file.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Directory that contains all runs; the study is in DIR/STUDY-NAME.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,

    /// Results file (CSV) [default: as the study file states, or rows.csv].
    ///
    /// Without an entry in the study file, results go to rows.csv in the study directory.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Run only the pairs in this inclusive range of rows: `3..5`, or `3`.
    #[arg(long, value_name = "N..M", value_parser = rows_between)]
    rows: Option<[usize; 2]>,

    /// Run at most this many pairs.
    #[arg(long, value_name = "K")]
    pieces: Option<usize>,

    /// Start no new runs after this many minutes; runs in progress continue.
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,

    /// Validate the study file, print the plan and exit.
    #[arg(long)]
    check: bool,

    /// Print the effects from the results so far and exit.
    #[arg(long, conflicts_with = "check")]
    report: bool,
}

/// Parses an inclusive range of row numbers from 1: `3..5`, or `3`.
fn rows_between(text: &str) -> Result<[usize; 2], String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let ends = first.parse().ok().zip(last.parse().ok()).filter(|(first, last)| (1..=*last).contains(first));
    ends.map(|(first, last)| [first, last]).ok_or_else(|| format!("`{text}` is not a range of rows such as 3..5"))
}

impl Args {
    /// Runs the pairs of the study and prints the effects; with `--report`, only prints the effects.
    ///
    /// # Errors
    /// The study file is invalid, the study directory is in use, or a run failed.
    pub(crate) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let study = Study::read(&self.file)?;
        if self.check {
            return Ok(write!(out, "{}", study.describe())?);
        }
        let folder = RunDirectory::new(&self.runs, &study.name).context("check study.name")?;
        let csv = self.csv.clone().or(study.csv.clone()).unwrap_or_else(|| folder.path().join("rows.csv"));
        if !self.report {
            self.run_pairs(&study, &folder, &csv, out)?;
        }
        let lines = report::lines(&study, &Rows::read(&csv)?);
        Ok(lines.iter().try_for_each(|line| writeln!(out, "{line}"))?)
    }

    fn run_pairs(&self, study: &Study, folder: &RunDirectory, csv: &Path, out: &mut impl Write) -> anyhow::Result<()> {
        let (runs, _lock) = tune::reserve(folder)?;
        let rows = Rows::open(csv, study.switches.iter().map(|switch| switch.name.clone()))?;
        let (base, budget, parallel) = (study.base.clone(), study.budget, study.kind.parallel());
        let runs = TrialRuns::new(TrialSettings { base, budget, parallel, objective: None }, runs)?;
        let [first, last] = self.rows.unwrap_or([1, usize::MAX]);
        let pairs = study.pairs.iter().filter(|pair| (first..=last).contains(&pair.number)).cloned().collect();
        let mut schedule = Schedule::new(study, rows, pairs, Processes::new(runs, study.eval.clone()));
        self.pieces.iter().for_each(|&pieces| schedule.keep(pieces));
        writeln!(out, "study {}: {} pairs to run, results in {}", study.name, schedule.pairs(), csv.display())?;
        let (_runtime, drain) = crate::drain_on_signals()?;
        let begin = Instant::now();
        let limit = self.minutes.map(|minutes| Duration::try_from_secs_f64(60.0 * minutes)).transpose();
        let limit = limit.context("parse --minutes")?.unwrap_or(Duration::MAX);
        while !schedule.is_over() {
            for line in schedule.step()? {
                // A failed write to a closed output must not stop the runs.
                drop(writeln!(out, "{line}").and_then(|()| out.flush()));
            }
            if drain.started() {
                schedule.drain();
            } else if begin.elapsed() >= limit {
                schedule.start_no_more();
            }
            std::thread::sleep(WATCH_INTERVAL);
        }
        let failures = schedule.failures();
        ensure!(failures == 0, "{failures} runs failed; retry with: zerofleet ablate {}", quoted(&self.file));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
