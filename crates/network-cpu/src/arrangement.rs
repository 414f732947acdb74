use crate::KernelVariant;
use crate::planes::{Board, Layout, Line, TILE_ROWS};
use crate::product::Run;

/// The most bytes of activations of a pass, so that they stay in the second-level cache beside the weights that are
/// read.
const PASS_BYTES: usize = 384 << 10;
/// [`PASS_BYTES`] of a pass whose positions are interleaved: its activations only have to stay in the cache themselves.
const TOGETHER_BYTES: usize = 896 << 10;
/// Positions of a pass: at least a few, so that weights which do not fit the cache are read once for all of them.
const PASS_POSITIONS: std::ops::RangeInclusive<usize> = 2..=32;
/// The least number of positions whose features are collected for the layers of the heads.
const FEATURES: usize = TILE_ROWS;
/// The number of positions from which on sixteen interleaved ones take less time than separate ones.
const TOGETHER_FROM: usize = 12;

/// A memory layout of the positions of a pass, and the runs of cells that a path multiplies.
#[derive(Debug)]
pub(crate) struct Arrangement {
    pub(crate) layout: Layout,
    /// The layout of the features in front of the layers of the heads, whose weights are read once for all of them.
    pub(crate) features: Layout,
    /// The runs for layers that stay in floating point.
    cells: Vec<Run>,
    /// The runs for the convolutions of the blocks.
    block_cells: Vec<Run>,
}

/// Some positions of a batch that pass through the network together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The index of its arrangement.
    pub(crate) arrangement: usize,
    /// The first position of the batch.
    pub(crate) first: usize,
    pub(crate) positions: usize,
}

impl Arrangement {
    /// The arrangements of a path, that of the most positions first; the last takes any number of positions.
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

    /// Splits a number of positions into passes, each of at most as many as the features of its arrangement hold.
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

    /// The least number of positions for which it is used.
    fn least(&self) -> usize {
        if self.layout.together > 1 { TOGETHER_FROM } else { 1 }
    }

    /// Splits a number of positions into the parts that pass through the convolutions together.
    pub(crate) fn parts(&self, positions: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let most = self.layout.positions;
        (0..positions).step_by(most).map(move |first| first..positions.min(first + most))
    }

    /// The runs of the cells of the first positions, for layers that stay in floating point.
    pub(crate) fn cells(&self, positions: usize) -> &[Run] {
        self.first(&self.cells, positions)
    }

    /// The runs of the cells of the first positions, for the convolutions of the blocks.
    pub(crate) fn block_cells(&self, positions: usize) -> &[Run] {
        self.first(&self.block_cells, positions)
    }

    /// The rows of the first positions in the features, a row being a position.
    pub(crate) fn rows(&self, positions: usize) -> Run {
        Run::new(self.features.index(0, 0, 0), positions, self.features.line(1, 0))
    }

    /// The runs of the first positions, among `runs`.
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
