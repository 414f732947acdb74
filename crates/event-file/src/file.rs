use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use prost::Message as _;

use crate::messages::{Event, SessionLog, What};
use crate::record::record;
use crate::{AppendLog, Summary};

/// Status `START` of a session.
const START: i32 = 1;

/// The event file of one process in a directory; TensorBoard shows it as one run together with earlier files.
///
/// The file is created with the first event, so that an unwritable directory fails the event and not the process.
/// Steps increase over all files of a directory. If a step is not after the earlier steps, because the process
/// resumed from an earlier state, an event makes readers drop the events from that step on.
#[derive(Debug)]
pub struct EventFile {
    folder: PathBuf,
    log: Option<AppendLog>,
    /// Step of the latest event; `None` if earlier files may hold events.
    last_step: Option<i64>,
    /// The last valid step in earlier files, if known.
    resumed_at: Option<i64>,
}

impl EventFile {
    /// Creates an event file in `folder`, which is created if needed. If the directory has event files already, the
    /// first event replaces the earlier events from its step on.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        let last_step = if holds_event_files(&folder) { None } else { Some(0) };
        Self { folder, log: None, last_step, resumed_at: None }
    }

    /// Makes the first event drop earlier events after `step`, at which the process resumed.
    #[must_use]
    pub fn resumed_at(mut self, step: u64) -> Self {
        self.resumed_at = Some(whole(step));
        self
    }

    /// Returns true if no event is known with a step above 0: the run is new.
    #[must_use]
    pub fn is_at_start(&self) -> bool {
        self.last_step == Some(0)
    }

    /// Appends an event, completely or not at all.
    ///
    /// # Errors
    /// A file system error. The next call tries again.
    pub fn append(&mut self, unix_seconds: f64, step: u64, summary: Summary) -> io::Result<()> {
        let step = whole(step);
        let event = |step, what| record(&Event { wall_time: unix_seconds, step, what: Some(what) }.encode_to_vec());
        let mut bytes = Vec::new();
        if self.last_step.is_none_or(|last| step < last) {
            let first_dropped = self.resumed_at.map_or(step, |resumed_at| step.min(resumed_at.saturating_add(1)));
            bytes.extend(event(first_dropped, What::SessionLog(SessionLog { status: START })));
        }
        bytes.extend(event(step, What::Summary(summary.values)));
        self.log(unix_seconds)?.append(&bytes)?;
        self.last_step = Some(step);
        self.resumed_at = None;
        Ok(())
    }

    /// Returns the file; the first call creates it.
    fn log(&mut self, unix_seconds: f64) -> io::Result<&mut AppendLog> {
        let log = match self.log.take() {
            Some(log) => log,
            None => create(&self.folder, unix_seconds)?,
        };
        Ok(self.log.insert(log))
    }
}

/// Converts a step to the type in the format.
fn whole(step: u64) -> i64 {
    i64::try_from(step).unwrap_or(i64::MAX)
}

fn holds_event_files(folder: &Path) -> bool {
    let is_event_file = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().contains("tfevents"))
    };
    fs::read_dir(folder).is_ok_and(|mut entries| entries.any(is_event_file))
}

