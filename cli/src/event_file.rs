//! Writes TensorBoard event files: protobuf events in length-prefixed, checksummed records (TFRecord).

use std::io;
use std::path::Path;

use prost::Message;

use crate::append_log::AppendLog;

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

/// An open event file.
#[derive(Debug)]
pub struct EventFile {
    records: AppendLog,
}

impl EventFile {
    /// Creates a new file in `folder`; TensorBoard reads all files of a folder as one run.
    pub fn create(folder: &Path, unix_seconds: f64) -> io::Result<Self> {
        let name = format!("events.out.tfevents.{unix_seconds:.0}.zerofleet.{}", std::process::id());
        let mut events = Self { records: AppendLog::open(&folder.join(name))? };
        let version = Some("brain.Event:2".to_owned());
        events.append(&Event { wall_time: unix_seconds, step: 0, file_version: version, summary: None })?;
        Ok(events)
    }

    /// Appends one value of every scalar.
    pub fn scalars(&mut self, unix_seconds: f64, step: i64, scalars: &[(String, f64)]) -> io::Result<()> {
        // The format has single precision, which is enough for a diagram.
        let value = scalars.iter().map(|(tag, value)| Scalar { tag: tag.clone(), simple_value: *value as f32 });
        let summary = Some(Summary { value: value.collect() });
        self.append(&Event { wall_time: unix_seconds, step, file_version: None, summary })
    }

    fn append(&mut self, event: &Event) -> io::Result<()> {
        self.records.append(&record(&event.encode_to_vec()))
    }
}

/// Encodes a record: length, its checksum, the payload, its checksum; all little-endian.
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
