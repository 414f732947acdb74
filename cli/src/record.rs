//! Records the metrics of a run in `metrics.jsonl` and in an event file for TensorBoard, and the events of a run in
//! `events.jsonl`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use event_file::{AppendLog, EventFile, Summary};
use fleet::run_directory::RunDirectory;
use run_file::RunFile;
use run_metrics::{RunEvent, RunMetrics};

/// The open metrics files of a run.
#[derive(Debug)]
pub(crate) struct Record {
    lines: AppendLog,
    events: Option<Events>,
    /// Path of `events.jsonl`.
    happened: PathBuf,
}

/// The event file of a run for TensorBoard.
#[derive(Debug)]
struct Events {
    file: EventFile,
    /// Name of the run.
    group: String,
    /// Settings of the run, written with the first event; `None` afterwards.
    settings: Option<serde_json::Value>,
}

/// Sections of a run file that do not affect learning; the event file omits these sections.
const SECTIONS_LEFT_OUT: [&str; 2] = ["security", "telemetry"];

impl Record {
    /// Opens the run's `metrics.jsonl` for appending. The first call of [`append`](Self::append) creates the event
    /// file.
    pub(crate) fn open(run: &RunDirectory, config: &RunFile) -> anyhow::Result<Self> {
        let lines = open_lines(&run.metrics())?;
        let mut settings = serde_json::to_value(config)?;
        if let Some(sections) = settings.as_object_mut() {
            sections.retain(|name, _| !SECTIONS_LEFT_OUT.contains(&name.as_str()));
        }
        let file = EventFile::new(run.path().to_owned());
        let events = Events { file, group: run.name().to_owned(), settings: Some(settings) };
        Ok(Self { lines, events: config.learner.event_files.then_some(events), happened: run.events() })
    }

    /// Appends an event. Events are rare, so that the file is opened for each.
    pub(crate) fn happened(&self, event: &RunEvent) -> anyhow::Result<()> {
        let line = serde_json::to_string(event)? + "\n";
        open_lines(&self.happened)?.append(line.as_bytes()).context("append to events.jsonl")
    }

    /// Appends the metrics of the run as read at one time.
    pub(crate) fn append(&mut self, readings: &RunMetrics) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(readings)?;
        line.push('\n');
        self.lines.append(line.as_bytes()).context("append to metrics.jsonl")?;
        self.events.as_mut().map_or(Ok(()), |events| events.append(readings)).context("append to the event file")
    }
}

/// Opens a file of lines for appending, after the end of the last line.
fn open_lines(path: &Path) -> anyhow::Result<AppendLog> {
    let mut lines = AppendLog::open(path).with_context(|| format!("open {}", path.display()))?;
    lines.end_last_line().with_context(|| format!("append to {}", path.display()))?;
    Ok(lines)
}

impl Events {
    fn append(&mut self, readings: &RunMetrics) -> io::Result<()> {
        let step = match readings.steps {
            Some(steps) => steps as u64,
            // Readings before the first step count as step zero.
            None if self.file.is_at_start() => 0,
            // The learner does not respond, and without a training step an event cannot be plotted.
            None => return Ok(()),
        };
        let mut summary = Summary::new();
        for (tag, value) in readings.scalars() {
            summary = summary.scalar(tag, value);
        }
        if let Some(settings) = &self.settings {
            summary = summary.settings(&self.group, settings, readings.unix_seconds);
        }
        self.file.append(readings.unix_seconds, step, summary)?;
        self.settings = None;
        Ok(())
    }
}

/// Reads all recorded metrics of a run; empty without a file. Lines cut short by a crash are skipped.
pub(crate) fn read(run: &RunDirectory) -> anyhow::Result<Vec<RunMetrics>> {
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

    /// Returns the recorded times after a session has appended one reading to a file with the text `before`.
    fn times_after_appending_to(before: &str) -> Vec<f64> {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        fs::write(run.metrics(), before).unwrap();
        let readings = RunMetrics { elapsed_seconds: 7.0, ..RunMetrics::default() };
        Record::open(&run, &RunFile::default()).unwrap().append(&readings).unwrap();
        read(&run).unwrap().into_iter().map(|readings| readings.elapsed_seconds).collect()
    }

    #[test]
    fn a_session_appends_to_the_metrics_of_the_last_one() {
        assert_eq!(times_after_appending_to(""), [7.0]);
        assert_eq!(times_after_appending_to("{\"elapsed_seconds\": 5.0}\n"), [5.0, 7.0]);
    }

    #[test]
    fn a_line_cut_short_by_a_crash_does_not_damage_the_next() {
        assert_eq!(times_after_appending_to("{\"elapsed_seconds\": 5.0}\n{\"elapsed_sec"), [5.0, 7.0]);
    }

    #[test]
    fn events_are_appended_as_lines_that_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        let record = Record::open(&run, &RunFile::default()).unwrap();
        assert!(!run.events().exists());
        let events = ["learner was killed by signal 9", "learner was restarted\nat once"];
        let events = events.map(|text| RunEvent { unix_seconds: 7.0, text: text.to_owned() });
        events.iter().for_each(|event| record.happened(event).unwrap());
        let text = fs::read_to_string(run.events()).unwrap();
        assert_eq!(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<RunEvent>>(), events);
    }

    /// Returns the names of the run's event files.
    fn event_files(run: &RunDirectory) -> Vec<String> {
        let names = fs::read_dir(run.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("tfevents")).collect()
    }

    #[test]
    fn a_run_that_writes_no_event_files_has_its_lines() {
        for is_on in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let run = RunDirectory::new(folder.path(), "first").unwrap();
            run.create().unwrap();
            let mut config = RunFile::default();
            config.learner.event_files = is_on;
            let mut record = Record::open(&run, &config).unwrap();
            assert_eq!(event_files(&run), [""; 0]);
            record.append(&RunMetrics::default()).unwrap();
            assert_eq!((event_files(&run).len(), read(&run).unwrap().len()), (usize::from(is_on), 1));
        }
    }

    #[test]
    fn readings_of_a_resumed_run_wait_for_the_step_of_its_learner() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        let reading = |steps, unix_seconds| RunMetrics { steps, unix_seconds, ..RunMetrics::default() };
        let mut first = Record::open(&run, &RunFile::default()).unwrap();
        [reading(None, 1.0), reading(Some(7.0), 2.0)].iter().for_each(|reading| first.append(reading).unwrap());
        let mut second = Record::open(&run, &RunFile::default()).unwrap();
        second.append(&reading(None, 3.0)).unwrap();
        assert_eq!(event_files(&run).len(), 1);
        second.append(&reading(Some(5.0), 4.0)).unwrap();
        assert_eq!((event_files(&run).len(), read(&run).unwrap().len()), (2, 4));
    }
}