/// Creates a file that sorts after earlier files, since TensorBoard reads the files of a directory in name order.
fn create(folder: &Path, unix_seconds: f64) -> io::Result<AppendLog> {
    fs::create_dir_all(folder)?;
    let name = format!("events.out.tfevents.{unix_seconds:.6}.zerofleet.{}", std::process::id());
    let mut log = AppendLog::open(&folder.join(name))?;
    let version = What::FileVersion("brain.Event:2".to_owned());
    log.append(&record(&Event { wall_time: unix_seconds, step: 0, what: Some(version) }.encode_to_vec()))?;
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events of all files in a directory, in reading order.
    fn events(folder: &Path) -> Vec<Event> {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let mut events = Vec::new();
        for path in paths {
            let bytes = fs::read(path).unwrap();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
                let payload = &rest[12..12 + length];
                assert_eq!(&rest[..length + 16], record(payload), "length and checksums");
                events.push(Event::decode(payload).unwrap());
                rest = &rest[length + 16..];
            }
        }
        events
    }

    /// Returns the step and content of every event.
    fn contents(folder: &Path) -> Vec<(i64, &'static str)> {
        let what = |event: Event| match event.what.unwrap() {
            What::FileVersion(version) => {
                assert_eq!(version, "brain.Event:2");
                (event.step, "version")
            }
            What::SessionLog(SessionLog { status }) => {
                assert_eq!(status, 1);
                (event.step, "start")
            }
            What::Summary(_) => (event.step, "summary"),
        };
        events(folder).into_iter().map(what).collect()
    }

    fn loss() -> Summary {
        Summary::new().scalar("loss", 0.5)
    }

    #[test]
    fn a_resumed_run_has_a_new_file_whose_first_event_drops_later_ones_of_earlier_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("learner");
        let mut first = EventFile::new(path.clone());
        assert!(first.is_at_start());
        [0, 5, 5, 9].into_iter().for_each(|step| first.append(1000.25, step, loss()).unwrap());
        let mut second = EventFile::new(path.clone());
        assert!(!first.is_at_start() && !second.is_at_start());
        [7, 8].into_iter().for_each(|step| second.append(1001.5, step, loss()).unwrap());
        // A checkpoint was restored within the process.
        second.append(1002.0, 3, loss()).unwrap();
        let of_first = [(0, "version"), (0, "summary"), (5, "summary"), (5, "summary"), (9, "summary")];
        let of_second = [(0, "version"), (7, "start"), (7, "summary"), (8, "summary"), (3, "start"), (3, "summary")];
        assert_eq!(contents(&path), [&of_first[..], &of_second].concat());
    }

    #[test]
    fn a_process_that_resumed_from_an_earlier_step_drops_what_was_written_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = || EventFile::new(folder.path().to_owned()).resumed_at(5);
        [2, 9].into_iter().for_each(|step| EventFile::new(folder.path().to_owned()).append(1.0, step, loss()).unwrap());
        let mut resumed = file();
        [8, 9].into_iter().for_each(|step| resumed.append(2.0, step, loss()).unwrap());
        let resumed = [(0, "version"), (6, "start"), (8, "summary"), (9, "summary")];
        assert_eq!(contents(folder.path())[contents(folder.path()).len() - 4..], resumed);
        // An event with this step replaces the step.
        file().append(3.0, 5, loss()).unwrap();
        assert_eq!(contents(folder.path())[contents(folder.path()).len() - 2..], [(5, "start"), (5, "summary")]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_fails_events_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("learner");
        fs::write(&path, "a file in the way").unwrap();
        let mut file = EventFile::new(path.clone());
        assert!(file.append(1.0, 4, loss()).is_err() && file.append(2.0, 5, loss()).is_err());
        fs::remove_file(&path).unwrap();
        file.append(3.0, 6, loss()).unwrap();
        assert_eq!(contents(&path), [(0, "version"), (6, "summary")]);
    }

    #[test]
    fn an_event_holds_its_time_scalars_histograms_and_settings() {
        let folder = tempfile::tempdir().unwrap();
        let settings = serde_json::json!({ "learner": { "batch_size": 8 } });
        let summary =
            loss().histogram("weights", &[1.0, 2.0]).histogram("nothing", &[]).settings("run", &settings, 7.0);
        EventFile::new(folder.path().to_owned()).append(7.0, 1, summary).unwrap();
        let event = events(folder.path()).pop().unwrap();
        let Some(What::Summary(values)) = event.what else { panic!("{event:?}") };
        let tags: Vec<&str> = values.value.iter().map(|value| value.tag.as_str()).collect();
        assert_eq!((event.wall_time, tags), (7.0, vec!["loss", "weights", "_hparams_/session_start_info"]));
        assert_eq!(values.value[0].simple_value, Some(0.5));
        assert_eq!(values.value[1].histo.as_ref().unwrap().num, 2.0);
    }
}
