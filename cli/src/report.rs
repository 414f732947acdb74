//! Writes the report of a run, summary and picture, from the files in the run's folder.
//!
//! Every session ends with a report. [`Report::again`] writes it again later, also for a session whose supervisor was
//! killed before it wrote one.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::bail;
use serde::Deserialize;
use service::directory::replace;

use crate::picture;
use crate::record;
use crate::summary::Summary;
use fleet::config::{Fleet, load_run};
use fleet::run_directory::RunDirectory;

/// The summary of a run and the path of its picture.
#[derive(Debug)]
pub struct Report {
    summary: Summary,
    picture: PathBuf,
}

/// The part of a summary that is not among the recorded metrics.
#[derive(Debug, Default, Deserialize)]
struct Untold {
    restarts: Vec<(String, u32)>,
}

impl Report {
    /// Writes `summary.md`, `summary.json` and `picture.svg`. `restarts` holds the restarts of the session by process.
    ///
    /// # Errors
    /// The run has no metrics yet, or a file cannot be read or written.
    pub fn write(run: &RunDirectory, restarts: Vec<(String, u32)>) -> anyhow::Result<Self> {
        let config: Fleet = load_run(run)?;
        let readings = record::read(run)?;
        let Some(last) = readings.last().cloned() else {
            let name = run.name();
            bail!("run {name} has no metrics yet; train it with zerofleet train --run {name}");
        };
        let summary = Summary {
            run: run.name().to_owned(),
            game: config.run.game,
            seed: config.run.seed,
            minutes: config.learner.schedule_minutes,
            restarts,
            last,
        };
        replace(&run.path().join("summary.md"), summary.markdown().as_bytes())?;
        replace(&run.summary(), &serde_json::to_vec_pretty(&summary)?)?;
        let picture = run.path().join("picture.svg");
        picture::draw(&picture, &format!("zerofleet learns {}: run {}", summary.game, summary.run), &readings)?;
        Ok(Self { summary, picture })
    }

    /// Writes the same files again.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn again(run: &RunDirectory) -> anyhow::Result<Self> {
        // The restarts of a session that ended without a summary are unknown.
        let untold = fs::read(run.summary()).ok().and_then(|text| serde_json::from_slice::<Untold>(&text).ok());
        Self::write(run, untold.unwrap_or_default().restarts)
    }

    /// Prints the summary as text, and the path of the picture.
    ///
    /// # Errors
    /// An error of `output`.
    pub fn print(&self, output: &mut impl Write) -> io::Result<()> {
        writeln!(output, "{}\npicture: {}", self.summary.plain(), self.picture.display())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::record::Record;
    use crate::run_metrics::RunMetrics;
    use fleet::config::Fleet;

    /// Creates a run of forty minutes of Hex that has written only its configuration.
    fn begin(runs: &Path) -> RunDirectory {
        let run = RunDirectory::new(runs, "first").unwrap();
        run.create().unwrap();
        let mut config = Fleet::default();
        (config.run.game, config.run.seed) = ("hex-5".to_owned(), 7);
        config.learner.schedule_minutes = 40.0;
        fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
        run
    }

    /// Returns metrics of ten minutes in which the loss falls to one.
    fn train(run: &RunDirectory) {
        let mut record = Record::open(run, 0.0).unwrap();
        for minute in 0..=10 {
            let loss_total = Some(2.0 - f64::from(minute) / 10.0);
            let elapsed_seconds = f64::from(60 * minute);
            record.append(&RunMetrics { elapsed_seconds, loss_total, ..RunMetrics::default() }).unwrap();
        }
    }

    fn written(run: &RunDirectory) -> Vec<String> {
        let names = ["summary.md", "summary.json", "picture.svg"];
        names.iter().map(|name| fs::read_to_string(run.path().join(name)).unwrap()).collect()
    }

    #[test]
    fn a_report_needs_only_metrics_and_configuration() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        train(&run);
        Report::again(&run).unwrap();
        let [summary, _, picture] = written(&run).try_into().unwrap();
        assert!(summary.contains("| game, seed | hex-5, 7 |"), "{summary}");
        assert!(summary.contains("| trained | 10:00 of 40:00 |"), "{summary}");
        assert!(summary.contains("| loss | 1.000"), "{summary}");
        assert!(picture.contains("zerofleet learns hex-5: run first") && picture.contains("1.20 total"), "{picture}");
    }

    #[test]
    fn a_repeated_report_is_identical_including_restarts() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        train(&run);
        Report::write(&run, vec![("learner".to_owned(), 2)]).unwrap();
        let before = written(&run);
        assert!(before[0].contains("| restarts of learner | 2 |"), "{}", before[0]);
        Report::again(&run).unwrap();
        assert_eq!(written(&run), before);
    }

    #[test]
    fn a_line_cut_short_by_a_crash_is_skipped() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        train(&run);
        let mut lines = fs::read(run.metrics()).unwrap();
        lines.extend(b"{\"elapsed_seconds\": 660.0, \"loss_to");
        fs::write(run.metrics(), lines).unwrap();
        let mut printed = Vec::new();
        Report::again(&run).unwrap().print(&mut printed).unwrap();
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("10:00 of 40:00") && printed.ends_with("picture.svg\n"), "{printed}");
    }

    #[test]
    fn a_run_without_metrics_is_an_error_with_a_remedy() {
        let runs = tempfile::tempdir().unwrap();
        let error = Report::again(&begin(runs.path())).unwrap_err().to_string();
        assert_eq!(error, "run first has no metrics yet; train it with zerofleet train --run first");
    }
}
