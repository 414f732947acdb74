//! Quantises floating-point activations to 8-bit integers, with one scale per channel.

use weights::Architecture;

use crate::folded::Affine;
use crate::planes::{Format, INTEGERS, Line, Planes, WORDS};

/// Maximum integer input.
pub(crate) const INPUT_MAX: f32 = 255.0;
/// Minimum range of a channel, as a share of the largest range in the same convolution: a channel that was inactive
/// during calibration may become active.
const RANGE_MIN: f32 = 1.0 / 128.0;

/// Largest activation of each channel before each convolution of the blocks, measured on positions; integers are
/// scaled by these ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranges {
    /// `[blocks, 2, channels]`.
    largest: Vec<f32>,
    channels: usize,
}

impl Ranges {
    /// Creates ranges without any measurement.
    pub(crate) fn new(architecture: &Architecture) -> Self {
        let channels = architecture.channels;
        Self { largest: vec![0.0; 2 * architecture.blocks * channels], channels }
    }

    /// Updates the ranges with the inputs of convolution `index`, two convolutions per block: `positions` positions
    /// in float32.
    pub(crate) fn see(&mut self, index: usize, activations: &Planes, positions: usize) {
        let largest = &mut self.largest[index * self.channels..][..self.channels];
        for (block, largest) in largest.chunks_mut(WORDS).enumerate() {
            let first = activations.index(block, 0, 0);
            for line in &activations.lines[first..][..positions * activations.layout.board.pixels()] {
                for (largest, word) in largest.iter_mut().zip(line.0) {
                    *largest = largest.max(f32::from_bits(word));
                }
            }
        }
    }

    /// Returns the range of each input channel in convolution `index`, above zero.
    fn of(&self, index: usize) -> Vec<f32> {
        let largest = &self.largest[index * self.channels..][..self.channels];
        let least = largest.iter().copied().fold(f32::MIN_POSITIVE, f32::max) * RANGE_MIN;
        largest.iter().map(|largest| largest.max(least)).collect()
    }

    /// Returns convolution `index` for integer inputs, and the multipliers from floating-point inputs to integers, by
    /// blocks of 64 channels.
    ///
    /// The scale of an input channel is folded into the weights, so that one scale per channel costs nothing.
    pub(crate) fn scale(&self, index: usize, affine: &Affine) -> (Affine, Vec<[f32; INTEGERS]>) {
        let ranges = self.of(index);
        let mut scaled = affine.clone();
        for of_output in scaled.weight.chunks_exact_mut(affine.inputs * affine.taps) {
            for (of_channel, range) in of_output.chunks_exact_mut(affine.taps).zip(&ranges) {
                of_channel.iter_mut().for_each(|weight| *weight *= range / INPUT_MAX);
            }
        }
        let mut inverse = vec![[0.0; INTEGERS]; Format::I8.lines(affine.inputs)];
        for (inverse, range) in inverse.as_flattened_mut().iter_mut().zip(&ranges) {
            *inverse = INPUT_MAX / range;
        }
        (scaled, inverse)
    }
}

/// Quantises float32 pixels, given as up to four blocks of 16 channels, to one block of 64 integers. Values above the
/// range become the largest integer.
#[inline(always)]
pub(crate) fn quantise_pixels(inputs: [&[Line]; 4], inverse: &[f32; INTEGERS], outputs: &mut [Line]) {
    // Adding this to a small number leaves the nearest integer in the lowest bits.
    const ROUND: f32 = 8_388_608.0;
    for (part, input) in inputs.iter().enumerate() {
        let inverse = &inverse.as_chunks::<WORDS>().0[part];
        for (input, output) in input.iter().zip(&mut *outputs) {
            let integers: [u8; WORDS] = std::array::from_fn(|lane| {
                let scaled = f32::from_bits(input.0[lane]) * inverse[lane];
                (scaled.clamp(0.0, INPUT_MAX) + ROUND).to_bits() as u8
            });
            let words = &mut output.0.as_chunks_mut::<4>().0[part];
            *words = std::array::from_fn(|word| u32::from_le_bytes(integers.as_chunks::<4>().0[word]));
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::KernelVariant;
    use crate::planes::{Board, Layout};

    #[test]
    fn every_path_rounds_to_the_nearest_integer_and_stops_at_the_ends_of_the_range() {
        let board = Board::new(3, 5);
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for channels in [16, 48, 64, 80, 144] {
            let mut input = Planes::new(Format::F32, Layout::apart(board, 3), channels);
            for position in 0..2 {
                let mut observation: Vec<f32> =
                    (0..channels * board.cells()).map(|_| rng.random_range(-0.5..3.0)).collect();
                observation[3] = 1e30;
                input.observe(position, &observation);
            }
            let inverse: Vec<f32> = (0..channels).map(|_| rng.random_range(80.0..120.0)).collect();
            let mut padded = vec![[0.0; INTEGERS]; Format::I8.lines(channels)];
            padded.as_flattened_mut()[..channels].copy_from_slice(&inverse);
            for path in KernelVariant::INT8.into_iter().filter(|path| path.is_available()) {
                let mut output = Planes::new(Format::I8, Layout::apart(board, 3), channels);
                path.quantise(&input, &padded, 2, &mut output);
                for (position, cell) in (0..3).flat_map(|position| (0..board.cells()).map(move |cell| (position, cell)))
                {
                    for (channel, inverse) in inverse.iter().enumerate() {
                        let want = (input.get(position, cell, channel) * inverse).round_ties_even().clamp(0.0, 255.0);
                        assert_eq!(
                            output.get(position, cell, channel),
                            want,
                            "{path}, channel {channel} of {channels}"
                        );
                    }
                }
                let borders = (0..board.pixels()).filter(|&pixel| !board.is_cell(pixel));
                for pixel in borders {
                    assert_eq!(
                        output.lines[output.index(0, 1, pixel)],
                        Line::default(),
                        "{path}: border pixel {pixel}"
                    );
                }
            }
        }
    }
}
