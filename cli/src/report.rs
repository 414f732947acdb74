//! The report of a run: summary and picture, made from the run's folder and nothing else.
//!
//! Every session ends with one. [`Report::again`] makes it anew later, also for a session that ended without: a
//! supervisor that was killed draws nothing.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::config::{Fleet, load_run};
use crate::picture;
use crate::record;
use crate::run_directory::RunDirectory;
use crate::summary::Summary;

#[cfg(test)]
mod tests;

/// What was written, and where.
#[derive(Debug)]
pub struct Report {
    summary: Summary,
    picture: PathBuf,
}

/// The one part of a summary that the numbers over time do not tell.
#[derive(Debug, Default, Deserialize)]
struct Untold {
    restarts: Vec<(String, u32)>,
}

impl Report {
    /// Writes `summary.md`, `summary.json` and `picture.svg`. `restarts` are those of the session, by process.
    ///
    /// # Errors
    /// The run has no numbers yet, or a file cannot be read or written.
    pub fn write(run: &RunDirectory, restarts: Vec<(String, u32)>) -> anyhow::Result<Self> {
        let config: Fleet = load_run(run)?;
        let readings = record::read(run)?;
        let Some(last) = readings.last().cloned() else {
            let name = run.name();
            bail!("run {name} has no numbers to draw yet; train it with zerofleet train --run {name}");
        };
        let summary = Summary {
            run: run.name().to_owned(),
            game: config.run.game,
            seed: config.run.seed,
            minutes: config.learner.schedule_minutes,
            restarts,
            last,
        };
        fs::write(run.path().join("summary.md"), summary.markdown()).context("write summary.md")?;
        fs::write(run.summary(), serde_json::to_vec_pretty(&summary)?).context("write summary.json")?;
        let picture = run.path().join("picture.svg");
        picture::draw(&picture, &format!("zerofleet learns {}: run {}", summary.game, summary.run), &readings)?;
        Ok(Self { summary, picture })
    }

    /// Writes the same files anew.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn again(run: &RunDirectory) -> anyhow::Result<Self> {
        // A session that ended without a summary has told nobody how often it restarted what.
        let untold = fs::read(run.summary()).ok().and_then(|text| serde_json::from_slice::<Untold>(&text).ok());
        Self::write(run, untold.unwrap_or_default().restarts)
    }

    /// The summary for people, and where the picture lies.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn print(&self, output: &mut impl Write) -> io::Result<()> {
        writeln!(output, "{}\npicture: {}", self.summary.plain(), self.picture.display())
    }
}
