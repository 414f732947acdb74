use crate::KernelVariant;
use crate::board::Board;
use crate::folded::Affine;
use crate::layout::Layout;
use crate::product::{Packing, Product, Run};
use crate::tap::Tap;
use crate::winograd::minimal::{ONE, TAPS, filter_at};
use crate::winograd::pieces::Cost;

/// Outputs along a side of a square. Those of three and four round as nine taps do, those of five twice as coarsely.
const OUTPUTS: std::ops::RangeInclusive<usize> = 3..=5;

/// A cut of the cells of a board along both sides: into squares of as many outputs each way, the last of which may
/// reach beyond the board.
#[derive(Debug, Clone)]
pub(crate) struct Squares {
    /// Along a side.
    pub(crate) outputs: usize,
    /// From the top to the bottom of the board, and from its left to its right.
    pub(crate) count: [usize; 2],
}

impl Squares {
    /// The cut that costs a path least.
    pub(super) fn of(path: KernelVariant, board: Board) -> Option<Self> {
        OUTPUTS.map(|outputs| Self::new(board, outputs)).min_by_key(|squares| squares.cost().on(path))
    }

    pub(super) fn new(board: Board, outputs: usize) -> Self {
        Self { outputs, count: [board.height, board.width].map(|side| side.div_ceil(outputs)) }
    }

    /// Of a position.
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
        // A tap on the cell itself lies nowhere else on any board.
        let spans = Product::spans(packing, affine, &[Tap::HERE], Board::new(1, 1));
        let bias = if [down, right] == [ONE; 2] { affine.bias.clone() } else { vec![0.0; affine.bias.len()] };
        Product::new(packing, &spans, &bias, |output, block, channel| {
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

    /// The rows of the first positions, in as few tiles as there can be.
    pub(super) fn runs(&self, path: KernelVariant, layout: Layout, positions: usize) -> Vec<Run> {
        let (rows, most) = (positions * self.squares(), path.rows_of_run());
        let run = |first: usize| Run::new(layout.index(0, 0, first), most.min(rows - first), 1);
        (0..rows).step_by(most).map(run).collect()
    }
}
