//! Every product of every path against sums in float64 over the same rounded numbers.

#[cfg(target_arch = "x86_64")]
mod emulation;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::KernelVariant;
use crate::planes::TILE_ROWS;
use crate::reference;

/// Multiplies with a path, or with an emulation of a path that this machine may lack.
#[derive(Debug, Clone, Copy)]
enum Multiplier {
    Here(KernelVariant),
    /// AMX with bfloat16, or with integers.
    #[cfg(target_arch = "x86_64")]
    EmulatedAmx(KernelVariant),
}

impl Multiplier {
    fn all() -> Vec<Self> {
        let paths = KernelVariant::ALL.into_iter().chain(KernelVariant::INT8);
        let here = paths.filter(|path| path.is_available()).map(Self::Here);
        #[cfg(target_arch = "x86_64")]
        let here = here.chain([KernelVariant::AmxBf16, KernelVariant::AmxI8].map(Self::EmulatedAmx));
        here.collect()
    }

    fn path(self) -> KernelVariant {
        match self {
            Self::Here(path) => path,
            #[cfg(target_arch = "x86_64")]
            Self::EmulatedAmx(path) => path,
        }
    }

    fn multiply(self, product: &Product, input: &Planes, runs: &[Run], output: Output<'_>) {
        match self {
            Self::Here(path) => {
                crate::multiplier::Multiplier::new(path).multiply(product, input, runs, output, Some(product))
            }
            #[cfg(target_arch = "x86_64")]
            Self::EmulatedAmx(path) => {
                use crate::multiply::{Job, Target};
                use crate::paths::amx::{Anywhere, layer_with, multiply_with};
                use crate::paths::avx512_bf16::Avx512Bf16;
                use crate::paths::avx512_i8::Avx512I8;
                use emulation::Emulated;

                let target = match output {
                    Output::Planes { planes, add, relu, .. } => {
                        let block_lines = planes.layout.block_lines;
                        Target::Planes { lines: planes.lines.as_mut_ptr(), block_lines, add, relu }
                    }
                    Output::Matrix { values, relu } => Target::Matrix { values: values.as_mut_ptr(), relu },
                };
                let (input, layout) = (input.lines.as_ptr(), input.layout);
                let job = Job { product, input, layout, runs, target, next: Some(product) };
                // SAFETY: the emulation runs anywhere; the rows are inside the planes.
                unsafe {
                    match path {
                        _ if matches!(job.target, Target::Matrix { .. }) => {
                            layer_with::<_, Avx512Bf16>(&mut Emulated::<Avx512Bf16>::new(), &job);
                        }
                        KernelVariant::AmxI8 => {
                            multiply_with::<_, Anywhere<Avx512I8>>(&mut Emulated::<Avx512I8>::new(), &job)
                        }
                        _ => multiply_with::<_, Anywhere<Avx512Bf16>>(&mut Emulated::<Avx512Bf16>::new(), &job),
                    }
                }
            }
        }
    }
}

/// Draws a number that bfloat16 represents exactly, so that only sums and results are rounded.
fn number(rng: &mut ChaCha8Rng) -> f32 {
    f32::from(rng.random_range(-32_i16..=32)) / 32.0
}

/// Draws an input that every format represents exactly: a whole number for integers.
fn input(rng: &mut ChaCha8Rng, format: Format) -> f32 {
    if format == Format::I8 { f32::from(rng.random_range(0_u8..=255)) } else { number(rng) }
}

fn numbers(rng: &mut ChaCha8Rng, len: usize) -> Vec<f32> {
    (0..len).map(|_| number(rng)).collect()
}

fn fill(planes: &mut Planes, positions: usize, channels: usize, rng: &mut ChaCha8Rng) {
    for position in 0..positions {
        let observation: Vec<f32> =
            (0..channels * planes.layout.board.cells()).map(|_| input(rng, planes.format)).collect();
        planes.observe(position, &observation);
    }
}

/// Returns the outputs `[outputs, cells]` of a convolution at a position, before addition and ReLU.
fn expected(affine: &Affine, input: &Planes, position: usize) -> Vec<f64> {
    let board = input.layout.board;
    let at = |channel| (0..board.cells()).map(move |cell| f64::from(input.get(position, cell, channel)));
    let observation: Vec<f64> = (0..affine.inputs).flat_map(at).collect();
    reference::convolve(affine, &observation, (board.height, board.width))
}

