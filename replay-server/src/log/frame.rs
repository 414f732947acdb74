//! Defines frames, the layout of records in a segment file, and finds the next intact frame after damage.
//!
//! A file starts with two copies of the prologue: `magic | format u32 | salt | crc32c u32`. Frames follow:
//! `length u32 | crc32c of the payload u32 | tag u64 | payload`. Integers are little-endian.
//!
//! The tag is a hash of length, checksum, segment number and offset, keyed with the salt of the segment. The salt
//! never leaves the process, so clients cannot send payload bytes that form a valid frame at any offset. A flipped
//! bit in a length cannot hide the records after it.

use std::io;

use super::SegmentNumber;
use crate::defect::{Defect, Planted};

/// Format of the files that this code writes and reads.
pub const FORMAT: u32 = 3;

/// Size of a frame header, in bytes: length, payload checksum, and tag.
pub const HEADER_BYTES: usize = 16;

/// Bytes before the first frame of a file: the prologue twice, so that one damaged sector does not make the file
/// unreadable.
pub const PROLOGUE_BYTES: usize = 2 * COPY_BYTES;

/// Maximum size of a payload, in bytes: twice the limit of a message. A larger length counts as damage.
pub const PAYLOAD_BYTES_MAX: usize = 32 << 20;

const MAGIC: [u8; 8] = *b"zfreplay";
const SALT_AT: usize = MAGIC.len() + size_of::<u32>();
const CHECKSUM_AT: usize = SALT_AT + size_of::<Salt>();
const COPY_BYTES: usize = CHECKSUM_AT + size_of::<u32>();

/// Random key for the tags of a segment.
pub type Salt = [u8; 32];

/// The size of a frame, and its payload unless damaged.
type FrameAt<'a> = Result<(usize, Option<&'a [u8]>), Fault>;

/// The prologue of one segment, required to read and write frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prologue {
    number: SegmentNumber,
    salt: Salt,
}

impl Prologue {
    /// Returns the prologue of a new segment.
    pub fn new(number: SegmentNumber, salt: Salt) -> Self {
        Self { number, salt }
    }

