use std::ops::Range;

use crate::Path;
use crate::convolution::rows_max;
use crate::shape::evenly;

/// Positions of a batch, split into parts for threads. The split depends on the batch and the network alone, so that
/// the number of threads changes no result.
#[derive(Debug, Clone)]
pub(crate) struct Parts(Vec<Range<usize>>);

/// Minimum activations of a part, in floats, unless one tile has more: enough for a few microseconds of work.
const FLOATS: usize = 8192;

/// Returns the rows per part that fill tiles of a path: two tiles of sixteen on AMX, one register tile elsewhere.
pub(crate) fn rows_of_parts(path: Path) -> usize {
    if path == Path::Amx { 32 } else { rows_max(path) }
}

impl Parts {
    /// Splits `positions` positions into parts that fill tiles of `rows` rows; a position has at most `position`
    /// activations.
    pub(crate) fn new(positions: usize, rows: usize, position: usize) -> Self {
        let tiles = (FLOATS / (rows * position).max(1)).max(1);
        Self(evenly(positions, rows * tiles).collect())
    }

    /// Returns the number of positions.
    pub(crate) fn positions(&self) -> usize {
        self.0.last().map_or(0, |part| part.end)
    }

    /// Iterates over the positions of each part.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        self.0.iter().cloned()
    }

    /// Splits a buffer with `position` numbers per position.
    pub(crate) fn split<'a>(&self, buffer: &'a mut [f32], position: usize) -> Vec<&'a mut [f32]> {
        assert_eq!(buffer.len(), self.positions() * position, "numbers of each position");
        let mut rest = buffer;
        let part = |part: &Range<usize>| {
            let (first, others) = std::mem::take(&mut rest).split_at_mut(part.len() * position);
            rest = others;
            first
        };
        self.0.iter().map(part).collect()
    }
}
