use std::ops::Range;

use crate::KernelVariant;
use crate::folded::Affine;
use crate::planes::{Board, Layout};
use crate::product::{Packing, Product, Run, Tap};
use crate::winograd::minimal::{NUMBERS, ONE, SEVEN, TAPS, filter_at};

/// Minimum channels that are worth the transforms: the cost of transforms grows with the channels, the cost of
/// products with the square.
const CHANNELS_MIN: usize = 32;
/// [`CHANNELS_MIN`] for cuts along both sides, where transforms take longer.
const SQUARE_CHANNELS_MIN: usize = 64;
/// Minimum side of a board that is cut. Along two cells, four of six taps are on the board, no more than there are
/// points. Across two cells, runs are too short for a tile.
pub(super) const SIDE_MIN: usize = 3;

/// A cut of the cells of a board.
#[derive(Debug, Clone)]
pub(crate) enum Cut {
    OneSide(Pieces),
    BothSides(Squares),
}

impl Cut {
    /// Returns the fastest cut on a path; `None` if nine taps are faster, as measured with single positions and with
    /// batches.
    pub(super) fn of(path: KernelVariant, board: Board, channels: usize) -> Option<Self> {
        if !path.is_float32() || channels < CHANNELS_MIN || board.height.min(board.width) < SIDE_MIN {
            return None;
        }
        let pieces = Pieces::of(path, board)?;
        // Transforms take a tenth more along both sides.
        let saves = |squares: &Squares| 10 * squares.cost().on(path) < 9 * pieces.cost().on(path);
        let squares = Squares::of(path, board).filter(|squares| channels >= SQUARE_CHANNELS_MIN && saves(squares));
        Some(squares.map_or(Self::OneSide(pieces), Self::BothSides))
    }

    pub(super) fn points(&self) -> usize {
        match self {
            Self::OneSide(pieces) => pieces.points(),
            Self::BothSides(squares) => squares.points(),
        }
    }
}

/// Cost of a convolution of one position, per channel and filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) products: usize,
    /// Weights to read.
    pub(super) weights: usize,
}

impl Cost {
    /// Returns the cost in products. A weight counts as the products that are computed while it is loaded if a
    /// position is evaluated alone: wider registers compute more.
    pub(super) fn on(self, path: KernelVariant) -> usize {
        self.products + self.weights * if path.has_wide_registers() { 8 } else { 2 }
    }
}

/// Maximum outputs of a piece, and minimum rows of a position per weight read. Larger pieces have fewer products and
/// more weights, and a position that is evaluated alone waits for the weights: with wider registers, from smaller
/// pieces on.
#[derive(Debug, Clone, Copy)]
struct Limits {
    outputs_max: usize,
    rows_min: usize,
}

impl Limits {
    /// Limits for registers of sixteen float32.
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

/// A cut of a board's cells along one side.
#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    side: Side,
    /// Cells of a line in each piece, the largest piece first, so that pieces with a point come before pieces without
    /// it.
    pub(crate) cuts: Vec<Range<usize>>,
    /// Pixels between adjacent cells of a piece.
    pub(crate) along: usize,
    /// Pixels from a cell to the same cell of the adjacent line.
    pub(crate) across: usize,
    /// Layout of the values at a point: a row per piece, with a cell per cut line.
    pub(crate) board: Board,
}

impl Pieces {
    /// Returns the cut with the fewest tiles on a path; `None` if weights are read for too few rows.
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
        // The fewest possible pieces, all of nearly equal size.
        let pieces = match path.has_wide_registers() {
            false if cells.is_multiple_of(SEVEN) => cells / SEVEN,
            _ => cells.div_ceil(Limits::of(path).outputs_max),
        };
        let first = |piece: usize| piece * (cells / pieces) + piece.min(cells % pieces);
        let cuts = (0..pieces).map(|piece| first(piece)..first(piece + 1)).collect();
        Self { side, cuts, along, across, board: Board::new(pieces, lines) }
    }

    /// Returns the tiles of a path at all points of a position.
    fn tiles(&self, path: KernelVariant) -> usize {
        let points: usize = self.cuts.iter().map(points_of).sum();
        points * path.tiles(Board::new(1, self.board.width))
    }

    /// Returns the cost, without the taps on the first and last lines that are outside the board.
    pub(super) fn cost(&self) -> Cost {
        let points: usize = self.cuts.iter().map(points_of).sum();
        Cost { products: points * (TAPS * self.board.width - 2), weights: TAPS * self.points() }
    }

    /// Returns the points of the largest piece.
    pub(super) fn points(&self) -> usize {
        points_of(&self.cuts[0])
    }

    /// Packs a convolution: one product per point.
    pub(super) fn products(&self, packing: Packing, affine: &Affine) -> Vec<Product> {
        (0..self.points()).map(|point| self.product(packing, affine, point)).collect()
    }

    fn product(&self, packing: Packing, affine: &Affine, point: usize) -> Product {
        let segments = Product::segments(packing, affine, &Tap::BESIDE, self.board);
        let bias = if point == ONE { affine.bias.clone() } else { vec![0.0; affine.bias.len()] };
        let blocks = segments.len() / TAPS;
        Product::new(packing, segments, &bias, |output, index, channel| {
            let (across, input) = (index / blocks, index % blocks * packing.format.per_line() + channel);
            let weights = &affine.weight[(output * affine.inputs + input) * affine.taps..][..affine.taps];
            let filter = std::array::from_fn(|along| match self.side {
                Side::Down => f64::from(weights[along * TAPS + across]),
                Side::Right => f64::from(weights[across * TAPS + along]),
            });
            filter_at(self.points(), point, filter) as f32
        })
    }

    /// Returns the rows to multiply at each point: the pieces that have the point.
    pub(super) fn runs(&self, path: KernelVariant, layout: Layout) -> Vec<Vec<Run>> {
        let all = path.cells(layout);
        let of_position = all.len() / layout.positions;
        // A piece has several runs if it crosses more lines than a run has rows.
        let of_piece = of_position / self.cuts.len();
        let of_point = |point| {
            let pieces = self.cuts.iter().filter(|cut| point < points_of(cut)).count();
            all.chunks_exact(of_position).flat_map(|position| &position[..pieces * of_piece]).copied().collect()
        };
        (0..self.points()).map(of_point).collect()
    }
}

