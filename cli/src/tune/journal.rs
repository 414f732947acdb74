//! The journal of a study: every event is a line of JSON in `journal.jsonl`, and is durable before the program acts on
//! the event. After a kill, `zerofleet tune` resumes from the journal.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::range::Values;
use event_file::AppendLog;

/// An event of a study: one line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Event {
    /// The study begins (first line of the journal). Later sessions must have the same `definition`.
    Begun { definition: Value },
    /// A trial starts with these values of the tuned settings.
    Started { trial: usize, values: Values, unix_seconds: f64 },
    /// A trial reached the rung with index `rung`, from 0. `goes_on` is false if the trial stops there.
    Rung { trial: usize, rung: usize, budget: f64, objective: f64, goes_on: bool },
    /// A trial ended after using `budget` minutes or positions.
    Ended { trial: usize, end: End, budget: f64, objective: Option<f64>, reason: Option<String>, unix_seconds: f64 },
    /// A failed trial was marked to run again.
    Retried { trial: usize },
}

/// The way in which a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    /// The trial used the full budget.
    Completed,
    /// The trial was stopped early at a rung.
    Stopped,
    /// The run of the trial failed or ended early, or the objective was never measured.
    Failed,
}

/// The journal file of a study, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    log: AppendLog,
}

impl Journal {
    /// Opens the journal at `path`, or creates an empty journal, and reads all events. Ignores an incomplete last line,
    /// which a crash may leave.
    ///
    /// # Errors
    /// The file cannot be read or written, or a complete line is not a valid event.
    pub(super) fn open(path: &Path) -> anyhow::Result<(Self, Vec<Event>)> {
        let named = || format!("read {}", path.display());
        let bytes = service::directory::if_exists(fs::read(path)).with_context(named)?.unwrap_or_default();
        // The program has not acted on a record that a crash truncated. The cut may be inside a UTF-8 character.
        let kept = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let whole = std::str::from_utf8(&bytes[..kept]).with_context(named)?;
        let events = whole.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(|(number, line)| {
            let place = || format!("read {}, line {}", path.display(), number + 1);
            serde_json::from_str(line).with_context(place)
        });
        let events = events.collect::<anyhow::Result<Vec<Event>>>()?;
        match events.first() {
            None | Some(Event::Begun { .. }) => {}
            Some(_) => bail!("{} does not start with a study definition", path.display()),
        }
        if kept < bytes.len() {
            let file = fs::File::options().write(true).open(path);
            file.and_then(|file| file.set_len(kept as u64)).with_context(named)?;
        }
        let log = AppendLog::open(path).with_context(|| format!("open {}", path.display()))?;
        if let Some(folder) = path.parent() {
            service::directory::sync(folder)?;
        }
        Ok((Self { log }, events))
    }

    /// Appends an event and waits until the event is durable.
    ///
    /// # Errors
    /// The event cannot be written; the journal is unchanged.
    pub(super) fn append(&mut self, event: &Event) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(event)?;
        line.push('\n');
        self.log.append(line.as_bytes()).and_then(|()| self.log.sync()).context("append to journal.jsonl")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn begun() -> Event {
        Event::Begun { definition: json!({"seed": 1}) }
    }

    fn started(trial: usize) -> Event {
        Event::Started { trial, values: Values::from([("a.b".to_owned(), json!("é"))]), unix_seconds: 5.0 }
    }

    #[test]
    fn the_journal_of_every_earlier_revision_is_read_with_its_content() {
        for kept in earlier_revisions::of_each("journal.jsonl").unwrap() {
            let folder = tempfile::tempdir().unwrap();
            let copy = folder.path().join("journal.jsonl");
            fs::copy(&kept, &copy).unwrap();
            let (_, events) = Journal::open(&copy).unwrap();
            let text = fs::read_to_string(kept).unwrap();
            let written: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(json!(events), json!(written));
        }
    }

    #[test]
    fn events_are_read_back_after_any_cut_of_the_last_line_and_the_journal_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (mut journal, events) = Journal::open(&path).unwrap();
        assert_eq!(events, []);
        journal.append(&begun()).unwrap();
        let first = fs::read(&path).unwrap().len();
        journal.append(&started(0)).unwrap();
        let text = fs::read(&path).unwrap();
        for cut in 0..=text.len() {
            fs::write(&path, &text[..cut]).unwrap();
            let (mut journal, events) = Journal::open(&path).unwrap();
            let whole =
                [begun(), started(0)].into_iter().take(usize::from(cut >= first) + usize::from(cut == text.len()));
            let whole: Vec<_> = whole.collect();
            assert_eq!(events, whole, "cut at {cut}");
            if whole.is_empty() {
                journal.append(&begun()).unwrap();
            }
            journal.append(&started(9)).unwrap();
            assert_eq!(Journal::open(&path).unwrap().1.last(), Some(&started(9)), "cut at {cut}");
        }
    }

    #[test]
    fn a_line_that_is_no_event_and_a_journal_without_its_study_are_refused_with_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let line = |event: &Event| serde_json::to_string(event).unwrap() + "\n";
        fs::write(&path, line(&begun()) + "{\"event\": \"other\"}\n").unwrap();
        let error = format!("{:#}", Journal::open(&path).unwrap_err());
        assert!(error.contains("journal.jsonl, line 2: unknown variant `other`"), "{error}");
        fs::write(&path, line(&started(0))).unwrap();
        let error = format!("{:#}", Journal::open(&path).unwrap_err());
        assert!(error.contains("does not start with a study definition"), "{error}");
    }
}
