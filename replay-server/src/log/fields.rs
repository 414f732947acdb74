//! Encodes and decodes integers, ids and text in record payloads.

use std::io;

use experience::TrajectoryId;

/// The zstd level. A trajectory of Connect Four is mostly floats: levels 1 and 3 both reduce 1551 bytes to 1044, and
/// level 1 needs less memory in each compressing thread.
pub(super) const COMPRESSION_LEVEL: i32 = 1;

/// The reason why a payload with a valid checksum cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadableRecord(pub String);

/// The part of a payload that has not been read yet.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    /// Reads the next `BYTES` bytes.
    pub(super) fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], UnreadableRecord> {
        let short = || UnreadableRecord("the record is too short".to_owned());
        let (taken, rest) = self.0.split_first_chunk::<BYTES>().ok_or_else(short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn word(&mut self) -> Result<u64, UnreadableRecord> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn id(&mut self) -> Result<TrajectoryId, UnreadableRecord> {
        Ok(TrajectoryId { actor: self.word()?, epoch: self.word()?, sequence: self.word()? })
    }

    pub(super) fn text(&mut self, bytes_max: usize) -> Result<String, UnreadableRecord> {
        let length = u32::from_le_bytes(self.take()?) as usize;
        let fits = self.0.split_at_checked(length).filter(|_| length <= bytes_max);
        let (text, rest) = fits.ok_or_else(|| UnreadableRecord(format!("a text of {length} bytes is too long")))?;
        self.0 = rest;
        let text = std::str::from_utf8(text).map_err(|error| UnreadableRecord(error.to_string()))?;
        Ok(text.to_owned())
    }

    /// Checks that the whole payload has been read.
    pub(super) fn end(&self) -> Result<(), UnreadableRecord> {
        if self.0.is_empty() { Ok(()) } else { Err(UnreadableRecord("the record is too long".to_owned())) }
    }
}

pub(super) fn put_id(out: &mut Vec<u8>, TrajectoryId { actor, epoch, sequence }: TrajectoryId) {
    [actor, epoch, sequence].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}

pub(super) fn put_words<const WORDS: usize>(out: &mut Vec<u8>, kind: u8, words: [u64; WORDS]) {
    out.push(kind);
    words.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str, bytes_max: usize) -> io::Result<()> {
    let length = u32::try_from(text.len()).ok().filter(|&length| length as usize <= bytes_max);
    let length = length.ok_or_else(|| too_large("a text", text.len(), bytes_max))?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

pub(super) fn too_large(what: &str, size: usize, most: usize) -> io::Error {
    io::Error::other(format!("{what} of {size} exceeds {most}"))
}
