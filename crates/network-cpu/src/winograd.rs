//! 3×3 convolutions with fewer multiplications: minimal filtering (Winograd 1980, applied as in Lavin & Gray 2016,
//! arXiv 1509.09308).
//!
//! Along one side of the board, lines of cells are cut into pieces of M outputs. The M + 2 inputs of a piece are
//! transformed to values at M + 2 points (`split`), multiplied there by the filter values, and transformed to the
//! outputs (`join`): M + 2 products instead of 3 · M. Across these lines the filter taps are unchanged, so that a
//! point is a convolution with three taps, computed by the same code as with nine. Along both sides, each square with
//! M · M outputs has (M + 2)² points and (M + 2)² products instead of 9 · M². A point is then a product of single
//! pixels. There are about three times the weights of nine taps, or more, so that reading them is only worth it for
//! many squares. Start with [`Winograd::convolve`].

mod minimal;
mod pieces;

pub(crate) use minimal::Minimal;
pub(crate) use pieces::{Cut, Pieces, Squares};

use crate::KernelVariant;
use crate::folded::Affine;
use crate::multiplier::Multiplier;
use crate::planes::{Format, Layout, Planes};
use crate::product::{Output, Packing, Product, Run};

/// Computes the convolutions of a tower's blocks by minimal filtering.
#[derive(Debug)]
pub(crate) struct Winograd {
    cut: Cut,
    /// Layout of the values at a point.
    layout: Layout,
    /// Rows to multiply. With pieces: the rows at each point, for all positions. With squares: the rows for each
    /// number of positions, from one on.
    runs: Vec<Vec<Run>>,
}

impl Winograd {
    /// Chooses a cut for convolutions between `channels` channels of planes with this layout; `None` if nine taps are
    /// equally fast or faster.
    pub(crate) fn of(path: KernelVariant, layout: Layout, channels: usize) -> Option<Self> {
        Cut::of(path, layout.board, channels).map(|cut| Self::new(path, cut, layout.positions))
    }

    fn new(path: KernelVariant, cut: Cut, positions: usize) -> Self {
        let (layout, runs) = match &cut {
            Cut::OneSide(pieces) => {
                let layout = Layout::apart(pieces.board, positions);
                (layout, pieces.runs(path, layout))
            }
            Cut::BothSides(squares) => {
                let layout = squares.layout(positions);
                (layout, (1..=positions).map(|positions| squares.runs(path, layout, positions)).collect())
            }
        };
        Self { cut, layout, runs }
    }

    /// Returns the rows of the first positions at a point.
    fn rows(&self, point: usize, positions: usize) -> &[Run] {
        match &self.cut {
            Cut::OneSide(_) => {
                let runs = &self.runs[point];
                &runs[..runs.len() / self.layout.positions * positions]
            }
            Cut::BothSides(_) => &self.runs[positions - 1],
        }
    }

    /// Packs a convolution for [`convolve`](Self::convolve).
    pub(crate) fn products(&self, packing: Packing, affine: &Affine) -> Vec<Product> {
        match &self.cut {
            Cut::OneSide(pieces) => pieces.products(packing, affine),
            Cut::BothSides(squares) => squares.products(packing, affine),
        }
    }

    /// Returns the planes that [`convolve`](Self::convolve) works in: one more than the points.
    pub(crate) fn planes(&self, channels: usize) -> Vec<Planes> {
        vec![Planes::new(Format::F32, self.layout, channels); self.cut.points() + 1]
    }

    /// Computes a convolution of the first positions of `input`.
    pub(crate) fn convolve(
        &self,
        multiplier: &Multiplier,
        products: &[Product],
        input: &Planes,
        positions: usize,
        points: &mut [Planes],
        output: Output<'_>,
    ) {
        multiplier.split(&self.cut, input, positions, &mut points[1..]);
        for (point, product) in products.iter().enumerate() {
            // Products at a point overwrite the values of the previous point, which are no longer needed.
            let (before, values) = points.split_at_mut(point + 1);
            let sums = Output::Planes { planes: &mut before[point], first: 0, add: false, relu: false };
            multiplier.multiply(product, &values[0], self.rows(point, positions), sums, None);
        }
        multiplier.join(&self.cut, points, positions, output);
    }
}

#[cfg(test)]
mod tests;