    /// Encodes the first [`PROLOGUE_BYTES`] of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut copy = [&MAGIC[..], &FORMAT.to_le_bytes(), &self.salt].concat();
        copy.extend_from_slice(&self.checksum().to_le_bytes());
        copy.repeat(2)
    }

    /// Reads the prologue of segment `number` from the start of the file.
    ///
    /// # Errors
    /// The file is of another format, is too short, or neither copy is intact.
    pub fn decode(number: SegmentNumber, bytes: &[u8]) -> Result<Self, Unreadable> {
        if let Some(format) = older_format(bytes) {
            return Err(Unreadable::Format(format));
        }
        let Some(bytes) = bytes.get(..PROLOGUE_BYTES) else { return Err(Unreadable::Torn) };
        let (copies, _) = bytes.as_chunks::<COPY_BYTES>();
        let whole = copies.iter().find_map(|copy| {
            let salt = Salt::try_from(&copy[SALT_AT..CHECKSUM_AT]).ok()?;
            let prologue = Self::new(number, salt);
            let is_whole = copy[..MAGIC.len()] == MAGIC
                && format_of(copy) == FORMAT
                && copy[CHECKSUM_AT..] == prologue.checksum().to_le_bytes();
            is_whole.then_some(prologue)
        });
        let newer = || {
            let formats = copies.iter().filter(|copy| copy[..MAGIC.len()] == MAGIC).map(format_of);
            // A single copy with another format is a flipped bit.
            let formats: Vec<u32> = formats.collect();
            if let [first, second] = formats[..] { (first == second && first != FORMAT).then_some(first) } else { None }
        };
        whole.ok_or_else(|| newer().map_or(Unreadable::Prologue, Unreadable::Format))
    }

    /// Appends a frame around `payload` to `out`; the first byte of `out` will be at offset `base` in the file.
    ///
    /// # Errors
    /// The payload is larger than [`PAYLOAD_BYTES_MAX`] and could not be read back; `out` is unchanged.
    pub fn append(&self, out: &mut Vec<u8>, base: u64, payload: &[u8]) -> io::Result<()> {
        self.append_checked(out, base, payload, crc32c::crc32c(payload))
    }

    /// Appends a frame around `payload` like [`Prologue::append`], with the precomputed `checksum`.
    ///
    /// # Errors
    /// The same errors as [`Prologue::append`].
    pub fn append_checked(&self, out: &mut Vec<u8>, base: u64, payload: &[u8], checksum: u32) -> io::Result<()> {
        let length = u32::try_from(payload.len()).ok().filter(|&length| length as usize <= PAYLOAD_BYTES_MAX);
        let too_large = || io::Error::other(format!("a record of {} bytes exceeds {PAYLOAD_BYTES_MAX}", payload.len()));
        let length = length.ok_or_else(too_large)?;
        let tag = self.tag(base + out.len() as u64, length, checksum);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(payload);
        Ok(())
    }

    fn checksum(&self) -> u32 {
        let fields = [&MAGIC[..], &FORMAT.to_le_bytes(), &self.salt, &self.number.0.to_le_bytes()];
        crc32c::crc32c(&fields.concat())
    }

    fn tag(&self, offset: u64, length: u32, checksum: u32) -> u64 {
        let mut input = [0; 24];
        input[..8].copy_from_slice(&self.number.0.to_le_bytes());
        input[8..16].copy_from_slice(&offset.to_le_bytes());
        input[16..20].copy_from_slice(&length.to_le_bytes());
        input[20..].copy_from_slice(&checksum.to_le_bytes());
        let hash = blake3::keyed_hash(&self.salt, &input);
        let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
        u64::from_le_bytes(*first)
    }

    /// Returns the size of the frame at `offset`, and the payload if intact.
    fn frame_at<'a>(&self, bytes: &'a [u8], offset: usize) -> FrameAt<'a> {
        let (header, rest) = bytes[offset..].split_at_checked(HEADER_BYTES).ok_or(Fault::Torn)?;
        let (words, _) = header.as_chunks::<4>();
        let (length, checksum) = (u32::from_le_bytes(words[0]), u32::from_le_bytes(words[1]));
        // The costly tag is computed only if the length is possible.
        if length as usize > PAYLOAD_BYTES_MAX || header[8..] != self.tag(offset as u64, length, checksum).to_le_bytes()
        {
            return Err(Fault::Header);
        }
        let payload = rest.get(..length as usize);
        let is_whole = payload.is_some_and(|payload| crc32c::crc32c(payload) == checksum);
        Ok((HEADER_BYTES + length as usize, payload.filter(|_| is_whole)))
    }
}

/// Returns the format of a file in format 1 or 2. Such a file starts with a frame of the head: `length | crc32c |
/// crc32c of these eight bytes | 1 | format`.
fn older_format(bytes: &[u8]) -> Option<u32> {
    let (header, payload) = bytes.split_at_checked(12)?;
    let is_header = header[8..] == crc32c::crc32c(&header[..8]).to_le_bytes();
    match *payload {
        [1, format, ..] if is_header => Some(format.into()),
        _ => None,
    }
}

fn format_of(copy: &[u8; COPY_BYTES]) -> u32 {
    let format = copy[MAGIC.len()..SALT_AT].try_into();
    format.map_or(0, u32::from_le_bytes)
}

/// The reason why no frame in a file can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The file is of another format.
    #[error("format {0}, this program reads format {FORMAT}")]
    Format(u32),
    /// The file ends before the first frame, because its creation was interrupted.
    #[error("an incomplete prologue")]
    Torn,
    /// Both copies of the prologue have checksum mismatches.
    #[error("a prologue with a wrong checksum")]
    Prologue,
}

/// The content of a segment, as found by [`scan`].
#[derive(Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The prologue of the segment.
    pub prologue: Prologue,
    /// Intact frames in order: offset and payload of each frame.
    pub frames: Vec<(usize, &'a [u8])>,
    /// Damaged ranges that intact frames follow.
    pub damage: Vec<Damage>,
    /// The bytes after the last intact frame, if there are any.
    pub tail: Option<Damage>,
}

/// A range of bytes that is not a valid frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the first byte.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
    /// The fault at the first byte.
    pub fault: Fault,
}

/// The reason why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file ends inside the header or the payload: an incomplete write.
    #[error("an incomplete record")]
    Torn,
    /// The header does not match the tag.
    #[error("a record header with a wrong checksum")]
    Header,
    /// The payload does not match the checksum.
    #[error("a record with a wrong checksum")]
    Payload,
}

