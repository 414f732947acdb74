use std::ops::Range;

use crate::KernelVariant;
use crate::folded::Affine;
use crate::planes::{Board, Layout};
use crate::product::{Packing, Product, Run, Tap};
use crate::winograd::minimal::{NUMBERS, ONE, SEVEN, TAPS, filter_at};

/// The least number of channels that is worth the transforms: their cost grows with the channels, that of products with
/// the square of the channels.
const CHANNELS_MIN: usize = 32;
/// [`CHANNELS_MIN`] for cuts along both sides, whose transforms take longer.
const SQUARE_CHANNELS_MIN: usize = 64;
/// The shortest side of a board that is cut. Along two cells, four of six taps lie on the board: as many as there are
/// points. Across two cells, runs are too short for a tile.
pub(super) const SIDE_MIN: usize = 3;

/// A cut of the cells of a board.
#[derive(Debug, Clone)]
pub(crate) enum Cut {
    OneSide(Pieces),
    BothSides(Squares),
}

impl Cut {
    /// Returns the cut that is fastest on a path; `None` if nine taps are faster, as measured with single positions and
    /// with batches.
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

/// The cost of a convolution of one position, for a channel and a filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) products: usize,
    /// Weights that are read.
    pub(super) weights: usize,
}

impl Cost {
    /// Returns the cost in products. A weight counts as many products as are computed while it is loaded if a position
    /// is evaluated alone: wider registers compute more.
    pub(super) fn on(self, path: KernelVariant) -> usize {
        self.products + self.weights * if path.has_wide_registers() { 8 } else { 2 }
    }
}

/// The most outputs of a piece, and the least number of rows of a position that each weight is read for. Larger pieces
/// have fewer products and more weights, and a position that is evaluated alone waits for the weights: with wider
/// registers, from smaller pieces on.
#[derive(Debug, Clone, Copy)]
struct Limits {
    outputs_max: usize,
    rows_min: usize,
}

impl Limits {
    /// The limits for registers of sixteen float32.
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
    /// The cells of a line in each piece, the largest piece first, so that pieces that have a point come before those
    /// that do not.
    pub(crate) cuts: Vec<Range<usize>>,
    /// Pixels from a cell to the next of its piece.
    pub(crate) along: usize,
    /// Pixels from a cell to the same cell of the neighbouring line.
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
        // As few pieces as possible, all of nearly equal size.
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

    /// Returns the cost, without the taps on the first and last lines that lie outside the board.
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

    /// For each point the rows that are multiplied there: those of the pieces that have it.
    pub(super) fn runs(&self, path: KernelVariant, layout: Layout) -> Vec<Vec<Run>> {
        let all = path.cells(layout);
        let of_position = all.len() / layout.positions;
        // A piece has several runs where it crosses more lines than a run has rows.
        let of_piece = of_position / self.cuts.len();
        let of_point = |point| {
            let pieces = self.cuts.iter().filter(|cut| point < points_of(cut)).count();
            all.chunks_exact(of_position).flat_map(|position| &position[..pieces * of_piece]).copied().collect()
        };
        (0..self.points()).map(of_point).collect()
    }
}

/// Points of a piece.
fn points_of(cut: &Range<usize>) -> usize {
    cut.len() + TAPS - 1
}

/// Outputs along a side of a square. The rounding errors of three and four are as large as with nine taps, those of
/// five twice as large.
const OUTPUTS: std::ops::RangeInclusive<usize> = 3..=5;

/// A cut of the cells of a board along both sides: into squares of as many outputs each way, the last of which may
/// reach beyond the board.
#[derive(Debug, Clone)]
pub(crate) struct Squares {
    /// Outputs along a side.
    pub(crate) outputs: usize,
    /// The number of squares from the top to the bottom of the board, and from its left to its right.
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

    /// The number of squares of a position.
    fn squares(&self) -> usize {
        self.count.iter().product()
    }

    pub(super) fn cost(&self) -> Cost {
        Cost { products: self.points() * self.squares(), weights: self.points() }
    }

    /// Points along a side.
    fn side(&self) -> usize {
        self.outputs + TAPS - 1
    }

    /// Points of a square.
    pub(super) fn points(&self) -> usize {
        self.side() * self.side()
    }

    /// Packs a convolution: one product for each point, row by row.
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

    /// The layout of the values at a point: the squares of all positions are one line.
    pub(super) fn layout(&self, positions: usize) -> Layout {
        Layout::apart(Board::new(1, positions * self.squares()), 1)
    }

    /// The rows of the first positions, in as few tiles as possible.
    pub(super) fn runs(&self, path: KernelVariant, layout: Layout, positions: usize) -> Vec<Run> {
        let (rows, most) = (positions * self.squares(), path.rows_of_run());
        let run = |first: usize| Run::new(layout.index(0, 0, first), most.min(rows - first), 1);
        (0..rows).step_by(most).map(run).collect()
    }
}
