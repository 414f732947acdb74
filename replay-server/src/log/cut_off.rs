//! Keeps the bytes that a start cuts off segments in separate files, for an operator to examine.
//!
//! Most hold the first part of a commit that a crash interrupted and that was never acknowledged. A last record with
//! a flipped bit looks the same, and may have been acknowledged.

use std::io;

use super::{SegmentNumber, Volume};

/// Maximum number of files. New files replace the oldest.
const FILES_MAX: usize = 8;

/// Returns the file name for the bytes cut off at `offset` in the file `segment`.
pub(super) fn file_name(segment: &str, offset: usize) -> String {
    format!("{segment}.{offset:010}.cut")
}

fn is_cut_off(name: &str) -> bool {
    let position = name.strip_suffix(".cut").and_then(|position| position.rsplit_once('.'));
    position.is_some_and(|(segment, _)| SegmentNumber::from_file_name(segment).is_some())
}

/// Writes `bytes`, the part of a segment file from `offset`, durably to a separate file.
pub(super) fn keep<V: Volume>(volume: &V, segment: &str, offset: usize, bytes: &[u8]) -> io::Result<()> {
    let name = file_name(segment, offset);
    let mut others: Vec<String> = volume.list()?;
    others.retain(|other| is_cut_off(other) && *other != name);
    // The numbers in the names have a fixed number of digits.
    others.sort_unstable();
    let excess = (others.len() + 1).saturating_sub(FILES_MAX);
    // A full disk must not cost the older files too.
    volume.replace(&name, bytes)?;
    others[..excess].iter().try_for_each(|oldest| volume.remove(oldest))
}
