//! Attention arithmetic between the products: scores of pairs of cells, the resulting shares, and weighted sums.
//!
//! As with [`activation`](crate::activation), the functions are inlined into the loops of kernels, where the compiler
//! vectorises them with the instructions of the surrounding code.

use crate::activation::exp;

/// Numbers per vector operation.
pub const LANES: usize = 16;

/// One vector of numbers.
pub type Lanes = [f32; LANES];

/// Rows `[cells, D]` with sixteen cells in the lanes: products with a vector `[D]` are numbers by cell.
#[derive(Debug, Clone, Default)]
pub struct ByCell {
    /// `[cells / 16, D]`.
    packed: Vec<Lanes>,
}

/// Rows `[cells, D]` with sixteen channels in the lanes: a weighted sum over the cells is `[D]`.
#[derive(Debug, Clone, Default)]
pub struct ByChannel {
    /// `[D / 16, cells]`.
    packed: Vec<Lanes>,
}

impl ByCell {
    /// Packs rows that start `stride` numbers apart, in the memory of previously packed rows.
    #[inline(always)]
    pub fn pack(&mut self, [cells, channels]: [usize; 2], rows: &[f32], stride: usize) {
        self.packed.clear();
        self.packed.resize(cells.div_ceil(LANES) * channels, [0.0; LANES]);
        for cell in 0..cells {
            let to = &mut self.packed[cell / LANES * channels..][..channels];
            to.iter_mut().zip(&rows[cell * stride..]).for_each(|(to, &number)| to[cell % LANES] = number);
        }
    }

    /// Writes the products of a vector `[D]` with the row of each cell.
    #[inline(always)]
    pub fn with_each(&self, vector: &[f32], to: &mut [Lanes]) {
        for (rows, to) in self.packed.chunks_exact(vector.len()).zip(to) {
            *to = sum(vector, rows);
        }
    }

    /// Writes the shares of all cells for a query, the softmax of `scale · q · k + pair`: the rows are keys, and
    /// `pairs` has one number per cell.
    #[inline(always)]
    pub fn shares(&self, query: &[f32], pairs: &[f32], scale: f32, shares: &mut [Lanes]) {
        self.with_each(query, shares);
        let shares = &mut shares.as_flattened_mut()[..pairs.len()];
        shares.iter_mut().zip(pairs).for_each(|(share, pair)| *share = scale * *share + pair);
        soften(shares);
    }
}

impl ByChannel {
    /// Packs rows like [`ByCell::pack`].
    #[inline(always)]
    pub fn pack(&mut self, [cells, channels]: [usize; 2], rows: &[f32], stride: usize) {
        self.packed.clear();
        self.packed.resize(channels.div_ceil(LANES) * cells, [0.0; LANES]);
        for cell in 0..cells {
            for (part, numbers) in rows[cell * stride..][..channels].chunks(LANES).enumerate() {
                let to = &mut self.packed[part * cells + cell];
                to.iter_mut().zip(numbers).for_each(|(to, number)| *to = *number);
            }
        }
    }

    /// Writes `scale` times the weighted sum of the rows, `[D]`.
    #[inline(always)]
    pub fn weighted(&self, weights: &[f32], scale: f32, to: &mut [f32]) {
        for (rows, to) in self.packed.chunks_exact(weights.len()).zip(to.chunks_mut(LANES)) {
            let sums = sum(weights, rows);
            to.iter_mut().zip(sums).for_each(|(to, sum)| *to = scale * sum);
        }
    }
}

/// Returns the weighted sum of rows.
#[inline(always)]
fn sum(weights: &[f32], rows: &[Lanes]) -> Lanes {
    // Two independent sums, which do not wait for each other.
    let mut sums = [[0.0; LANES]; 2];
    let ((pairs, rest), (row_pairs, last)) = (weights.as_chunks::<2>(), rows.as_chunks::<2>());
    for (weights, rows) in pairs.iter().zip(row_pairs) {
        for (sum, (weight, row)) in sums.iter_mut().zip(weights.iter().zip(rows)) {
            add(sum, *weight, row);
        }
    }
    for (weight, row) in rest.iter().zip(last) {
        add(&mut sums[0], *weight, row);
    }
    let [mut total, other] = sums;
    add(&mut total, 1.0, &other);
    total
}

