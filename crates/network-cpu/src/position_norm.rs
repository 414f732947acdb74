//! Norms of single positions after convolutions.
//!
//! The functions are plain Rust, inlined into separate functions per path, like `pooling`.

use network::{GROUP_CHANNELS, NORM_EPSILON};

use crate::folded;
use crate::latent::rows::{each, read, total, write};
use crate::planes::{Format, Line, Planes};
use crate::product::GROUP;

// A group of a group norm fills one register.
const _: () = assert!(GROUP_CHANNELS == GROUP);

/// A norm of single positions, with channels in groups of sixteen.
#[derive(Debug, Clone)]
pub(crate) struct PositionNorm {
    /// Groups normed together in a cell; `None` if each group is normed alone over all cells.
    together: Option<usize>,
    scale: Vec<[f32; GROUP]>,
    shift: Vec<[f32; GROUP]>,
}

impl PositionNorm {
    pub(crate) fn new(norm: &folded::PositionNorm) -> Self {
        let grouped = |numbers: &[f32]| numbers.as_chunks::<GROUP>().0.to_vec();
        let (scale, shift) = (grouped(&norm.scale), grouped(&norm.shift));
        Self { together: (!norm.is_grouped).then_some(scale.len() / norm.convolutions), scale, shift }
    }
}

/// Replaces the first channels of a position with normed values.
#[inline(always)]
pub(crate) fn normalise(norm: &PositionNorm, y: &mut Planes, position: usize) {
    // With the format as a constant, the compiler removes the branches in the loops.
    match y.format {
        Format::F32 => normalise_of(Format::F32, norm, y, position),
        Format::Bf16 => normalise_of(Format::Bf16, norm, y, position),
        Format::I8 => unreachable!("int8 values are only multiplied"),
    }
}

#[inline(always)]
fn normalise_of(format: Format, norm: &PositionNorm, y: &mut Planes, position: usize) {
    let block_lines = y.layout.block_lines;
    match norm.together {
        Some(together) => {
            for line in y.cells(0, position) {
                let lines = &mut y.lines[line..];
                for first in (0..norm.scale.len()).step_by(together) {
                    layer_norm(format, norm, lines, block_lines, first..first + together);
                }
            }
        }
        None => {
            let per_line = format.per_line() / GROUP;
            for group in 0..norm.scale.len() {
                let (block, group_of_line) = (group / per_line, group % per_line);
                let numbers = (y.layout.board.cells() * GROUP) as f32;
                let of_cell = |y: &Planes, line: usize| read(format, &y.lines[line..=line], 0, group_of_line);
                let (mut sums, mut squares) = ([0.0; GROUP], [0.0; GROUP]);
                for line in y.cells(block, position) {
                    sums = each(sums, of_cell(y, line), |sum, y| sum + y);
                }
                let mean = total(sums) / numbers;
                for line in y.cells(block, position) {
                    squares = each(squares, of_cell(y, line), |sum, y| sum + (y - mean) * (y - mean));
                }
                let line_of = Affine::new(mean, total(squares) / numbers, norm, group);
                for line in y.cells(block, position) {
                    let normed = line_of.of(of_cell(y, line));
                    write(format, &mut y.lines[line..=line], 0, group_of_line, &normed);
                }
            }
        }
    }
}

/// Norms groups of channels of a cell together.
#[inline(always)]
fn layer_norm(
    format: Format,
    norm: &PositionNorm,
    lines: &mut [Line],
    block_lines: usize,
    groups: std::ops::Range<usize>,
) {
    let numbers = (groups.len() * GROUP) as f32;
    let (mut sums, mut squares) = ([0.0; GROUP], [0.0; GROUP]);
    for group in groups.clone() {
        sums = each(sums, read(format, lines, block_lines, group), |sum, y| sum + y);
    }
    let mean = total(sums) / numbers;
    for group in groups.clone() {
        squares = each(squares, read(format, lines, block_lines, group), |sum, y| sum + (y - mean) * (y - mean));
    }
    let variance = total(squares) / numbers;
    for group in groups {
        let normed = Affine::new(mean, variance, norm, group).of(read(format, lines, block_lines, group));
        write(format, lines, block_lines, group, &normed);
    }
}

/// Parameters of `(y − mean) · slope + shift` for the channels of a group.
struct Affine {
    mean: f32,
    slope: [f32; GROUP],
    shift: [f32; GROUP],
}

impl Affine {
    #[inline(always)]
    fn new(mean: f32, variance: f32, norm: &PositionNorm, group: usize) -> Self {
        let inverse = 1.0 / (variance + NORM_EPSILON as f32).sqrt();
        Self { mean, slope: norm.scale[group].map(|scale| scale * inverse), shift: norm.shift[group] }
    }

    #[inline(always)]
    fn of(&self, y: [f32; GROUP]) -> [f32; GROUP] {
        let centred = y.map(|y| y - self.mean);
        each(each(centred, self.slope, |y, slope| y * slope), self.shift, |y, shift| y + shift)
    }
}

/// Adds the first channels of a position of `z` to `x`.
#[inline(always)]
pub(crate) fn add(z: &Planes, x: &mut Planes, position: usize, channels: usize) {
    for block in 0..x.format.lines(channels) {
        for line in x.cells(block, position) {
            let z = z.lines[line].unpack(x.format);
            let mut values = x.lines[line].unpack(x.format);
            values.iter_mut().zip(z).for_each(|(x, z)| *x += z);
            x.lines[line].pack(x.format, &values);
        }
    }
}
