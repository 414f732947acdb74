//! Which of some texts are in a stream of bytes that is too long to hold. By hand, because the search of streams that libraries have
//! passes over a text that overlaps another one.

use std::collections::BTreeSet;
use std::io::{self, Read};

const PIECE_BYTES: usize = 1 << 20;

/// Those of `needles` that are in what is read, in one pass. Each has two bytes or more.
///
/// # Errors
/// Those of the reader.
pub fn found(mut stream: impl Read, needles: &[String]) -> io::Result<BTreeSet<&str>> {
    let longest = needles.iter().map(String::len).max().unwrap_or(0);
    // Which pairs of bytes a needle begins with: nearly every place is done with after one look.
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
        // The end may be the beginning of a needle.
        let kept = held.min(longest.saturating_sub(1));
        bytes.copy_within(held - kept..held, 0);
        held = kept;
    }
}

fn pair(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}

#[cfg(test)]
mod tests;
