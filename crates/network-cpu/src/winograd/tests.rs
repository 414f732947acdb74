use std::cmp::Reverse;
use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::minimal::{SEVEN, TAPS, filter_at, inputs, outputs};
use super::pieces::{SIDE_MIN, Side};
use super::*;
use crate::planes::{Board, Line};
use crate::reference;

fn float32() -> impl Iterator<Item = KernelVariant> {
    KernelVariant::ALL.into_iter().filter(|path| path.is_float32() && path.is_available())
}

fn numbers(rng: &mut ChaCha8Rng, len: usize) -> Vec<f32> {
    (0..len).map(|_| rng.random_range(-1.0..1.0)).collect()
}

/// Weights of a convolution that preserves the magnitude of the inputs.
fn scaled(rng: &mut ChaCha8Rng, channels: usize) -> Vec<f32> {
    let scale = (channels as f32 * 9.0).sqrt().recip();
    numbers(rng, channels * channels * 9).into_iter().map(|weight| weight * scale).collect()
}

/// Returns the largest difference between F(M, 3) in float64 and three taps, over random inputs and filters.
fn difference<const M: usize, const N: usize>() -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(M as u64);
    let (to_points, to_outputs) = (inputs::<N>(), outputs::<M, N>());
    let dot = |row: &[f64], values: &[f64]| row.iter().zip(values).map(|(a, b)| a * b).sum::<f64>();
    let mut worst = 0.0_f64;
    for _ in 0..1000 {
        let taps: [f64; TAPS] = std::array::from_fn(|_| rng.random_range(-1.0..1.0));
        let line: [f64; N] = std::array::from_fn(|_| rng.random_range(-1.0..1.0));
        let products: Vec<f64> =
            to_points.iter().enumerate().map(|(point, row)| filter_at(N, point, taps) * dot(row, &line)).collect();
        for (output, row) in to_outputs.iter().enumerate() {
            worst = worst.max((dot(row, &products) - dot(&taps, &line[output..output + TAPS])).abs());
        }
    }
    worst
}

#[test]
fn filtering_at_points_is_exact_in_float64() {
    let small = [difference::<1, 3>(), difference::<2, 4>(), difference::<3, 5>()];
    let large = [difference::<4, 6>(), difference::<5, 7>(), difference::<6, 8>(), difference::<7, 9>()];
    let differences = [small.as_slice(), &large].concat();
    assert!(differences.iter().all(|&difference| difference < 1e-13), "{differences:?}");
}

#[test]
fn the_transforms_of_two_outputs_are_those_of_the_paper() {
    // Lagrange's divisors are on the side of the inputs, so that filters have none.
    let halves = [[0.0, -1.0, 0.0, 1.0], [1.0, 0.0, -1.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, -0.5, 0.5, 0.0]];
    assert_eq!(Minimal::<2, 4>::INPUTS, halves);
    assert_eq!(Minimal::<2, 4>::OUTPUTS, [[0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, -1.0]]);
}

#[test]
fn pieces_cover_a_side_the_largest_first() {
    for cells in SIDE_MIN..=64 {
        for (path, most) in [(KernelVariant::Avx512F32, 5), (KernelVariant::PortableF32, 7)] {
            let cuts = Pieces::along(path, Board::new(cells, 5), Side::Down).cuts;
            assert!(cuts.iter().cloned().flatten().eq(0..cells), "{cuts:?}");
            assert!(cuts.is_sorted_by_key(|cut| Reverse(cut.len())) && cuts[0].len() <= most, "{cuts:?}");
            // Pieces of seven have separate points.
            assert!(cuts[0].len() < SEVEN || cuts.iter().all(|cut| cut.len() == SEVEN), "{cuts:?}");
        }
    }
}