/// Adds `weight` times a row.
#[inline(always)]
pub fn add(to: &mut Lanes, weight: f32, row: &Lanes) {
    for lane in 0..LANES {
        to[lane] += weight * row[lane];
    }
}

/// Turns scores into shares. NaN stays NaN, and infinite scores may give NaN.
#[inline(always)]
fn soften(scores: &mut [f32]) {
    let mut most = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = scores.as_chunks::<LANES>();
    for scores in whole {
        for lane in 0..LANES {
            most[lane] = if scores[lane] > most[lane] { scores[lane] } else { most[lane] };
        }
    }
    let most = most.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = exp(*score - most));
    let mut sums = [0.0; LANES];
    let (whole, rest) = scores.as_chunks::<LANES>();
    whole.iter().for_each(|scores| add(&mut sums, 1.0, scores));
    let inverse = 1.0 / (sums.iter().sum::<f32>() + rest.iter().sum::<f32>());
    scores.iter_mut().for_each(|score| *score *= inverse);
}

#[cfg(test)]
mod tests {
    use super::{ByCell, ByChannel, LANES};

    fn numbers(len: usize) -> Vec<f32> {
        (0..len).map(|index| (index * 37 % 101) as f32 / 50.0 - 1.0).collect()
    }

    #[test]
    fn shares_and_their_sums_agree_with_float64_for_any_number_of_cells_and_channels() {
        for (cells, channels) in [(1, 1), (9, 16), (16, 5), (17, 33), (42, 8)] {
            let stride = channels + 3;
            let (rows, query, pairs) = (numbers(cells * stride), numbers(channels), numbers(cells));
            let (mut keys, mut values) = (ByCell::default(), ByChannel::default());
            // Previously packed rows must not affect the result.
            keys.pack([50, 7], &[9.0; 350], 7);
            values.pack([50, 7], &[9.0; 350], 7);
            keys.pack([cells, channels], &rows, stride);
            values.pack([cells, channels], &rows, stride);
            let mut shares = vec![[0.0; LANES]; cells.div_ceil(LANES)];
            keys.shares(&query, &pairs, 0.5, &mut shares);
            let mut sums = vec![0.0; channels];
            values.weighted(&shares.as_flattened()[..cells], 2.0, &mut sums);

            let row = |cell: usize| rows[cell * stride..][..channels].iter().map(|&x| f64::from(x));
            let score = |cell: usize| -> f64 {
                0.5 * row(cell).zip(&query).map(|(k, &q)| k * f64::from(q)).sum::<f64>() + f64::from(pairs[cell])
            };
            let total: f64 = (0..cells).map(|cell| score(cell).exp()).sum();
            let share = |cell: usize| score(cell).exp() / total;
            for (cell, &got) in shares.as_flattened()[..cells].iter().enumerate() {
                assert!((f64::from(got) - share(cell)).abs() < 1e-6, "share {cell} of {cells} is {got}");
            }
            for (channel, &got) in sums.iter().enumerate() {
                let wanted: f64 = (0..cells).map(|cell| 2.0 * share(cell) * row(cell).nth(channel).unwrap()).sum();
                assert!((f64::from(got) - wanted).abs() < 1e-5, "sum {channel} is {got}, not {wanted}");
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite_stay_so() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut keys = ByCell::default();
            keys.pack([20, 1], &[1.0; 20], 1);
            let (mut pairs, mut shares) = ([0.0; 20], [[0.0; LANES]; 2]);
            pairs[18] = bad;
            keys.shares(&[1.0], &pairs, 1.0, &mut shares);
            assert!(shares.as_flattened()[..20].iter().any(|share| share.is_nan()), "{bad}");
        }
    }
}
