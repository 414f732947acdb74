//! Writes the report of a run from the files in the run directory: a picture, a summary of strength, throughput and
//! time shares as Markdown, text and JSON, and a page of the whole run as one HTML file.
//!
//! Every session writes a report when it stops. `zerofleet picture` calls [`again`], which rewrites the report later,
//! even after the supervisor was killed.

mod origin;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::bail;
use figures::table::Table;
use fleet::run_directory::RunDirectory;
use fleet::run_directory::load_run;
use run_file::RunFile;
use run_metrics::{DeviceUse, RunMetrics, charts};
use serde::{Deserialize, Serialize};
use service::devices::CPU;
use service::directory::replace;

use crate::printed_command;
use crate::record;
use crate::screen::{
    clock, count, date, distinct, elo, losses, mean_return, number, percent, refused, validation, warnings, window,
};

pub(crate) use origin::Origin;

/// Redraws the picture and rewrites summary and report of a run.
///
/// Reads the recorded metrics in metrics.jsonl; no process of the run is needed.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Name of the run.
    #[arg(long, value_name = "NAME")]
    run: String,

    /// Directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
}

impl Args {
    /// Draws the picture and prints the summary.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        Ok(writeln!(io::stdout(), "{}", again(&run)?)?)
    }
}

/// Writes `summary.md`, `summary.json`, `picture.svg` and `report.html`. Returns a text to print: the summary and the
/// paths of picture and report. `restarts` counts the session's restarts by process, and `origin` describes the
/// session.
///
/// # Errors
/// The run has no metrics yet, or a file cannot be read or written.
pub(crate) fn write(run: &RunDirectory, restarts: Vec<(String, u32)>, origin: Origin) -> anyhow::Result<String> {
    let config: RunFile = load_run(run)?;
    let readings = record::read(run)?;
    // If a session stopped before any process responded, its readings are empty, and an earlier reading is used.
    let answered = readings.iter().rev().find(|reading| reading.steps.is_some());
    let Some(mut last) = answered.or(readings.last()).cloned() else {
        let name = run.name();
        bail!("run {name} has no metrics yet; train it with {}", printed_command::train(run));
    };
    // The fault comes from the very last reading, even if the learner did not respond.
    last.health.fault = readings.last().and_then(|reading| reading.health.fault.clone());
    let summary = Summary {
        run: run.name().to_owned(),
        boards: [config.run.game.clone()].into_iter().chain(config.run.boards).collect(),
        game: config.run.game,
        seed: config.run.seed,
        minutes: config.learner.schedule_minutes,
        restarts,
        date: date(last.unix_seconds),
        origin,
        devices: DeviceUse::over(readings.iter().flat_map(|reading| &reading.devices)),
        last,
    };
    replace(&run.path().join("summary.md"), summary.markdown().as_bytes())?;
    replace(&run.summary(), &serde_json::to_vec_pretty(&summary)?)?;
    let picture = run.path().join("picture.svg");
    let title = format!("zerofleet learns {}: run {}", summary.games(), summary.run);
    replace(&picture, charts::picture(&title, &readings).svg().as_bytes())?;
    let report = run.path().join("report.html");
    let written = web_console::report(run).and_then(|page| Ok(replace(&report, page.as_bytes())?));
    // The summary is printed in any case.
    let line =
        written.map_or_else(|error| format!("no report: {error:#}"), |()| format!("report: {}", report.display()));
    Ok(format!("{}\npicture: {}\n{line}", summary.plain(), picture.display()))
}

/// Rewrites the report of a run, with restarts and origin from the last summary.
///
/// # Errors
/// The same errors as [`write`].
pub(crate) fn again(run: &RunDirectory) -> anyhow::Result<String> {
    // Restarts and origin of a session without a summary are unknown.
    let summary = fs::read(run.summary()).ok().and_then(|text| serde_json::from_slice::<Summary>(&text).ok());
    let Summary { restarts, origin, .. } = summary.unwrap_or_default();
    write(run, restarts, origin)
}

/// The summary of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Summary {
    /// Name of the run.
    pub run: String,
    /// Name of the game on the first board.
    pub game: String,
    /// Name of the game on each board.
    pub boards: Vec<String>,
    /// Random seed of the run.
    pub seed: u64,
    /// Planned length of the run in minutes.
    pub minutes: f64,
    /// Name and number of restarts of each process in this session.
    pub restarts: Vec<(String, u32)>,
    /// Date and time of the last reading, in UTC.
    pub date: String,
    /// Command, program and machine of the last session.
    pub origin: Origin,
    /// Use of each device over the run: mean rates and utilisation, and maximum memory.
    pub devices: Vec<DeviceUse>,
    /// The metrics as last read.
    pub last: RunMetrics,
}

