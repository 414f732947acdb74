//! Frames: how a record lies in a segment file, and how to find the next one after damage.
//!
//! `length u32 | crc32c of the payload u32 | crc32c of these eight bytes u32 | payload`, little-endian. The header has
//! a checksum of its own, so a flipped bit in a length cannot swallow the records behind it.

use std::io;

/// Length, checksum of the payload, checksum of both.
pub const HEADER_BYTES: usize = 12;

/// Payloads are no longer than this; longer lengths are damage. Twice what a message may have.
pub const PAYLOAD_BYTES_MAX: usize = 32 << 20;

/// Appends a frame around `payload`.
///
/// # Errors
/// A payload over [`PAYLOAD_BYTES_MAX`], which could not be read back; `out` is as it was.
pub fn append(out: &mut Vec<u8>, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|&length| length as usize <= PAYLOAD_BYTES_MAX);
    let too_large = || io::Error::other(format!("a record of {} bytes is over {PAYLOAD_BYTES_MAX}", payload.len()));
    let length = length.ok_or_else(too_large)?;
    let start = out.len();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let header = crc32c::crc32c(&out[start..start + 8]);
    out.extend_from_slice(&header.to_le_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

/// What a segment's bytes hold.
#[derive(Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// Whole frames in order: offset of the frame and its payload.
    pub frames: Vec<(usize, &'a [u8])>,
    /// Damage with whole frames behind it.
    pub damage: Vec<Damage>,
    /// What lies behind the last whole frame, if anything does.
    pub tail: Option<Damage>,
}

/// A stretch of bytes that is no frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins.
    pub offset: usize,
    /// How long it is.
    pub length: usize,
    /// What is wrong with it.
    pub fault: Fault,
}

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file ends inside the header or the payload: a write that was cut short.
    #[error("a record that was not written to its end")]
    Torn,
    /// The header does not match its checksum.
    #[error("a record whose header does not match its checksum")]
    Header,
    /// The payload does not match its checksum.
    #[error("a record whose content does not match its checksum")]
    Payload,
}

/// Finds every whole frame; what is damaged is skipped and told.
pub fn scan(bytes: &[u8]) -> Scan<'_> {
    let mut scan = Scan { frames: Vec::new(), damage: Vec::new(), tail: None };
    let mut offset = 0;
    while offset < bytes.len() {
        match frame_at(bytes, offset) {
            Ok(payload) => {
                scan.frames.push((offset, payload));
                offset += HEADER_BYTES + payload.len();
            }
            Err(fault) => {
                let next = (offset + 1..bytes.len()).find(|&next| frame_at(bytes, next).is_ok());
                let end = next.unwrap_or(bytes.len());
                let damage = Damage { offset, length: end - offset, fault };
                match next {
                    Some(_) => scan.damage.push(damage),
                    None => scan.tail = Some(damage),
                }
                offset = end;
            }
        }
    }
    scan
}

fn frame_at(bytes: &[u8], offset: usize) -> Result<&[u8], Fault> {
    let (header, rest) = bytes[offset..].split_at_checked(HEADER_BYTES).ok_or(Fault::Torn)?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let length = word(0) as usize;
    if crc32c::crc32c(&header[..8]) != word(8) || length > PAYLOAD_BYTES_MAX {
        return Err(Fault::Header);
    }
    let payload = rest.get(..length).ok_or(Fault::Torn)?;
    if crc32c::crc32c(payload) == word(4) { Ok(payload) } else { Err(Fault::Payload) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (Vec<u8>, [&'static [u8]; 3]) {
        let payloads: [&[u8]; 3] = [b"first record", b"second", b"the third one"];
        let mut bytes = Vec::new();
        payloads.iter().for_each(|payload| append(&mut bytes, payload).unwrap());
        (bytes, payloads)
    }

    #[test]
    fn what_is_appended_is_found() {
        let (bytes, payloads) = three();
        let scan = scan(&bytes);
        assert_eq!(scan.frames.iter().map(|(_, payload)| *payload).collect::<Vec<_>>(), payloads);
        assert_eq!((scan.damage, scan.tail), (Vec::new(), None));
    }

    #[test]
    fn a_file_cut_anywhere_keeps_its_whole_frames_and_names_the_torn_one() {
        let (bytes, _) = three();
        let ends: Vec<usize> =
            scan(&bytes).frames.iter().map(|(at, payload)| at + HEADER_BYTES + payload.len()).collect();
        for length in 0..bytes.len() {
            let scan = scan(&bytes[..length]);
            let whole = ends.iter().filter(|&&end| end <= length).count();
            assert_eq!(scan.frames.len(), whole, "cut at {length}");
            let end = if whole == 0 { 0 } else { ends[whole - 1] };
            let torn = (length > end).then_some(Damage { offset: end, length: length - end, fault: Fault::Torn });
            assert_eq!(scan.tail, torn, "cut at {length}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_costs_the_record_it_is_in_and_no_other() {
        let (bytes, payloads) = three();
        let starts: Vec<usize> = scan(&bytes).frames.iter().map(|(offset, _)| *offset).collect();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let hit = starts.iter().rposition(|&start| start <= at).unwrap();
            let scan = scan(&damaged);
            let mut expected = payloads.to_vec();
            expected.remove(hit);
            assert_eq!(scan.frames.iter().map(|(_, payload)| *payload).collect::<Vec<_>>(), expected, "flipped {at}");
            let named: Vec<usize> = scan.damage.iter().chain(&scan.tail).map(|damage| damage.offset).collect();
            assert_eq!(named, [starts[hit]], "flipped {at}");
        }
    }

    #[test]
    fn a_payload_that_could_not_be_read_back_is_not_written() {
        let mut bytes = Vec::new();
        append(&mut bytes, &vec![0; PAYLOAD_BYTES_MAX + 1]).unwrap_err();
        assert!(bytes.is_empty());
        let largest = vec![0; PAYLOAD_BYTES_MAX];
        append(&mut bytes, &largest).unwrap();
        assert!(scan(&bytes).frames == [(0, largest.as_slice())], "the largest payload is read back");
    }
}
