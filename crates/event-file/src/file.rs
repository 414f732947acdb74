use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use prost::Message as _;

use crate::messages::{Event, SessionLog, What};
use crate::record::record;
use crate::{AppendLog, Summary};

/// The status `START` of a session.
const START: i32 = 1;

/// The event file of one process in a folder, which TensorBoard shows as one run with the files before it.
///
/// It is created with the first event, so that a folder that cannot be written fails that event and not the process.
/// Steps of all files of a folder increase: where one is not after those before it, because the process resumed from an
/// earlier state, an event has readers drop the events from that step on.
#[derive(Debug)]
pub struct EventFile {
    folder: PathBuf,
    log: Option<AppendLog>,
    /// The step of the newest event; `None` if earlier files may hold any.
    last_step: Option<i64>,
    /// The last step of earlier files that is still valid, where it is known.
    resumed_at: Option<i64>,
}

impl EventFile {
    /// An event file in `folder`, which is created if needed. If the folder holds event files already, the first event
    /// of this one replaces what they hold from its step on.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        let last_step = if holds_event_files(&folder) { None } else { Some(0) };
        Self { folder, log: None, last_step, resumed_at: None }
    }

    /// Has the first event drop those of earlier files behind `step`, at which the process resumed.
    #[must_use]
    pub fn resumed_at(mut self, step: u64) -> Self {
        self.resumed_at = Some(whole(step));
        self
    }

    /// Returns whether no event is known to be of a step after 0: the run is new.
    #[must_use]
    pub fn is_at_start(&self) -> bool {
        self.last_step == Some(0)
    }

    /// Appends an event, completely or not at all.
    ///
    /// # Errors
    /// An error of the file system. The next call tries again.
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

    /// The file, which is created by the first call.
    fn log(&mut self, unix_seconds: f64) -> io::Result<&mut AppendLog> {
        let log = match self.log.take() {
            Some(log) => log,
            None => create(&self.folder, unix_seconds)?,
        };
        Ok(self.log.insert(log))
    }
}

/// A step in the type of the format.
fn whole(step: u64) -> i64 {
    i64::try_from(step).unwrap_or(i64::MAX)
}

fn holds_event_files(folder: &Path) -> bool {
    let is_event_file = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().contains("tfevents"))
    };
    fs::read_dir(folder).is_ok_and(|mut entries| entries.any(is_event_file))
}

/// Creates a file that sorts after earlier ones, since TensorBoard reads the files of a folder in the order of their
/// names.
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

    /// The events of all files of a folder, in the order in which they are read.
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

    /// What is in an event, with its step.
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
        // An event of the step itself replaces that step.
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
