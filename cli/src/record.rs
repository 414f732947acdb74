//! Records the metrics of a run in `metrics.jsonl` and in TensorBoard's event file.

use std::fs;
use std::io;

use anyhow::Context;

use crate::append_log::AppendLog;
use crate::event_file::EventFile;
use crate::run_metrics::RunMetrics;
use fleet::run_directory::RunDirectory;

/// The open metric files of a run.
#[derive(Debug)]
pub struct Record {
    lines: AppendLog,
    events: EventFile,
}

impl Record {
    /// Opens the run's `metrics.jsonl` for appending, and creates a new event file.
    pub fn open(run: &RunDirectory, unix_seconds: f64) -> anyhow::Result<Self> {
        let path = run.metrics();
        let mut lines = AppendLog::open(&path).with_context(|| format!("open {}", path.display()))?;
        end_last_line(&mut lines).with_context(|| format!("append to {}", path.display()))?;
        let events = EventFile::create(run.path(), unix_seconds).context("create the event file")?;
        Ok(Self { lines, events })
    }

    /// Appends one reading of the metrics.
    pub fn append(&mut self, readings: &RunMetrics) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(readings)?;
        line.push('\n');
        self.lines.append(line.as_bytes()).context("append to metrics.jsonl")?;
        // A diagram over training steps needs a step; readings before the first one count as step zero.
        let step = readings.steps.unwrap_or(0.0) as i64;
        self.events.scalars(readings.unix_seconds, step, &readings.scalars()).context("append to the event file")
    }
}

/// Terminates a line that a crash cut short, which would otherwise damage the next one.
fn end_last_line(lines: &mut AppendLog) -> io::Result<()> {
    match lines.last_byte()? {
        None | Some(b'\n') => Ok(()),
        Some(_) => lines.append(b"\n"),
    }
}

/// Reads all recorded metrics of a run; empty without a file. Lines cut short by a crash are skipped.
pub fn read(run: &RunDirectory) -> anyhow::Result<Vec<RunMetrics>> {
    let path = run.metrics();
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the recorded times after a session that resumes with `before` in the file and writes once.
    fn remembered(before: &str) -> Vec<f64> {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        fs::write(run.metrics(), before).unwrap();
        let readings = RunMetrics { elapsed_seconds: 7.0, ..RunMetrics::default() };
        Record::open(&run, 0.0).unwrap().append(&readings).unwrap();
        read(&run).unwrap().into_iter().map(|readings| readings.elapsed_seconds).collect()
    }

    #[test]
    fn a_session_appends_to_the_metrics_of_the_last_one() {
        assert_eq!(remembered(""), [7.0]);
        assert_eq!(remembered("{\"elapsed_seconds\": 5.0}\n"), [5.0, 7.0]);
    }

    #[test]
    fn a_line_cut_short_by_a_crash_does_not_damage_the_next() {
        assert_eq!(remembered("{\"elapsed_seconds\": 5.0}\n{\"elapsed_sec"), [5.0, 7.0]);
    }
}
