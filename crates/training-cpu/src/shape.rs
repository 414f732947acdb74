use std::ops::Range;

/// A convolution that keeps height and width: `[B, H, W, in]` to `[B, H, W, out]`. A matrix is a 1×1 convolution on a
/// board of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Height and width of the kernel: 3 or 1.
    pub(crate) side: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

/// A product of an output cell: the input at `cell` times the weights of `tap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CellPair {
    pub(crate) tap: usize,
    pub(crate) cell: usize,
}

impl Shape {
    /// Returns the shape of a matrix from `inputs` to `outputs`.
    pub(crate) fn matrix(inputs: usize, outputs: usize) -> Self {
        Self { side: 1, height: 1, width: 1, inputs, outputs }
    }

    /// Returns H · W.
    pub(crate) fn cells(self) -> usize {
        self.height * self.width
    }

    /// Returns the number of weights between an input channel and an output channel.
    pub(crate) fn taps(self) -> usize {
        self.side * self.side
    }

    /// Returns the number of weights between all channels.
    pub(crate) fn weights(self) -> usize {
        self.outputs * self.taps() * self.inputs
    }

    /// Adds the sums of all parts, each `[out, taps, in]`, to the gradient of an output range, `[outputs, taps, in]`.
    pub(crate) fn add_parts(self, sums: &[f32], outputs: Range<usize>, of_weights: &mut [f32]) {
        let first = outputs.start * self.taps() * self.inputs;
        for sums in sums.chunks_exact(self.weights()) {
            of_weights.iter_mut().zip(&sums[first..]).for_each(|(weight, sum)| *weight += sum);
        }
    }

    /// Returns the same products with each cell of a 1×1 convolution as a separate position.
    pub(crate) fn flattened(self) -> Self {
        if self.side == 1 { Self { height: 1, width: 1, ..self } } else { self }
    }

    /// Returns the shape of the input gradient.
    pub(crate) fn transposed(self) -> Self {
        Self { inputs: self.outputs, outputs: self.inputs, ..self }
    }

    /// Returns the pairs of every cell that lie on the board, by tap: `[H · W]`.
    pub(crate) fn pairs(self) -> Vec<Vec<CellPair>> {
        let border = self.side / 2;
        let of_cell = |cell: usize| {
            let (row, column) = (cell / self.width, cell % self.width);
            let pair = |tap: usize| {
                let row = (row + tap / self.side).checked_sub(border).filter(|&row| row < self.height)?;
                let column = (column + tap % self.side).checked_sub(border).filter(|&column| column < self.width)?;
                Some(CellPair { tap, cell: row * self.width + column })
            };
            (0..self.taps()).filter_map(pair).collect()
        };
        (0..self.cells()).map(of_cell).collect()
    }

    /// Returns the rows and columns for which the product with `tap` lies on the board.
    pub(crate) fn within(self, tap: usize) -> [Range<usize>; 2] {
        let border = self.side / 2;
        [(tap / self.side, self.height), (tap % self.side, self.width)]
            .map(|(shift, len)| border.saturating_sub(shift).min(len)..(len + border).saturating_sub(shift).min(len))
    }
}

/// Splits `count` items into the fewest groups of at most `most`, with sizes that differ by at most one.
pub(crate) fn evenly(count: usize, most: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let groups = count.div_ceil(most);
    (0..groups).map(move |group| group * count / groups..(group + 1) * count / groups)
}

#[cfg(test)]
mod tests {
    use super::{Shape, evenly};

    #[test]
    fn a_cell_has_the_pairs_that_lie_on_the_board() {
        let shape = Shape { side: 3, height: 2, width: 3, inputs: 1, outputs: 1 };
        let corner: Vec<(usize, usize)> = shape.pairs()[0].iter().map(|pair| (pair.tap, pair.cell)).collect();
        assert_eq!(corner, [(4, 0), (5, 1), (7, 3), (8, 4)]);
    }

    #[test]
    fn both_enumerations_have_the_same_pairs() {
        for (side, height, width) in [(3, 1, 1), (3, 1, 5), (3, 2, 3), (3, 6, 7), (1, 2, 3)] {
            let shape = Shape { side, height, width, inputs: 1, outputs: 1 };
            let mut by_cell: Vec<(usize, usize)> = Vec::new();
            for (cell, pairs) in shape.pairs().iter().enumerate() {
                by_cell.extend(pairs.iter().map(|pair| (pair.tap, cell)));
            }
            let mut by_tap: Vec<(usize, usize)> = Vec::new();
            for tap in 0..shape.taps() {
                let [rows, columns] = shape.within(tap);
                by_tap.extend(rows.flat_map(|row| columns.clone().map(move |column| (tap, row * width + column))));
            }
            by_cell.sort_unstable();
            by_tap.sort_unstable();
            assert_eq!(by_cell, by_tap, "{shape:?}");
        }
    }

    #[test]
    fn groups_are_few_and_differ_by_one_at_most() {
        for (count, most) in [(0, 6), (1, 6), (6, 6), (7, 6), (256, 6)] {
            let sizes: Vec<usize> = evenly(count, most).map(|group| group.len()).collect();
            assert_eq!((sizes.iter().sum::<usize>(), sizes.len()), (count, count.div_ceil(most)));
            assert!(sizes.iter().all(|size| *size <= most && size + 1 >= sizes[0]), "{sizes:?}");
        }
    }
}
