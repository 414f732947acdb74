//! 3×3 convolutions with fewer multiplications: minimal filtering (Winograd 1980, as Lavin & Gray 2016, arXiv 1509.09308,
//! use it), along one side of the board.
//!
//! Lines of cells are cut into pieces of M outputs. The M + 2 inputs of a piece become values at M + 2 points (`split`), are
//! multiplied there by the filter's values, and become its outputs (`join`): M + 2 products instead of 3 · M. Across these
//! lines the filter's taps stay what they are, so that a point is a convolution of three taps, computed by what computes
//! nine. Start with [`Winograd::convolve`].
//!
//! Along both sides there would be fewer products still, but three to five times the weights instead of about twice as many,
//! and a small batch waits for those.

use std::ops::Range;

use crate::Path;
use crate::board::Board;
use crate::folded::Affine;
use crate::layout::Layout;
use crate::line::Format;
use crate::multiplier::Multiplier;
use crate::planes::Planes;
use crate::product::{Output, Packing, Product, Run};
use crate::tap::Tap;

/// Outputs of a piece at most, and how many rows of a position each weight is read for, at least. With larger pieces there are
/// ever fewer products and ever more weights, and one position that is asked alone waits for those: the sooner, the wider the
/// registers are that multiply.
#[derive(Debug, Clone, Copy)]
struct Limits {
    outputs_max: usize,
    rows_min: usize,
}

impl Limits {
    /// Registers of sixteen float32.
    const WIDE: Self = Self { outputs_max: 5, rows_min: 10 };
    const NARROW: Self = Self { outputs_max: NUMBERS.len() + 2 - TAPS, rows_min: 6 };

    fn of(path: Path) -> Self {
        if path.has_wide_registers() { Self::WIDE } else { Self::NARROW }
    }
}

/// Outputs of the pieces that cut a side into equal ones, where registers are narrow: a row of Connect Four is one.
const SEVEN: usize = 7;
/// Taps of a filter along a side.
const TAPS: usize = 3;

/// Fewer channels are not worth the transforms: they go with the channels, products with their square.
const CHANNELS_MIN: usize = 32;
/// Along two cells, four of six taps lie on the board: as many as there are points. Across two, runs are too short for a tile.
const SIDE_MIN: usize = 3;
/// The points that are numbers. Fractions among whole numbers round least (Barabasz et al. 2020, arXiv 1803.10986): three outputs
/// have 1.5 times the errors of nine taps, five and six 2.7 times. Every piece has infinity for its first point and then as many
/// of these as it needs, so that pieces of all sizes share the filter's values.
const NUMBERS: [f64; 7] = [0.0, 1.0, -1.0, 0.5, -2.0, -0.5, 2.0];
/// The same for pieces of seven, which share with no other: a number more among those above would have twice these errors.
const NUMBERS_OF_SEVEN: [f64; 8] = [-1.0, 1.0, 0.25, -0.25, 0.625, -0.625, 2.0, -2.0];
/// Number one among the points: it goes into every output once, and so does a bias that is added there.
const ONE: usize = 2;

/// A number among so many points.
const fn number(points: usize, number: usize) -> f64 {
    if points == SEVEN + TAPS - 1 { NUMBERS_OF_SEVEN[number] } else { NUMBERS[number] }
}

/// The filter `g₀ + g₁ x + g₂ x²` at one of so many points.
fn filter_at(points: usize, point: usize, [g0, g1, g2]: [f64; TAPS]) -> f64 {
    match point.checked_sub(1) {
        None => g2,
        Some(index) => g0 + number(points, index) * (g1 + number(points, index) * g2),
    }
}

/// The filtering F(M, 3) of `N = M + 2` inputs at N points: `outputs = OUTPUTS · (filter ⊙ INPUTS · inputs)`.
pub(crate) struct Minimal<const M: usize, const N: usize>;

impl<const M: usize, const N: usize> Minimal<M, N> {
    /// Inputs to values at points, `[point, input]`.
    pub(crate) const INPUTS: [[f32; N]; N] = rounded(inputs());
    /// Products at points to outputs, `[output, point]`.
    pub(crate) const OUTPUTS: [[f32; N]; M] = rounded(outputs());
}

/// [`Minimal::INPUTS`]: the transpose of interpolation. A polynomial of degree N − 1 is the sum of its values at the numbers times
/// Lagrange's polynomials, and of its leading coefficient times `∏ (x − number)`.
const fn inputs<const N: usize>() -> [[f64; N]; N] {
    let mut matrix = [[0.0; N]; N];
    matrix[0] = with_roots::<N>(N);
    let mut index = 0;
    while index < N - 1 {
        let mut divisor = 1.0;
        let mut other = 0;
        while other < N - 1 {
            if other != index {
                divisor *= number(N, index) - number(N, other);
            }
            other += 1;
        }
        let polynomial = with_roots::<N>(index);
        let mut power = 0;
        while power < N {
            matrix[index + 1][power] = polynomial[power] / divisor;
            power += 1;
        }
        index += 1;
    }
    matrix
}

/// The coefficients of `∏ (x − number)` over the first N − 1 numbers but one, the constant first.
const fn with_roots<const N: usize>(but: usize) -> [f64; N] {
    let mut coefficients = [0.0; N];
    coefficients[0] = 1.0;
    let mut index = 0;
    while index < N - 1 {
        if index != but {
            let mut power = N - 1;
            while power > 0 {
                coefficients[power] = coefficients[power - 1] - number(N, index) * coefficients[power];
                power -= 1;
            }
            coefficients[0] *= -number(N, index);
        }
        index += 1;
    }
    coefficients
}