fn check_convolution(multiplier: Multiplier, board: Board, inputs: usize, outputs: usize, taps: usize, seed: u64) {
    check_layout(multiplier, Layout::apart(board, 3), [inputs, outputs, taps], seed);
    // A board is not turned for tiles.
    if !multiplier.path().has_tiles() && board.height != board.width {
        check_layout(multiplier, Layout::apart(board.turned(), 3), [inputs, outputs, taps], seed);
    }
    // The emulation is slow, so it runs on small boards only, which suffice.
    let affordable = matches!(multiplier, Multiplier::Here(_)) || board.cells() <= 24;
    if multiplier.path().lays_together() && affordable {
        check_layout(multiplier, Layout::together(board, TILE_ROWS), [inputs, outputs, taps], seed);
    }
}

fn check_layout(multiplier: Multiplier, layout: Layout, [inputs, outputs, taps]: [usize; 3], seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (path, packing) = (multiplier.path(), multiplier.path().packing());
    let Layout { board, positions, together, .. } = layout;
    let mut affine = Affine {
        inputs,
        taps,
        weight: numbers(&mut rng, outputs * inputs * taps),
        bias: numbers(&mut rng, outputs),
        norm: None,
    };
    if packing.format == Format::I8 {
        // So that integers are exactly 128 times the weights, with 127 as the largest.
        affine.weight.iter_mut().for_each(|weight| *weight = (*weight * 127.0).round() / 128.0);
        affine.weight.chunks_exact_mut(inputs * taps).for_each(|weights| weights[0] = 127.0 / 128.0);
    }
    let mut input = Planes::new(packing.format, layout, inputs);
    fill(&mut input, positions, inputs, &mut rng);
    let product = Product::convolution(packing, &affine, board);
    let runs = path.cells(layout);
    // If positions are contiguous, the last one is not part of the call and must not change.
    let computed = if together == 1 { positions - 1 } else { positions };
    let runs = &runs[..if together == 1 { runs.len() / positions * computed } else { runs.len() }];
    let sums: Vec<Vec<f64>> = (0..positions).map(|position| expected(&affine, &input, position)).collect();
    for (add, relu) in [(false, false), (false, true), (true, true)] {
        let mut output = Planes::new(packing.format.of_outputs(), layout, outputs);
        fill(&mut output, positions, outputs, &mut rng);
        let before = output.clone();
        let target = Output::Planes { planes: &mut output, first: 0, add, relu };
        multiplier.multiply(&product, &input, runs, target);
        for (position, cell) in (0..positions).flat_map(|position| (0..board.cells()).map(move |cell| (position, cell)))
        {
            for channel in 0..outputs {
                let there = f64::from(before.get(position, cell, channel));
                let mut want = sums[position][channel * board.cells() + cell] + if add { there } else { 0.0 };
                want = if relu { want.max(0.0) } else { want };
                want = if position < computed { want } else { there };
                let got = f64::from(output.get(position, cell, channel));
                let tolerance = if path.is_bf16() { 1.0 / 256.0 } else { 1e-5 } * want.abs().max(1.0);
                assert!(
                    (got - want).abs() <= tolerance,
                    "{multiplier:?}, {board:?}, {inputs} to {outputs} by {taps} taps, add {add}, relu {relu}: \
                     position {position}, cell {cell}, channel {channel} is {got}, not {want}"
                );
            }
        }
        for position in 0..positions {
            for pixel in (0..board.pixels()).filter(|&pixel| !board.is_cell(pixel)) {
                for block in 0..output.format.lines(outputs) {
                    let line = output.lines[output.index(block, position, pixel)];
                    assert_eq!(line, Line::default(), "{multiplier:?}, {board:?}: border pixel {pixel} was written");
                }
            }
        }
    }
}

#[test]
fn convolutions_are_right_for_every_width_and_edge_of_a_board() {
    for multiplier in Multiplier::all() {
        for width in 1..=20 {
            for height in 1..=3 {
                check_convolution(multiplier, Board::new(height, width), 16, 64, 9, width as u64);
            }
        }
    }
}

