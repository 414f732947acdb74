//! Records the metrics of a run in `metrics.jsonl` and in TensorBoard's event file: protobuf events in length-prefixed,
//! checksummed records (TFRecord).

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Context;
use prost::Message;

use crate::run_metrics::RunMetrics;
use fleet::run_directory::RunDirectory;

/// The open metric files of a run.
#[derive(Debug)]
pub(crate) struct Record {
    lines: AppendLog,
    events: AppendLog,
}

impl Record {
    /// Opens the run's `metrics.jsonl` for appending, and creates a new event file.
    pub(crate) fn open(run: &RunDirectory, unix_seconds: f64) -> anyhow::Result<Self> {
        let path = run.metrics();
        let mut lines = AppendLog::open(&path).with_context(|| format!("open {}", path.display()))?;
        end_last_line(&mut lines).with_context(|| format!("append to {}", path.display()))?;
        // TensorBoard reads all event files of a folder as one run.
        let name = format!("events.out.tfevents.{unix_seconds:.0}.zerofleet.{}", std::process::id());
        let version = Some("brain.Event:2".to_owned());
        let first = Event { wall_time: unix_seconds, step: 0, file_version: version, summary: None };
        let events = AppendLog::open(&run.path().join(name)).and_then(|mut events| {
            events.append(&event_record(&first))?;
            Ok(events)
        });
        Ok(Self { lines, events: events.context("create the event file")? })
    }

    /// Appends one reading of the metrics.
    pub(crate) fn append(&mut self, readings: &RunMetrics) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(readings)?;
        line.push('\n');
        self.lines.append(line.as_bytes()).context("append to metrics.jsonl")?;
        // A diagram over training steps needs a step; readings before the first one count as step zero.
        let step = readings.steps.unwrap_or(0.0) as i64;
        // The format has single precision, which is enough for a diagram.
        let value = readings.scalars().into_iter().map(|(tag, value)| Scalar { tag, simple_value: value as f32 });
        let summary = Some(Summary { value: value.collect() });
        let event = Event { wall_time: readings.unix_seconds, step, file_version: None, summary };
        self.events.append(&event_record(&event)).context("append to the event file")
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
pub(crate) fn read(run: &RunDirectory) -> anyhow::Result<Vec<RunMetrics>> {
    let path = run.metrics();
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// `tensorflow.Event`, reduced to the fields of scalars.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

/// `tensorflow.Summary.Value`, reduced to the fields of scalars.
#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, tag = "2")]
    simple_value: f32,
}

/// Encodes an event as a record: length, its checksum, the payload, its checksum; all little-endian.
fn event_record(event: &Event) -> Vec<u8> {
    record(&event.encode_to_vec())
}

fn record(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(payload.len() + 16);
    record.extend_from_slice(&length);
    record.extend_from_slice(&masked_crc(&length).to_le_bytes());
    record.extend_from_slice(payload);
    record.extend_from_slice(&masked_crc(payload).to_le_bytes());
    record
}

/// Computes the masked CRC-32C of TFRecord, rotated and shifted so that data which contains checksums is protected as
/// well.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// An append-only file. A record that was written in part is truncated away.
#[derive(Debug)]
struct AppendLog {
    file: File,
    length: u64,
}

impl AppendLog {
    /// Opens the file at `path`, or creates it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).read(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Appends a record completely or not at all.
    ///
    /// # Errors
    /// An error of the file system; the file is unchanged.
    pub(crate) fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(record) {
            // Truncating needs no space. If it fails too, readers skip the torn record.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += record.len() as u64;
        Ok(())
    }

    /// Returns the last byte; `None` for an empty file.
    pub(crate) fn last_byte(&mut self) -> io::Result<Option<u8>> {
        if self.length == 0 {
            return Ok(None);
        }
        let mut last = [0];
        self.file.seek(SeekFrom::End(-1))?;
        self.file.read_exact(&mut last)?;
        Ok(Some(last[0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the recorded times after a session that resumes with `before` in the file and writes once.
    fn times_after_appending_to(before: &str) -> Vec<f64> {
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
        assert_eq!(times_after_appending_to(""), [7.0]);
        assert_eq!(times_after_appending_to("{\"elapsed_seconds\": 5.0}\n"), [5.0, 7.0]);
    }

    #[test]
    fn a_line_cut_short_by_a_crash_does_not_damage_the_next() {
        assert_eq!(times_after_appending_to("{\"elapsed_seconds\": 5.0}\n{\"elapsed_sec"), [5.0, 7.0]);
    }

    /// The CRC-32C of these nine digits is 0xe3069283 (polynomial of RFC 3720); the mask is applied by hand.
    #[test]
    fn checksums_are_masked_crc32c() {
        assert_eq!(masked_crc(b"123456789"), 0xc78a_b0e5);
    }

    #[test]
    fn a_record_holds_length_payload_and_both_checksums() {
        let record = record(b"abc");
        assert_eq!(record.len(), 8 + 4 + 3 + 4);
        assert_eq!(record[..8], 3_u64.to_le_bytes());
        assert_eq!(record[8..12], masked_crc(&3_u64.to_le_bytes()).to_le_bytes());
        assert_eq!(record[12..15], *b"abc");
        assert_eq!(record[15..], masked_crc(b"abc").to_le_bytes());
    }

    /// File size limit (RLIMIT_FSIZE) of the whole test process; no other test of this crate writes files this large.
    const BYTES_MAX: u64 = 64 << 20;

    /// Returns a file that may grow by only `free` more bytes, up to [`BYTES_MAX`].
    fn nearly_full(path: &Path, free: u64) -> AppendLog {
        // SAFETY: plain numbers and a handler that ignores the signal; without it SIGXFSZ would end the process.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: BYTES_MAX, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        }
        // The file is sparse, so it takes no disk space.
        File::create(path).unwrap().set_len(BYTES_MAX - free).unwrap();
        AppendLog::open(path).unwrap()
    }

    #[test]
    fn a_record_that_does_not_fit_leaves_the_file_as_it_was_and_the_next_one_may_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let mut records = nearly_full(&path, 5);
        assert!(records.append(b"longer\n").is_err());
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES_MAX - 5);
        records.append(b"fit\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES_MAX - 1);
        assert_eq!(records.last_byte().unwrap(), Some(b'\n'));
    }
}
