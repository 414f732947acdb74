use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::Path;
use crate::board::Board;
use crate::layout::Layout;

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
        for path in Path::INT8.into_iter().filter(|path| path.is_available()) {
            let mut output = Planes::new(Format::I8, Layout::apart(board, 3), channels);
            path.quantise(&input, &padded, 2, &mut output);
            for (position, cell) in (0..3).flat_map(|position| (0..board.cells()).map(move |cell| (position, cell))) {
                for (channel, inverse) in inverse.iter().enumerate() {
                    let want = (input.get(position, cell, channel) * inverse).round_ties_even().clamp(0.0, 255.0);
                    assert_eq!(output.get(position, cell, channel), want, "{path}, channel {channel} of {channels}");
                }
            }
            let borders = (0..board.pixels()).filter(|&pixel| !board.is_cell(pixel));
            for pixel in borders {
                assert_eq!(output.lines[output.index(0, 1, pixel)], Line::default(), "{path}: border pixel {pixel}");
            }
        }
    }
}