/// Finds every intact frame of segment `number`; skips damage and returns it too.
///
/// The payload of a frame with an intact header is never searched for frames, even if the payload is damaged.
///
/// # Errors
/// No frame can be read.
pub fn scan(number: SegmentNumber, bytes: &[u8]) -> Result<Scan<'_>, Unreadable> {
    scan_with(number, bytes, Planted::default())
}

/// Scans like [`scan`], but with the planted defect.
pub(super) fn scan_with(number: SegmentNumber, bytes: &[u8], planted: Planted) -> Result<Scan<'_>, Unreadable> {
    let prologue = Prologue::decode(number, bytes)?;
    let mut scan = Scan { prologue, frames: Vec::new(), damage: Vec::new(), tail: None };
    let mut offset = PROLOGUE_BYTES;
    // The start of the current damage, which no intact frame has followed yet.
    let mut damaged: Option<(usize, Fault)> = None;
    while offset < bytes.len() {
        let at = prologue.frame_at(bytes, offset);
        let at = if planted.is(Defect::ResynchronisedInside) { untagged(bytes, offset, at) } else { at };
        let fault = match at {
            Ok((extent, Some(payload))) => {
                let damage = damaged.take();
                let damage = damage.map(|(start, fault)| Damage { offset: start, length: offset - start, fault });
                scan.damage.extend(damage);
                scan.frames.push((offset, payload));
                offset += extent;
                continue;
            }
            Ok((extent, None)) => {
                let end = offset + extent;
                let fault = if end > bytes.len() { Fault::Torn } else { Fault::Payload };
                damaged.get_or_insert((offset, fault));
                offset = end.min(bytes.len());
                continue;
            }
            Err(fault) => fault,
        };
        damaged.get_or_insert((offset, fault));
        offset += 1;
    }
    scan.tail = damaged.map(|(start, fault)| Damage { offset: start, length: bytes.len() - start, fault });
    Ok(scan)
}