/// Returns the points of a piece.
fn points_of(cut: &Range<usize>) -> usize {
    cut.len() + TAPS - 1
}

/// Outputs along a side of a square. Three and four round like nine taps; five has twice the rounding errors.
const OUTPUTS: std::ops::RangeInclusive<usize> = 3..=5;

/// A cut of a board's cells along both sides, into squares of equal outputs each way; the last squares may reach
/// beyond the board.
#[derive(Debug, Clone)]
pub(crate) struct Squares {
    /// Outputs along a side.
    pub(crate) outputs: usize,
    /// Number of squares from top to bottom and from left to right of the board.
    pub(crate) count: [usize; 2],
}

impl Squares {
    /// Returns the cut with the lowest cost on a path.
    pub(super) fn of(path: KernelVariant, board: Board) -> Option<Self> {
        OUTPUTS.map(|outputs| Self::new(board, outputs)).min_by_key(|squares| squares.cost().on(path))
    }

    pub(super) fn new(board: Board, outputs: usize) -> Self {
        Self { outputs, count: [board.height, board.width].map(|side| side.div_ceil(outputs)) }
    }

    /// Returns the number of squares of a position.
    fn squares(&self) -> usize {
        self.count.iter().product()
    }

    pub(super) fn cost(&self) -> Cost {
        Cost { products: self.points() * self.squares(), weights: self.points() }
    }

    /// Returns the points along a side.
    fn side(&self) -> usize {
        self.outputs + TAPS - 1
    }

    /// Returns the points of a square.
    pub(super) fn points(&self) -> usize {
        self.side() * self.side()
    }

    /// Packs a convolution: one product per point, row by row.
    pub(super) fn products(&self, packing: Packing, affine: &Affine) -> Vec<Product> {
        (0..self.points()).map(|point| self.product(packing, affine, point)).collect()
    }

    fn product(&self, packing: Packing, affine: &Affine, point: usize) -> Product {
        let (down, right) = (point / self.side(), point % self.side());
        // A tap on the cell itself has the same offset on any board.
        let segments = Product::segments(packing, affine, &[Tap::HERE], Board::new(1, 1));
        let bias = if [down, right] == [ONE; 2] { affine.bias.clone() } else { vec![0.0; affine.bias.len()] };
        Product::new(packing, segments, &bias, |output, block, channel| {
            let input = block * packing.format.per_line() + channel;
            let weights = &affine.weight[(output * affine.inputs + input) * affine.taps..][..affine.taps];
            let filter = |row: usize| std::array::from_fn(|column| f64::from(weights[row * TAPS + column]));
            let rows = std::array::from_fn(|row| filter_at(self.side(), right, filter(row)));
            filter_at(self.side(), down, rows) as f32
        })
    }

    /// Returns the layout of the values at a point: the squares of all positions are one line.
    pub(super) fn layout(&self, positions: usize) -> Layout {
        Layout::apart(Board::new(1, positions * self.squares()), 1)
    }

    /// Returns the rows of the first positions, in the fewest possible tiles.
    pub(super) fn runs(&self, path: KernelVariant, layout: Layout, positions: usize) -> Vec<Run> {
        let (rows, most) = (positions * self.squares(), path.rows_of_run());
        let run = |first: usize| Run::new(layout.index(0, 0, first), most.min(rows - first), 1);
        (0..rows).step_by(most).map(run).collect()
    }
}