#[test]
fn boards_are_cut_where_that_pays_and_in_float32_only() {
    let cut = |path: KernelVariant, height, width, channels| match Cut::of(path, Board::new(height, width), channels)? {
        Cut::OneSide(pieces) => Some(pieces.cuts.iter().map(Range::len).collect::<Vec<_>>()),
        Cut::BothSides(squares) => Some(vec![squares.outputs; squares.count[0]]),
    };
    assert_eq!(cut(KernelVariant::PortableF32, 9, 9, 32), Some(vec![5, 4]));
    for (height, width) in [(1, 1), (1, 60), (60, 2), (5, 5)] {
        assert_eq!(cut(KernelVariant::PortableF32, height, width, 128), None, "{height}x{width}");
    }
    assert_eq!(cut(KernelVariant::PortableF32, 9, 9, 16), None);
    for path in [
        KernelVariant::AmxBf16,
        KernelVariant::Avx512Bf16,
        KernelVariant::AmxI8,
        KernelVariant::Avx512I8,
        KernelVariant::PortableI8,
    ] {
        assert_eq!(cut(path, 9, 9, 128), None, "{path}");
    }
    // Cuts along both sides, chosen where products and weight reads cost less.
    let wide = [(8, vec![4, 4]), (9, vec![3; 3]), (13, vec![5, 4, 4]), (19, vec![5; 4])];
    let narrow = [(8, vec![4; 2]), (9, vec![3; 3]), (13, vec![5; 3]), (19, vec![5; 4])];
    for (path, cuts) in [(KernelVariant::Avx512F32, wide), (KernelVariant::Avx2F32, narrow)] {
        if cfg!(target_arch = "x86_64") {
            for (side, pieces) in cuts {
                assert_eq!(cut(path, side, side, 128), Some(pieces), "{path}, {side}");
            }
        }
    }
    if cfg!(target_arch = "x86_64") {
        // Two pieces of three by seven columns fill fourteen rows; one piece of seven columns by six rows fills six.
        assert_eq!(cut(KernelVariant::Avx512F32, 6, 7, 128), Some(vec![3, 3]));
        assert_eq!(cut(KernelVariant::Avx2F32, 6, 7, 128), Some(vec![7]));
    }
}

/// Returns the sums of a 3×3 convolution `[outputs, cells]` for one position `[inputs, cells]`.
fn convolved(affine: &Affine, input: &[f32], board: Board) -> Vec<f64> {
    let input: Vec<f64> = input.iter().map(|&value| f64::from(value)).collect();
    reference::convolve(affine, &input, (board.height, board.width))
}

/// Returns planes of random numbers, and the numbers of each position `[channels, cells]`.
fn random_planes(layout: Layout, channels: usize, rng: &mut ChaCha8Rng) -> (Planes, Vec<Vec<f32>>) {
    let mut planes = Planes::new(Format::F32, layout, channels);
    let positions: Vec<Vec<f32>> =
        (0..layout.positions).map(|_| numbers(rng, channels * layout.board.cells())).collect();
    positions.iter().enumerate().for_each(|(position, values)| planes.observe(position, values));
    (planes, positions)
}

/// Convolves all positions but the last with a path and compares them with float64.
fn check(path: KernelVariant, board: Board, cut: &Cut, channels: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64((board.height * 64 + board.width) as u64);
    let weight = scaled(&mut rng, channels);
    let affine = Affine { inputs: channels, taps: 9, weight, bias: numbers(&mut rng, channels), norm: None };
    let layout = Layout::apart(board, 3);
    let winograd = Winograd::new(path, cut.clone(), layout.positions);
    let (products, mut points) = (winograd.products(path.packing(), &affine), winograd.planes(channels));
    let (input, inputs) = random_planes(layout, channels, &mut rng);
    let sums: Vec<Vec<f64>> = inputs.iter().map(|input| convolved(&affine, input, board)).collect();
    for (add, relu) in [(false, false), (false, true), (true, true)] {
        let (mut output, there) = random_planes(layout, channels, &mut rng);
        let target = Output::Planes { planes: &mut output, first: 0, add, relu };
        winograd.convolve(&Multiplier::new(path), &products, &input, layout.positions - 1, &mut points, target);
        for (position, (sums, there)) in sums.iter().zip(&there).enumerate() {
            for (index, (&sum, &there)) in sums.iter().zip(there).enumerate() {
                let (cell, channel) = (index % board.cells(), index / board.cells());
                let there = f64::from(there);
                let want = if add { sum + there } else { sum };
                let want = if relu { want.max(0.0) } else { want };
                let want = if position + 1 < layout.positions { want } else { there };
                let got = f64::from(output.get(position, cell, channel));
                assert!(
                    (got - want).abs() <= 3e-5,
                    "{path}, {board:?}, {cut:?}, {channels} channels, add {add}, relu {relu}: position {position}, \
                     cell {cell}, channel {channel} is {got}, not {want}"
                );
            }
        }
        for (position, pixel) in (0..layout.positions).flat_map(|p| (0..board.pixels()).map(move |pixel| (p, pixel))) {
            for block in 0..output.blocks() {
                let line = output.lines[output.index(block, position, pixel)];
                assert!(board.is_cell(pixel) || line == Line::default(), "{path}, {board:?}: border pixel {pixel}");
            }
        }
    }
}

/// Returns every cut of a board.
fn cuts(path: KernelVariant, board: Board) -> impl Iterator<Item = Cut> {
    let one_side = [Side::Down, Side::Right].map(|side| Cut::OneSide(Pieces::along(path, board, side)));
    let both_sides = (3..=5).map(move |outputs| Cut::BothSides(Squares::new(board, outputs)));
    one_side.into_iter().chain(both_sides)
}

