//! Records the metrics of a run in `metrics.jsonl` and in TensorBoard's event file: protobuf events in length-prefixed,
//! checksummed records (TFRecord).

use std::fs;

use anyhow::Context;
use prost::Message;

use crate::append_log::AppendLog;
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
        lines.end_last_line().with_context(|| format!("append to {}", path.display()))?;
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
}