/// [`Minimal::OUTPUTS`]: the transpose of evaluation, output j taking the j-th powers of the numbers.
const fn outputs<const M: usize, const N: usize>() -> [[f64; N]; M] {
    let mut matrix = [[0.0; N]; M];
    matrix[M - 1][0] = 1.0;
    let mut index = 0;
    while index < N - 1 {
        let (mut output, mut power) = (0, 1.0);
        while output < M {
            matrix[output][index + 1] = power;
            power *= number(N, index);
            output += 1;
        }
        index += 1;
    }
    matrix
}

const fn rounded<const ROWS: usize, const COLUMNS: usize>(exact: [[f64; COLUMNS]; ROWS]) -> [[f32; COLUMNS]; ROWS] {
    let mut matrix = [[0.0; COLUMNS]; ROWS];
    let mut row = 0;
    while row < ROWS {
        let mut column = 0;
        while column < COLUMNS {
            matrix[row][column] = exact[row][column] as f32;
            column += 1;
        }
        row += 1;
    }
    matrix
}

/// A side of the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Down,
    Right,
}

/// How the cells of a board are cut along one of its sides.
#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    side: Side,
    /// The cells of a line that each piece has, the largest piece first, so that those which have a point come before those
    /// which do not.
    pub(crate) cuts: Vec<Range<usize>>,
    /// Pixels from a cell to the next of its piece.
    pub(crate) along: usize,
    /// Pixels from a cell to the same of the neighbouring line.
    pub(crate) across: usize,
    /// How the values at a point lie: a row for each piece, in it a cell for each line that is cut.
    pub(crate) board: Board,
}

impl Pieces {
    /// The cut that a path computes with the fewest tiles; `None` where nine taps are as fast, as measured with and without
    /// neighbours in a batch.
    fn of(path: Path, board: Board, channels: usize) -> Option<Self> {
        if !path.is_float32() || channels < CHANNELS_MIN || board.height.min(board.width) < SIDE_MIN {
            return None;
        }
        [Side::Down, Side::Right]
            .map(|side| Self::along(path, board, side))
            .into_iter()
            .filter(|pieces| pieces.board.cells() >= Limits::of(path).rows_min)
            .min_by_key(|pieces| pieces.tiles(path))
    }

    fn along(path: Path, board: Board, side: Side) -> Self {
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
    fn tiles(&self, path: Path) -> usize {
        let points: usize = self.cuts.iter().map(points_of).sum();
        points * path.tiles(Board::new(1, self.board.width))
    }

    /// Points of the largest piece.
    fn points(&self) -> usize {
        points_of(&self.cuts[0])
    }

    /// Packs a convolution: one product for each point.
    fn products(&self, packing: Packing, affine: &Affine) -> Vec<Product> {
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
    fn runs(&self, path: Path, layout: Layout) -> Vec<Vec<Run>> {
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

/// What computes the convolutions of a tower's blocks by minimal filtering.
#[derive(Debug)]
pub(crate) struct Winograd {
    pieces: Pieces,
    /// Of the values at a point.
    layout: Layout,
    /// Of each point, for all positions of the layout.
    runs: Vec<Vec<Run>>,
}

impl Winograd {
    /// For convolutions between so many channels of planes that lie so; `None` where nine taps are as fast.
    pub(crate) fn of(path: Path, layout: Layout, channels: usize) -> Option<Self> {
        Pieces::of(path, layout.board, channels).map(|pieces| Self::new(path, pieces, layout.positions))
    }

    fn new(path: Path, pieces: Pieces, positions: usize) -> Self {
        let layout = Layout::apart(pieces.board, positions);
        Self { runs: pieces.runs(path, layout), pieces, layout }
    }

    /// Packs a convolution for [`convolve`](Self::convolve).
    pub(crate) fn products(&self, packing: Packing, affine: &Affine) -> Vec<Product> {
        self.pieces.products(packing, affine)
    }

    /// What [`convolve`](Self::convolve) computes in: one more than there are points.
    pub(crate) fn planes(&self, channels: usize) -> Vec<Planes> {
        vec![Planes::new(Format::F32, self.layout, channels); self.pieces.points() + 1]
    }

    /// A convolution of the first positions of `input`.
    pub(crate) fn convolve(
        &self,
        multiplier: &Multiplier,
        products: &[Product],
        input: &Planes,
        positions: usize,
        points: &mut [Planes],
        output: Output<'_>,
    ) {
        multiplier.split(&self.pieces, input, positions, &mut points[1..]);
        for (point, (product, runs)) in products.iter().zip(&self.runs).enumerate() {
            // The products at a point take the place of the values at the one before, which are no longer needed.
            let (before, values) = points.split_at_mut(point + 1);
            let runs = &runs[..runs.len() / self.layout.positions * positions];
            let sums = Output::Planes { planes: &mut before[point], first: 0, add: false, relu: false };
            multiplier.multiply(product, &values[0], runs, sums, None);
        }
        multiplier.join(&self.pieces, points, positions, output);
    }
}

#[cfg(test)]
mod tests;