/// Checks a board in both orientations, with every cut.
fn check_board(path: KernelVariant, height: usize, width: usize, channels: usize) {
    let board = Board::new(height, width);
    for board in [board, board.turned()] {
        cuts(path, board).for_each(|cut| check(path, board, &cut, channels));
    }
}

#[test]
fn filtered_convolutions_are_right_for_every_side_of_a_board() {
    for path in float32() {
        for side in SIDE_MIN..=19 {
            check_board(path, side, SIDE_MIN + side * 7 % 5, 16);
            check_board(path, SIDE_MIN + side * 3 % 4, side, 16);
        }
        for (height, width) in [(6, 7), (9, 9), (13, 13), (19, 19)] {
            check_board(path, height, width, 16);
        }
    }
}

#[test]
fn filtered_convolutions_are_right_for_every_number_of_channels() {
    for path in float32() {
        for channels in (16..=144).step_by(16) {
            check_board(path, 5, 4, channels);
        }
    }
}

#[test]
fn a_filtered_position_is_the_same_to_the_last_bit_alone_and_in_a_batch() {
    let (board, channels) = (Board::new(7, 6), 48);
    for (path, cut) in float32().flat_map(|path| cuts(path, board).map(move |cut| (path, cut))) {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let affine = Affine {
            inputs: channels,
            taps: 9,
            weight: numbers(&mut rng, channels * channels * 9),
            bias: numbers(&mut rng, channels),
            norm: None,
        };
        let winograd = Winograd::new(path, cut.clone(), 5);
        let (products, mut points) = (winograd.products(path.packing(), &affine), winograd.planes(channels));
        let (all, positions) = random_planes(Layout::apart(board, 5), channels, &mut rng);
        let mut convolve = |input: &Planes, positions: usize| {
            let mut output = Planes::new(Format::F32, input.layout, channels);
            let target = Output::Planes { planes: &mut output, first: 0, add: false, relu: true };
            winograd.convolve(&Multiplier::new(path), &products, input, positions, &mut points, target);
            output
        };
        let together = convolve(&all, 5);
        for (position, values) in positions.iter().enumerate() {
            let mut alone = Planes::new(Format::F32, all.layout, channels);
            alone.observe(0, values);
            let alone = convolve(&alone, 1);
            for (cell, channel) in (0..board.cells()).flat_map(|cell| (0..channels).map(move |c| (cell, c))) {
                assert_eq!(alone.get(0, cell, channel), together.get(position, cell, channel), "{path}, {cut:?}");
            }
        }
    }
}

/// Returns the root mean square difference between planes of one position and `sums`.
fn rounding(output: &Planes, sums: &[f64]) -> f64 {
    let cells = output.layout.board.cells();
    let of_sum = |(index, sum): (usize, &f64)| f64::from(output.get(0, index % cells, index / cells)) - sum;
    (sums.iter().enumerate().map(of_sum).map(|error| error * error).sum::<f64>() / sums.len() as f64).sqrt()
}

#[test]
fn filtering_rounds_little_more_than_nine_taps() {
    // With narrow registers, one side is cut into pieces of six, the other into pieces of seven.
    let (board, channels) = (Board::new(12, 14), 96);
    let layout = Layout::apart(board, 1);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let weight = scaled(&mut rng, channels);
    let affine = Affine { inputs: channels, taps: 9, weight, bias: numbers(&mut rng, channels), norm: None };
    let values: Vec<f32> = numbers(&mut rng, channels * board.cells()).into_iter().map(|x| x.max(0.0)).collect();
    let mut input = Planes::new(Format::F32, layout, channels);
    input.observe(0, &values);
    let sums = convolved(&affine, &values, board);
    for path in float32() {
        let mut output = Planes::new(Format::F32, layout, channels);
        let target = Output::Planes { planes: &mut output, first: 0, add: false, relu: false };
        let nine_taps = Product::convolution(path.packing(), &affine, board);
        Multiplier::new(path).multiply(&nine_taps, &input, &path.cells(layout), target, None);
        let of_nine_taps = rounding(&output, &sums);
        for cut in cuts(path, board) {
            let winograd = Winograd::new(path, cut.clone(), 1);
            let (products, mut points) = (winograd.products(path.packing(), &affine), winograd.planes(channels));
            let target = Output::Planes { planes: &mut output, first: 0, add: false, relu: false };
            winograd.convolve(&Multiplier::new(path), &products, &input, 1, &mut points, target);
            let ratio = rounding(&output, &sums) / of_nine_taps;
            assert!(ratio < 2.5, "{path}, {cut:?}: {ratio} times the errors of nine taps");
        }
    }
}
