//! Finds texts in a stream of bytes that does not fit in memory. Libraries for searching streams are not used, because
//! they skip a match that overlaps another.

use std::collections::BTreeSet;
use std::io::{self, Read};

const PIECE_BYTES: usize = 1 << 20;

/// Returns the needles that occur in the stream, reading it once. Each needle has at least two bytes.
///
/// # Errors
/// The reader fails.
pub fn found(mut stream: impl Read, needles: &[String]) -> io::Result<BTreeSet<&str>> {
    let longest = needles.iter().map(String::len).max().unwrap_or(0);
    // First byte pairs of the needles: a single look-up excludes nearly every offset.
    let mut begins = vec![false; 1 << 16];
    for needle in needles {
        begins[pair(needle.as_bytes())] = true;
    }
    let mut found = BTreeSet::new();
    let mut bytes = vec![0; longest + PIECE_BYTES];
    let mut held = 0;
    loop {
        let read = stream.read(&mut bytes[held..])?;
        if read == 0 {
            return Ok(found);
        }
        held += read;
        for (at, two) in bytes[..held].windows(2).enumerate() {
            if begins[pair(two)] {
                let rest = &bytes[at..held];
                found.extend(needles.iter().filter(|needle| rest.starts_with(needle.as_bytes())).map(String::as_str));
            }
        }
        // The end of the piece may be the start of a needle.
        let kept = held.min(longest.saturating_sub(1));
        bytes.copy_within(held - kept..held, 0);
        held = kept;
    }
}

fn pair(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns at most a fixed number of bytes at a time.
    struct ChunkedReader<'a>(&'a [u8], usize);

    impl Read for ChunkedReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn a_text_is_found_wherever_the_pieces_of_a_stream_end() {
        let needles = ["secret", "secrets", "cretin", "absent"].map(str::to_owned);
        let haystack = b"\0\xffsecsecretsecret\0secrecretin";
        for piece in 1..=haystack.len() {
            let found = found(ChunkedReader(haystack, piece), &needles).unwrap();
            assert_eq!(found.into_iter().collect::<Vec<_>>(), ["cretin", "secret", "secrets"], "pieces of {piece}");
        }
    }

    #[test]
    fn an_empty_stream_or_an_empty_list_of_texts_yields_no_match() {
        assert!(found(&b""[..], &["aa".to_owned()]).unwrap().is_empty());
        assert!(found(&b"aa"[..], &[]).unwrap().is_empty());
    }
}