#[test]
fn convolutions_are_right_for_every_number_of_channels() {
    let board = Board::new(3, 5);
    for multiplier in Multiplier::all() {
        for outputs in (16..=96).step_by(16) {
            check_convolution(multiplier, board, 48, outputs, 9, outputs as u64);
        }
        for inputs in [1, 2, 3, 17, 31, 32, 33, 64, 80, 112, 200] {
            check_convolution(multiplier, board, inputs, 32, 9, inputs as u64);
            check_convolution(multiplier, board, inputs, 64, 1, inputs as u64);
        }
    }
}

#[test]
fn convolutions_whose_weights_leave_the_first_level_cache_are_right() {
    // Large enough for panels of four groups, with a partial last panel.
    for multiplier in Multiplier::all() {
        for outputs in [48, 80, 112, 128] {
            check_convolution(multiplier, Board::new(2, 9), 160, outputs, 9, outputs as u64);
        }
    }
}

#[test]
fn layers_over_cells_are_right_for_every_number_of_positions() {
    let board = Board::new(3, 4);
    for multiplier in Multiplier::all().into_iter().filter(|multiplier| !multiplier.path().is_int8()) {
        for (positions, outputs) in (1..=TILE_ROWS).zip([1, 3, 7, 16, 17, 26, 64, 82].into_iter().cycle()) {
            check_layer(multiplier, Layout::apart(board, positions), positions, outputs);
            if multiplier.path().lays_together() {
                check_layer(multiplier, Layout::together(board, TILE_ROWS), positions, outputs);
            }
        }
    }
}

fn check_layer(multiplier: Multiplier, layout: Layout, positions: usize, outputs: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(positions as u64);
    let packing = multiplier.path().packing();
    let inputs = 32 * layout.board.cells();
    let dense = Dense { inputs, weight: numbers(&mut rng, outputs * inputs), bias: numbers(&mut rng, outputs) };
    let mut features = Planes::new(packing.format, layout, 64);
    fill(&mut features, positions, 64, &mut rng);
    let product = Product::over_cells(packing, &dense, layout.board, 32);
    let mut values = vec![f32::NAN; positions * product.padded_outputs()];
    let rows = [Run::new(features.index(0, 0, 0), positions, layout.line(1, 0))];
    multiplier.multiply(&product, &features, &rows, Output::Matrix { values: &mut values, relu: false });
    for (position, row) in values.chunks_exact(product.padded_outputs()).enumerate() {
        for (output, &got) in row[..outputs].iter().enumerate() {
            let weights = dense.weight[output * inputs..][..inputs].iter().enumerate();
            let sum: f64 = weights
                .map(|(i, &weight)| f64::from(weight) * f64::from(features.get(position, i / 32, 32 + i % 32)))
                .sum();
            let want = sum + f64::from(dense.bias[output]);
            let message = format!("{multiplier:?}, {positions} positions: output {output} is {got}, not {want}");
            assert!((f64::from(got) - want).abs() <= 1e-3 * want.abs().max(1.0), "{message}");
        }
    }
}

#[test]
fn runs_that_follow_each_other_fill_a_matrix_with_or_without_bias() {
    for multiplier in Multiplier::all().into_iter().filter(|multiplier| !multiplier.path().is_int8()) {
        for (runs, bias) in [(vec![5, 16, 1], 1.0), (vec![7, 7, 7, 3], 0.0), (vec![16, 13], 0.0)] {
            check_runs(multiplier, &runs, bias);
        }
    }
}

/// Multiplies runs of these lengths by a matrix, into another matrix.
fn check_runs(multiplier: Multiplier, lengths: &[usize], bias: f32) {
    let mut rng = ChaCha8Rng::seed_from_u64(lengths.len() as u64);
    let packing = multiplier.path().packing();
    let (inputs, outputs, rows) = (37, 50, lengths.iter().sum());
    let layout = Layout::apart(Board::new(1, rows), 1);
    let mut input = Planes::new(packing.format, layout, inputs);
    fill(&mut input, 1, inputs, &mut rng);
    let affine =
        Affine { inputs, taps: 1, weight: numbers(&mut rng, outputs * inputs), bias: vec![bias; outputs], norm: None };
    let product = Product::convolution(packing, &affine, layout.board);
    let mut line = layout.margin();
    let runs: Vec<Run> = lengths
        .iter()
        .map(|&length| {
            line += length;
            Run::new(line - length, length, 1)
        })
        .collect();
    let mut values = vec![f32::NAN; rows * product.padded_outputs()];
    multiplier.multiply(&product, &input, &runs, Output::Matrix { values: &mut values, relu: false });
    for (row, values) in values.chunks_exact(product.padded_outputs()).enumerate() {
        for (output, weights) in affine.weight.chunks_exact(inputs).enumerate() {
            let products = weights.iter().enumerate().map(|(i, &weight)| weight * input.get(0, row, i));
            let want: f64 = f64::from(bias) + products.map(f64::from).sum::<f64>();
            let got = f64::from(values[output]);
            let message = format!("{multiplier:?}, {lengths:?}: row {row}, output {output} is {got}, not {want}");
            assert!((got - want).abs() <= 1e-3 * want.abs().max(1.0), "{message}");
        }
    }
}

