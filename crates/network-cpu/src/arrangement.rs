use crate::KernelVariant;
use crate::planes::{Board, Layout, Line, TILE_ROWS};
use crate::product::Run;

/// Maximum activation bytes of a pass, so that they stay in the second-level cache next to the weights being read.
const PASS_BYTES: usize = 384 << 10;
/// The same for interleaved positions, where only the activations have to stay in the cache.
const TOGETHER_BYTES: usize = 896 << 10;
/// Positions of a pass: at least a few, so that weights that exceed the cache are read once for several positions.
const PASS_POSITIONS: std::ops::RangeInclusive<usize> = 2..=32;
/// Minimum number of positions to collect features for the head layers.
const FEATURES: usize = TILE_ROWS;
/// Number of positions from which sixteen interleaved positions take less time than separate positions.
const TOGETHER_FROM: usize = 12;

/// Memory layout of the positions in a pass, with the runs of cells that a path multiplies.
#[derive(Debug)]
pub(crate) struct Arrangement {
    pub(crate) layout: Layout,
    /// Layout of the features before the head layers, with weights that are read once for all positions.
    pub(crate) features: Layout,
    /// Runs for layers in floating point.
    cells: Vec<Run>,
    /// Runs for the convolutions of the blocks.
    block_cells: Vec<Run>,
}

/// Positions of a batch that pass through the network together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Index of the arrangement.
    pub(crate) arrangement: usize,
    /// First position within the batch.
    pub(crate) first: usize,
    pub(crate) positions: usize,
}

impl Arrangement {
    /// Returns the arrangements of a path, the one for the most positions first; the last takes any number of
    /// positions.
    pub(crate) fn of(path: KernelVariant, board: Board, channels: usize) -> Vec<Self> {
        let blocks = path.base().packing().format.lines(channels);
        let side_by_side = Layout::together(board, TILE_ROWS);
        let fits = path.lays_together() && 2 * side_by_side.bytes(blocks) <= TOGETHER_BYTES;
        let positions = PASS_BYTES / (2 * blocks * board.pixels() * size_of::<Line>());
        let most = if fits { TOGETHER_FROM - 1 } else { *PASS_POSITIONS.end() };
        let apart = Layout::apart(board, positions.clamp(*PASS_POSITIONS.start(), most));
        fits.then_some(side_by_side).into_iter().chain([apart]).map(|layout| Self::new(path, layout)).collect()
    }

    fn new(path: KernelVariant, layout: Layout) -> Self {
        let features = match layout.together {
            1 => Layout::apart(layout.board, layout.positions.max(FEATURES)),
            _ => layout,
        };
        Self { layout, features, cells: path.base().cells(layout), block_cells: path.cells(layout) }
    }

    /// Splits a number of positions into passes, each at most as large as the features of the arrangement.
    pub(crate) fn passes(all: &[Self], positions: usize) -> impl Iterator<Item = Pass> + use<'_> {
        let mut first = 0;
        std::iter::from_fn(move || {
            let left = positions - first;
            let arrangement = all.iter().position(|arrangement| left >= arrangement.least())?;
            let positions = left.min(all[arrangement].features.positions);
            let pass = Pass { arrangement, first, positions };
            first += positions;
            Some(pass)
        })
    }

    /// Returns the minimum number of positions for this arrangement.
    fn least(&self) -> usize {
        if self.layout.together > 1 { TOGETHER_FROM } else { 1 }
    }

    /// Splits a number of positions into parts that pass through the convolutions together.
    pub(crate) fn parts(&self, positions: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let most = self.layout.positions;
        (0..positions).step_by(most).map(move |first| first..positions.min(first + most))
    }

    /// Returns the runs of the first positions' cells, for layers in floating point.
    pub(crate) fn cells(&self, positions: usize) -> &[Run] {
        self.first(&self.cells, positions)
    }

    /// Returns the runs of the first positions' cells, for the convolutions of the blocks.
    pub(crate) fn block_cells(&self, positions: usize) -> &[Run] {
        self.first(&self.block_cells, positions)
    }

    /// Returns the rows of the first positions in the features; a row is a position.
    pub(crate) fn rows(&self, positions: usize) -> Run {
        Run::new(self.features.index(0, 0, 0), positions, self.features.line(1, 0))
    }

    /// Returns the runs of the first positions, out of `runs`.
    fn first<'a>(&self, runs: &'a [Run], positions: usize) -> &'a [Run] {
        let Layout { positions: all, together, .. } = self.layout;
        // Interleaved positions are always computed together.
        if together > 1 { runs } else { &runs[..runs.len() / all * positions] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(all: &[Arrangement], positions: usize) -> Vec<(usize, usize)> {
        Arrangement::passes(all, positions).map(|pass| (pass.arrangement, pass.positions)).collect()
    }

    #[test]
    fn a_batch_is_passed_whole_and_in_order() {
        let board = Board::new(6, 7);
        for path in [KernelVariant::AmxBf16, KernelVariant::PortableF32] {
            let all = Arrangement::of(path, board, 64);
            for positions in 0..100 {
                let mut next = 0;
                for pass in Arrangement::passes(&all, positions) {
                    assert_eq!(pass.first, next);
                    assert!((1..=all[pass.arrangement].features.positions).contains(&pass.positions));
                    next += pass.positions;
                }
                assert_eq!(next, positions, "{path}");
            }
        }
    }

    #[test]
    fn tiles_take_sixteen_positions_side_by_side() {
        let all = Arrangement::of(KernelVariant::AmxBf16, Board::new(6, 7), 64);
        assert_eq!(passes(&all, 43), [(0, 16), (0, 16), (1, 11)]);
        assert_eq!(passes(&all, 44), [(0, 16), (0, 16), (0, 12)]);
        assert_eq!(passes(&all, 1), [(1, 1)]);
    }

    #[test]
    fn positions_that_would_leave_the_cache_lie_by_themselves() {
        let all = Arrangement::of(KernelVariant::AmxBf16, Board::new(19, 19), 256);
        assert_eq!(passes(&all, 21), [(0, 16), (0, 5)]);
        assert_eq!(all[0].parts(5).collect::<Vec<_>>(), [0..2, 2..4, 4..5]);
    }
}