impl Summary {
    /// Returns the names of the games on all boards: `go-9 and go-7`.
    fn games(&self) -> String {
        if self.boards.is_empty() { self.game.clone() } else { self.boards.join(" and ") }
    }

    /// Formats the summary as Markdown.
    pub(crate) fn markdown(&self) -> String {
        format!("# Run {}\n\n{}", self.run, self.table().markdown())
    }

    fn table(&self) -> Table {
        let r = &self.last;
        let seconds = r.elapsed_seconds.max(1.0);
        let mean = |total: Option<f64>| number(total.map(|total| total / seconds));
        let mut table = Table::default().words(["metric", "value"]);
        let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
        if let Some(fault) = &r.health.fault {
            row("fault", fault.clone());
        }
        row("game, seed", format!("{}, {}", self.games(), self.seed));
        if !self.date.is_empty() {
            row("date", self.date.clone());
        }
        self.origin.rows().into_iter().for_each(|(name, value)| row(name, value));
        row("trained", format!("{} of {}", clock(r.elapsed_seconds), clock(self.minutes * 60.0)));
        for (name, search) in [("raw policy", "raw"), ("with search", "search")] {
            // Not every game has solved positions.
            let Some(kept) = r.accuracy_of(search, "preserving") else { continue };
            let kept = percent(Some(kept));
            let best = percent(r.accuracy_of(search, "optimal"));
            let error = r.accuracy_of(search, "value_error").map(|error| format!(", value error {error:.3}"));
            let error = error.unwrap_or_default();
            row(&format!("solved positions, {name}"), format!("outcome kept {kept}, best move {best}{error}"));
        }
        if r.has_returns() {
            row("mean return", mean_return(r));
            row("mean return of random play", number(r.random_return));
            row("steps of an evaluation episode", number(r.episode_length));
        } else {
            let on = if self.boards.len() > 1 { format!(" on {}", self.game) } else { String::new() };
            row(&format!("Elo{on} (random play is 0)"), elo(r));
            for (name, rating) in &r.opponents {
                row(&format!("Elo of {name}"), format!("{rating:.0}"));
            }
        }
        row("games", format!("{}, {} per second", count(r.games), mean(r.games)));
        row("positions", format!("{}, {} per second", count(r.positions), mean(r.positions)));
        row("evaluations", format!("{}, {} per second", count(r.evaluations), mean(r.evaluations)));
        row("simulations", format!("{}, {} per second", count(r.simulations), mean(r.simulations)));
        row("training steps", format!("{}, {} per second", count(r.steps), mean(r.steps)));
        row("loss", losses(r));
        if let Some(validation) = validation(r) {
            row("held-out games", validation);
        }
        let refused = refused(r).map(|refused| format!(", {refused} games refused")).unwrap_or_default();
        row("replay", format!("{} items, window {}{refused}", count(r.replay_items), window(r)));
        if let Some(distinct) = distinct(r) {
            row("positions of the latest 3,000 games", distinct);
        }
        for (name, warning) in warnings(r) {
            row(name, warning);
        }
        for (role, engine) in &r.engines {
            row(&format!("engine of {role}"), engine.clone());
        }
        for line in crate::screen::device_lines(&self.devices) {
            row(if line == CPU { "device" } else { "device (mean load, maximum memory)" }, line);
        }
        for (role, share) in shares(r) {
            row(&format!("time of {role}"), share);
        }
        for (name, restarts) in self.restarts.iter().filter(|(_, restarts)| *restarts > 0) {
            row(&format!("restarts of {name}"), restarts.to_string());
        }
        table
    }

    /// Formats the rows of the table as plain text.
    pub(crate) fn plain(&self) -> String {
        self.table().lines().iter().skip(1).map(|line| format!("  {line}\n")).collect()
    }
}

/// Returns how actors and learner divide their time among phases: `search 20 %, evaluate 75 %, wait 5 %`.
fn shares(r: &RunMetrics) -> Vec<(&'static str, String)> {
    let mut shares = Vec::new();
    for role in ["actor", "learner"] {
        let phases =
            r.seconds.iter().filter_map(|(key, seconds)| Some((key.strip_prefix(role)?.strip_prefix('/')?, *seconds)));
        let phases: Vec<_> = phases.collect();
        let all: f64 = phases.iter().map(|(_, seconds)| seconds).sum();
        if all > 0.0 {
            let parts = phases.iter().map(|(phase, seconds)| format!("{phase} {:.0} %", 100.0 * seconds / all));
            shares.push((role, parts.collect::<Vec<_>>().join(", ")));
        }
    }
    shares
}

#[cfg(test)]
mod tests;
