//! Files with the bytes that starts have cut off segments, for an operator to examine.
//!
//! Most hold the beginning of a commit that a crash interrupted, of which nothing was acknowledged. A last record with
//! a flipped bit looks the same, and may have been acknowledged.

use std::io;

use super::{SegmentNumber, Volume};

/// The number of files that are kept; the oldest ones make room.
const FILES_MAX: usize = 8;

/// Returns the name of the file with the bytes that were cut off a segment's file at this offset.
pub(super) fn file_name(segment: &str, offset: usize) -> String {
    format!("{segment}.{offset:010}.cut")
}

fn is_cut_off(name: &str) -> bool {
    let position = name.strip_suffix(".cut").and_then(|position| position.rsplit_once('.'));
    position.is_some_and(|(segment, _)| SegmentNumber::from_file_name(segment).is_some())
}

/// Makes the bytes from `offset` of a segment's file durable in a file of their own.
pub(super) fn keep<V: Volume>(volume: &V, segment: &str, offset: usize, bytes: &[u8]) -> io::Result<()> {
    let name = file_name(segment, offset);
    let mut others: Vec<String> = volume.list()?;
    others.retain(|other| is_cut_off(other) && *other != name);
    // The numbers in the names have a fixed number of digits.
    others.sort_unstable();
    let excess = (others.len() + 1).saturating_sub(FILES_MAX);
    others[..excess].iter().try_for_each(|oldest| volume.remove(oldest))?;
    volume.replace(&name, bytes)
}