/// Returns a frame as the planted defect does, which follows an earlier format: any bytes with a matching checksum are
/// a frame, and damaged payloads are searched for frames.
fn untagged<'a>(bytes: &'a [u8], offset: usize, tagged: FrameAt<'a>) -> FrameAt<'a> {
    match tagged {
        Ok((_, Some(_))) => tagged,
        Ok((_, None)) => Err(Fault::Payload),
        Err(fault) => {
            let (header, rest) = bytes[offset..].split_at_checked(HEADER_BYTES).ok_or(fault)?;
            let (words, _) = header.as_chunks::<4>();
            let length = u32::from_le_bytes(words[0]) as usize;
            let payload = rest.get(..length).filter(|payload| !payload.is_empty()).ok_or(fault)?;
            let is_whole = crc32c::crc32c(payload) == u32::from_le_bytes(words[1]);
            if is_whole { Ok((HEADER_BYTES + length, Some(payload))) } else { Err(fault) }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NUMBER: SegmentNumber = SegmentNumber(7);
    const PROLOGUE: Prologue = Prologue { number: NUMBER, salt: [3; 32] };
    const PAYLOADS: [&[u8]; 3] = [b"first record", b"second", b"the third one"];

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut bytes = PROLOGUE.encode();
        payloads.iter().for_each(|payload| PROLOGUE.append(&mut bytes, 0, payload).unwrap());
        bytes
    }

    fn payloads<'a>(scan: &Scan<'a>) -> Vec<&'a [u8]> {
        scan.frames.iter().map(|(_, payload)| *payload).collect()
    }

    #[test]
    fn appended_payloads_are_found_by_a_scan() {
        let bytes = file(&PAYLOADS);
        let scan = scan(NUMBER, &bytes).unwrap();
        assert_eq!(payloads(&scan), PAYLOADS);
        assert_eq!((scan.damage, scan.tail), (Vec::new(), None));
    }

    #[test]
    fn a_file_cut_anywhere_keeps_its_whole_frames_and_names_the_torn_one() {
        let bytes = file(&PAYLOADS);
        let whole = scan(NUMBER, &bytes).unwrap();
        let ends: Vec<usize> = whole.frames.iter().map(|(at, payload)| at + HEADER_BYTES + payload.len()).collect();
        for length in 0..bytes.len() {
            if length < PROLOGUE_BYTES {
                assert_eq!(scan(NUMBER, &bytes[..length]), Err(Unreadable::Torn), "cut at {length}");
                continue;
            }
            let scan = scan(NUMBER, &bytes[..length]).unwrap();
            let whole = ends.iter().filter(|&&end| end <= length).count();
            assert_eq!(scan.frames.len(), whole, "cut at {length}");
            let end = if whole == 0 { PROLOGUE_BYTES } else { ends[whole - 1] };
            let torn = (length > end).then_some((end, length - end));
            assert_eq!(scan.tail.map(|tail| (tail.offset, tail.length)), torn, "cut at {length}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_costs_the_record_it_is_in_and_no_other() {
        let bytes = file(&PAYLOADS);
        let starts: Vec<usize> = scan(NUMBER, &bytes).unwrap().frames.iter().map(|(offset, _)| *offset).collect();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let scan = scan(NUMBER, &damaged).unwrap();
            let hit = starts.iter().rposition(|&start| start <= at);
            let mut expected = PAYLOADS.to_vec();
            hit.map(|hit| expected.remove(hit));
            assert_eq!(payloads(&scan), expected, "flipped {at}");
            let named: Vec<usize> = scan.damage.iter().chain(&scan.tail).map(|damage| damage.offset).collect();
            assert_eq!(named, hit.map(|hit| starts[hit]).as_slice(), "flipped {at}");
        }
    }

    #[test]
    fn a_payload_that_could_not_be_read_back_is_not_written() {
        let mut bytes = PROLOGUE.encode();
        PROLOGUE.append(&mut bytes, 0, &vec![0; PAYLOAD_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(bytes.len(), PROLOGUE_BYTES);
        let largest = vec![0; PAYLOAD_BYTES_MAX];
        PROLOGUE.append(&mut bytes, 0, &largest).unwrap();
        let scan = scan(NUMBER, &bytes).unwrap();
        assert!(scan.frames == [(PROLOGUE_BYTES, largest.as_slice())], "the largest payload is read back");
    }

    #[test]
    fn files_of_older_and_newer_formats_are_refused_with_their_version() {
        for format in [1, 2] {
            let payload = [1, format, 77];
            let mut old = (payload.len() as u32).to_le_bytes().to_vec();
            old.extend(crc32c::crc32c(&payload).to_le_bytes());
            old.extend(crc32c::crc32c(&old).to_le_bytes());
            old.extend(payload);
            assert_eq!(scan(NUMBER, &old), Err(Unreadable::Format(format.into())));
        }
        let mut newer = file(&PAYLOADS);
        newer[MAGIC.len()] += 1;
        newer[COPY_BYTES + MAGIC.len()] += 1;
        assert_eq!(scan(NUMBER, &newer), Err(Unreadable::Format(FORMAT + 1)));
    }

    #[test]
    fn a_segment_is_read_under_its_own_number_only() {
        assert_eq!(scan(SegmentNumber(8), &file(&PAYLOADS)), Err(Unreadable::Prologue));
    }

    proptest! {
        /// The salt exists only in the file: a client may send any bytes, including whole files with valid frames.
        #[test]
        fn no_frame_is_found_inside_the_extent_of_another(
            planted in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..4),
            salt in any::<[u8; 32]>(),
            offset in 0..300_u64,
            flipped in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
        ) {
            prop_assume!(salt != PROLOGUE.salt);
            let mut outer = Prologue::new(NUMBER, salt).encode();
            for payload in &planted {
                Prologue::new(NUMBER, salt).append(&mut outer, offset, payload).unwrap();
            }
            let mut bytes = file(&[b"before", &outer, b"behind"]);
            let at = flipped.index(bytes.len());
            bytes[at] ^= 0x20;
            bytes.truncate(cut.index(bytes.len()) + 1);
            let Ok(scan) = scan(NUMBER, &bytes) else { return Ok(()) };
            let known: [&[u8]; 3] = [b"before", &outer, b"behind"];
            for (_, payload) in &scan.frames {
                prop_assert!(known.contains(payload), "found {payload:?}");
            }
            // A damaged payload under an intact header is not searched, whatever the content.
            let mut inner = PROLOGUE.encode();
            inner.clear();
            let inside = PROLOGUE_BYTES + HEADER_BYTES;
            PROLOGUE.append(&mut inner, inside as u64, b"planted").unwrap();
            let mut bytes = file(&[&[inner.as_slice(), b"rest"].concat()]);
            *bytes.last_mut().unwrap() ^= 1;
            prop_assert_eq!(super::scan(NUMBER, &bytes).unwrap().frames, Vec::new());
        }
    }
}
