use std::ops::Range;

use crate::KernelVariant;
use crate::board::Board;
use crate::folded::Affine;
use crate::layout::Layout;
use crate::product::{Packing, Product, Run};
use crate::tap::Tap;
use crate::winograd::minimal::{NUMBERS, ONE, SEVEN, TAPS, filter_at};

/// The cost of a convolution of one position, for a channel and a filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) products: usize,
    /// Weights that are read.
    pub(super) weights: usize,
}

impl Cost {
    /// In products. As many are made while a weight is loaded if a position is evaluated alone: the more, the wider the
    /// registers are that multiply.
    pub(super) fn on(self, path: KernelVariant) -> usize {
        self.products + self.weights * if path.has_wide_registers() { 8 } else { 2 }
    }
}

/// Outputs of a piece at most, and how many rows of a position each weight is read for, at least. With larger pieces
/// there are ever fewer products and ever more weights, and one position that is evaluated alone waits for those: the
/// sooner, the wider the registers are that multiply.
#[derive(Debug, Clone, Copy)]
struct Limits {
    outputs_max: usize,
    rows_min: usize,
}

impl Limits {
    /// Registers of sixteen float32.
    const WIDE: Self = Self { outputs_max: 5, rows_min: 10 };
    const NARROW: Self = Self { outputs_max: NUMBERS.len() + 2 - TAPS, rows_min: 6 };

    fn of(path: KernelVariant) -> Self {
        if path.has_wide_registers() { Self::WIDE } else { Self::NARROW }
    }
}

/// A side of the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Down,
    Right,
}

/// A cut of the cells of a board along one of its sides.
#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    side: Side,
    /// The cells of a line that each piece has, the largest piece first, so that those which have a point come before
    /// those which do not.
    pub(crate) cuts: Vec<Range<usize>>,
    /// Pixels from a cell to the next of its piece.
    pub(crate) along: usize,
    /// Pixels from a cell to the same of the neighbouring line.
    pub(crate) across: usize,
    /// The layout of the values at a point: a row for each piece, in it a cell for each line that is cut.
    pub(crate) board: Board,
}

impl Pieces {
    /// The cut that a path computes with the fewest tiles; `None` where weights are read for too few rows.
    pub(super) fn of(path: KernelVariant, board: Board) -> Option<Self> {
        [Side::Down, Side::Right]
            .map(|side| Self::along(path, board, side))
            .into_iter()
            .filter(|pieces| pieces.board.cells() >= Limits::of(path).rows_min)
            .min_by_key(|pieces| pieces.tiles(path))
    }

    pub(super) fn along(path: KernelVariant, board: Board, side: Side) -> Self {
        let (cells, lines, along, across) = match side {
            Side::Down => (board.height, board.width, board.down(), board.right()),
            Side::Right => (board.width, board.height, board.right(), board.down()),
        };
        // As few as there can be, and all nearly as large.
        let pieces = match path.has_wide_registers() {
            false if cells.is_multiple_of(SEVEN) => cells / SEVEN,
            _ => cells.div_ceil(Limits::of(path).outputs_max),
        };
        let first = |piece: usize| piece * (cells / pieces) + piece.min(cells % pieces);
        let cuts = (0..pieces).map(|piece| first(piece)..first(piece + 1)).collect();
        Self { side, cuts, along, across, board: Board::new(pieces, lines) }
    }

    /// Tiles of a path at all points of a position.
    fn tiles(&self, path: KernelVariant) -> usize {
        let points: usize = self.cuts.iter().map(points_of).sum();
        points * path.tiles(Board::new(1, self.board.width))
    }

    /// Taps on the first line and on the last that lie beside the board are left out.
    pub(super) fn cost(&self) -> Cost {
        let points: usize = self.cuts.iter().map(points_of).sum();
        Cost { products: points * (TAPS * self.board.width - 2), weights: TAPS * self.points() }
    }

    /// Points of the largest piece.
    pub(super) fn points(&self) -> usize {
        points_of(&self.cuts[0])
    }

    /// Packs a convolution: one product for each point.
    pub(super) fn products(&self, packing: Packing, affine: &Affine) -> Vec<Product> {
        (0..self.points()).map(|point| self.product(packing, affine, point)).collect()
    }

    fn product(&self, packing: Packing, affine: &Affine, point: usize) -> Product {
        let spans = Product::spans(packing, affine, &Tap::BESIDE, self.board);
        let bias = if point == ONE { affine.bias.clone() } else { vec![0.0; affine.bias.len()] };
        let blocks = spans.len() / TAPS;
        Product::new(packing, &spans, &bias, |output, span, channel| {
            let (across, input) = (span / blocks, span % blocks * packing.format.per_line() + channel);
            let weights = &affine.weight[(output * affine.inputs + input) * affine.taps..][..affine.taps];
            let filter = std::array::from_fn(|along| match self.side {
                Side::Down => f64::from(weights[along * TAPS + across]),
                Side::Right => f64::from(weights[across * TAPS + along]),
            });
            filter_at(self.points(), point, filter) as f32
        })
    }

    /// For each point the rows that are multiplied there: those of the pieces that have it.
    pub(super) fn runs(&self, path: KernelVariant, layout: Layout) -> Vec<Vec<Run>> {
        let all = path.cells(layout);
        let of_point = |point| {
            let pieces = self.cuts.iter().filter(|cut| point < points_of(cut)).count();
            all.chunks_exact(self.cuts.len()).flat_map(|position| &position[..pieces]).copied().collect()
        };
        (0..self.points()).map(of_point).collect()
    }
}

/// Points of a piece.
fn points_of(cut: &Range<usize>) -> usize {
    cut.len() + TAPS - 1
}