#[test]
#[should_panic(expected = "reaches out of its planes")]
fn rows_outside_the_planes_are_refused() {
    let layout = Layout::apart(Board::new(2, 2), 1);
    let packing = KernelVariant::PortableF32.packing();
    let affine = Affine { inputs: 16, taps: 9, weight: vec![0.0; 16 * 16 * 9], bias: vec![0.0; 16], norm: None };
    let input = Planes::new(packing.format, layout, 16);
    let product = Product::convolution(packing, &affine, layout.board);
    let mut output = input.clone();
    let rows = [Run::new(input.lines.len() - 1, 1, 1)];
    let output = Output::Planes { planes: &mut output, first: 0, add: false, relu: false };
    crate::multiplier::Multiplier::new(KernelVariant::PortableF32).multiply(&product, &input, &rows, output, None);
}

const BOARD: Board = Board::new(3, 4);

fn hidden(cells: &[usize]) -> Vec<u8> {
    let hidden = Taps::hidden(BOARD, cells.iter().map(|&cell| BOARD.pixel(cell)));
    Tap::all().into_iter().filter(|&tap| hidden.contain(tap)).map(|tap| tap.0).collect()
}

#[test]
fn taps_are_hidden_where_every_cell_has_the_border() {
    assert_eq!(hidden(&[0]), [0, 1, 2, 3, 6]);
    assert_eq!(hidden(&[1]), [0, 1, 2]);
    assert!(hidden(&[5]).is_empty());
    assert_eq!(hidden(&[11]), [2, 5, 6, 7, 8]);
    assert_eq!(hidden(&[0, 1]), [0, 1, 2]);
    assert_eq!(hidden(&[0, 4]), [0, 3, 6]);
    assert_eq!(hidden(&[0, 11]), [2, 6]);
}

#[test]
fn pixels_of_a_tap_lead_to_the_neighbour() {
    let offsets: Vec<isize> = Tap::all().into_iter().map(|tap| tap.pixels(BOARD)).collect();
    assert_eq!(offsets, [-6, -5, -4, -1, 0, 1, 4, 5, 6]);
    assert_eq!(Tap::HERE.pixels(BOARD), 0);
}

#[test]
fn a_walk_around_the_board_meets_cells_with_the_same_edges_together() {
    let board = Board::new(6, 7);
    let mut cells: Vec<Taps> =
        (0..board.cells()).map(|cell| Taps::hidden(board, std::iter::once(board.pixel(cell)))).collect();
    cells.sort_by_key(|hidden| hidden.around());
    let computed: usize = cells
        .chunks(3)
        .map(|three| {
            let common = three.iter().copied().reduce(Taps::and).unwrap_or_default();
            Tap::all().into_iter().filter(|&tap| !common.contain(tap)).count() * three.len()
        })
        .sum();
    // 304 of 378 taps lie on the board.
    assert_eq!(computed, 315);
}

fn lines(first: u32, len: usize) -> Vec<Line> {
    (first..).take(len).map(|word| Line([word; 16])).collect()
}

#[test]
fn gathered_weights_are_the_same_and_lie_in_one_piece() {
    let all = [lines(1, 7), lines(100, 0), lines(200, 100_000)];
    let mut slabs: Vec<Slab> = all.iter().cloned().map(Slab::from).collect();
    Slab::gather(&mut slabs.iter_mut().collect::<Vec<_>>());
    for (slab, lines) in slabs.iter().zip(&all) {
        assert!(**slab == **lines);
    }
    assert_eq!(slabs[0].as_ptr_range().end, slabs[1].as_ptr());
    assert_eq!(slabs[1].as_ptr(), slabs[2].as_ptr());
    assert_eq!(slabs[0].as_ptr().align_offset(cpu::HUGE_PAGE_BYTES), 0);
}
