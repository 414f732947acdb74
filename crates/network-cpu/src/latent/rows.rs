//! Passes over the outputs of products: layer norm with the operations after it, the rescaling of latent states, and
//! the means of categorical distributions.
//!
//! The functions are plain Rust, inlined into separate functions per path, where the compiler can use the registers
//! of the path.

use std::ops::Range;

use inference::Unroll;

use crate::KernelVariant;
use crate::folded::Normed;
use crate::multiply::rectified;
use crate::planes::{Format, Layout, Line, Planes, TILE_ROWS, WORDS, from_bf16, to_bf16};
use crate::product::{GROUP, Run};

/// ε of the rescaling of latent states.
const RESCALING_EPSILON: f32 = 1e-5;

/// Parameters of a layer norm over `units` numbers. The padding of the last group is zero, and so are the outputs
/// there.
#[derive(Debug, Clone)]
pub(crate) struct Norm {
    scale: Vec<[f32; GROUP]>,
    shift: Vec<[f32; GROUP]>,
    units: usize,
}

impl Norm {
    pub(crate) fn new(layer: &Normed) -> Self {
        Self { scale: grouped(&layer.scale), shift: grouped(&layer.shift), units: layer.scale.len() }
    }

    fn groups(&self) -> usize {
        self.scale.len()
    }
}

/// Returns numbers in groups, the last padded with zeros.
fn grouped(values: &[f32]) -> Vec<[f32; GROUP]> {
    let mut grouped = vec![[0.0; GROUP]; values.len().div_ceil(GROUP)];
    grouped.as_flattened_mut()[..values.len()].copy_from_slice(values);
    grouped
}

/// Matrix columns for one-hot actions, `[A, outputs]`.
///
/// The product with a one-hot vector is one column, so that adding it to the sums replaces A products.
#[derive(Debug, Clone)]
pub(crate) struct ActionColumns {
    values: Vec<[f32; GROUP]>,
    groups: usize,
}

impl ActionColumns {
    /// Takes the columns from `first` on out of weights `[outputs, inputs]`.
    pub(crate) fn new(layer: &Normed, first: usize) -> Self {
        let column = |input: usize| -> Vec<f32> {
            layer.weight.chunks_exact(layer.inputs).map(|weights| weights[input]).collect()
        };
        let values = (first..layer.inputs).flat_map(|input| grouped(&column(input))).collect();
        Self { values, groups: layer.scale.len().div_ceil(GROUP) }
    }

    #[inline(always)]
    fn of(&self, action: usize) -> &[[f32; GROUP]] {
        &self.values[action * self.groups..][..self.groups]
    }
}

/// Operations on the sums of a dense layer, in the order of the fields; ReLU comes before rescaling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish<'a> {
    /// Columns to add, with the actions of the rows.
    pub(crate) actions: Option<(&'a ActionColumns, &'a [Unroll])>,
    pub(crate) norm: &'a Norm,
    /// Add the values in the output.
    pub(crate) add: bool,
    /// Rescale each row to `[0, 1]`.
    pub(crate) rescale: bool,
}

impl<'a> Finish<'a> {
    /// Returns layer norm and ReLU alone.
    pub(crate) fn relu(norm: &'a Norm) -> Self {
        Self { actions: None, norm, add: false, rescale: false }
    }
}

/// Finishes the first `rows` rows of `sums`, `[rows, padded]`, and writes them to the same cells of `output`; the
/// sums are overwritten.
#[inline(always)]
pub(crate) fn finish_rows(finish: &Finish<'_>, rows: usize, sums: &mut [f32], padded: usize, output: &mut Planes) {
    // With the format as a constant, the compiler removes the branches in the loops.
    match output.format {
        Format::F32 => finish_rows_of(Format::F32, finish, rows, sums, padded, output),
        Format::Bf16 => finish_rows_of(Format::Bf16, finish, rows, sums, padded, output),
        Format::I8 => unreachable!("activations are floating-point numbers"),
    }
}

#[inline(always)]
fn finish_rows_of(
    format: Format,
    finish: &Finish<'_>,
    rows: usize,
    sums: &mut [f32],
    padded: usize,
    output: &mut Planes,
) {
    let &Finish { actions, norm, add, rescale } = finish;
    let groups = norm.groups();
    let (first, block_lines) = (output.index(0, 0, 0), output.layout.block_lines);
    for row in 0..rows {
        let sums = &mut sums[row * padded..][..groups * GROUP].as_chunks_mut::<GROUP>().0[..groups];
        if let Some((columns, steps)) = actions {
            for (sums, column) in sums.iter_mut().zip(columns.of(steps[row].action.index())) {
                *sums = each(*sums, *column, |sum, column| sum + column);
            }
        }
        let Moments { mean, inverse } = Moments::of(sums, norm.units);
        let lines = &mut output.lines[first + row..];
        for (group, (sums, (scale, shift))) in sums.iter_mut().zip(norm.scale.iter().zip(&norm.shift)).enumerate() {
            let scaled = each(*sums, *scale, |sum, scale| (sum - mean) * inverse * scale);
            let mut normed = each(scaled, *shift, |scaled, shift| scaled + shift);
            if add {
                normed = each(normed, read(format, lines, block_lines, group), |normed, there| normed + there);
            }
            normed = normed.map(rectified);
            *sums = normed;
            if !rescale {
                write(format, lines, block_lines, group, &normed);
            }
        }
        if rescale {
            let Rescaling { least, factor } = Rescaling::new(Extremes::of(sums, norm.units));
            for (group, sums) in sums.iter().enumerate() {
                write(format, lines, block_lines, group, &sums.map(|value| (value - least) * factor));
            }
        }
    }
}

/// Combines two groups lane by lane. Groups are values here and below: from loops over lanes of groups in memory, the
/// compiler makes registers across groups, and gathers them lane by lane.
#[inline(always)]
pub(crate) fn each(a: [f32; GROUP], b: [f32; GROUP], combine: impl Fn(f32, f32) -> f32) -> [f32; GROUP] {
    std::array::from_fn(|lane| combine(a[lane], b[lane]))
}

/// Replaces `runs` by the runs of a layout's first `rows` cells, each a row of a matrix.
pub(crate) fn take_rows(path: KernelVariant, layout: Layout, rows: usize, runs: &mut Vec<Run>) {
    take_lines(path, layout.margin()..layout.margin() + rows, runs);
}

/// Replaces `runs` by the runs for a range of lines, each a row of a matrix.
pub(crate) fn take_lines(path: KernelVariant, lines: Range<usize>, runs: &mut Vec<Run>) {
    let most = if path.has_tiles() { TILE_ROWS } else { path.rows_of_run() };
    let Range { start, end } = lines;
    runs.clear();
    runs.extend((start..end).step_by(most).map(|first| Run::new(first, most.min(end - first), 1)));
}

/// Reads sixteen channels of a row, with blocks `block_lines` lines apart.
#[inline(always)]
pub(crate) fn read(format: Format, lines: &[Line], block_lines: usize, group: usize) -> [f32; GROUP] {
    match format {
        Format::F32 => lines[group * block_lines].0.map(f32::from_bits),
        _ => {
            let words = lines[group / 2 * block_lines].0.as_chunks::<{ WORDS / 2 }>().0[group % 2];
            let mut values = [0.0; GROUP];
            for (word, values) in words.iter().zip(values.as_chunks_mut::<2>().0) {
                *values = [from_bf16(*word as u16), from_bf16((*word >> 16) as u16)];
            }
            values
        }
    }
}

/// Writes sixteen channels of a row, rounded to the format; the inverse of [`read`].
#[inline(always)]
pub(crate) fn write(format: Format, lines: &mut [Line], block_lines: usize, group: usize, values: &[f32; GROUP]) {
    match format {
        Format::F32 => lines[group * block_lines].0 = values.map(f32::to_bits),
        _ => {
            let words = &mut lines[group / 2 * block_lines].0.as_chunks_mut::<{ WORDS / 2 }>().0[group % 2];
            for (word, [even, odd]) in words.iter_mut().zip(values.as_chunks::<2>().0) {
                *word = u32::from(to_bf16(*even)) | u32::from(to_bf16(*odd)) << 16;
            }
        }
    }
}

/// Splits the first `units` numbers into whole groups and the rest.
#[inline(always)]
fn split(values: &[[f32; GROUP]], units: usize) -> (&[[f32; GROUP]], &[f32]) {
    let (whole, rest) = values.split_at(units / GROUP);
    (whole, rest.first().map_or(&[], |group| &group[..units % GROUP]))
}

/// Mean of numbers, and inverse standard deviation with the ε of a layer norm.
struct Moments {
    mean: f32,
    inverse: f32,
}

impl Moments {
    #[inline(always)]
    fn of(values: &[[f32; GROUP]], units: usize) -> Self {
        let (whole, rest) = split(values, units);
        let sums = whole.iter().fold([0.0; GROUP], |sums, values| each(sums, *values, |sum, value| sum + value));
        let mean = (total(sums) + rest.iter().sum::<f32>()) / units as f32;
        let square = |sum: f32, value: f32| sum + (value - mean) * (value - mean);
        let squares = whole.iter().fold([0.0; GROUP], |squares, values| each(squares, *values, square));
        let of_rest: f32 = rest.iter().map(|value| (value - mean) * (value - mean)).sum();
        let variance = (total(squares) + of_rest) / units as f32;
        Self { mean, inverse: 1.0 / (variance + network::NORM_EPSILON as f32).sqrt() }
    }
}

/// Combines all lanes by halves, which takes four operations on registers instead of sixteen on numbers.
#[inline(always)]
fn fold(lanes: [f32; GROUP], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|lane| combine(lanes[lane], lanes[lane + 8]));
    let four: [f32; 4] = std::array::from_fn(|lane| combine(eight[lane], eight[lane + 4]));
    let two: [f32; 2] = std::array::from_fn(|lane| combine(four[lane], four[lane + 2]));
    combine(two[0], two[1])
}

/// Returns the sum of all lanes.
#[inline(always)]
pub(crate) fn total(lanes: [f32; GROUP]) -> f32 {
    fold(lanes, |a, b| a + b)
}

/// Minimum and maximum in each lane.
#[derive(Clone, Copy)]
struct Extremes {
    least: [f32; GROUP],
    greatest: [f32; GROUP],
}

impl Extremes {
    const NONE: Self = Self { least: [f32::INFINITY; GROUP], greatest: [f32::NEG_INFINITY; GROUP] };

    #[inline(always)]
    fn of(values: &[[f32; GROUP]], units: usize) -> Self {
        let (whole, rest) = split(values, units);
        let mut extremes = Self::NONE;
        whole.iter().for_each(|values| extremes.see(*values));
        // Every lane beyond the rest repeats the first number of the rest.
        let [filler, ..] = *rest else { return extremes };
        let mut last = [filler; GROUP];
        last[..rest.len()].copy_from_slice(rest);
        extremes.see(last);
        extremes
    }

    #[inline(always)]
    fn see(&mut self, values: [f32; GROUP]) {
        self.least = each(self.least, values, lesser);
        self.greatest = each(self.greatest, values, greater);
    }
}

/// Returns the smaller number; the first if one is NaN.
#[inline(always)]
fn lesser(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

/// Returns the larger number; the first if one is NaN.
#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// Parameters of the rescaling `(x − least) · factor`, that is `(x − min) / (max − min + 1e-5)`.
struct Rescaling {
    least: f32,
    factor: f32,
}

impl Rescaling {
    #[inline(always)]
    fn new(extremes: Extremes) -> Self {
        let least = fold(extremes.least, lesser);
        let greatest = fold(extremes.greatest, greater);
        Self { least, factor: 1.0 / (greatest - least + RESCALING_EPSILON) }
    }
}

/// Rescales the first `channels` channels of a position jointly to `[0, 1]`. NaN stays NaN.
#[inline(always)]
pub(crate) fn rescale(planes: &mut Planes, position: usize, channels: usize) {
    match planes.format {
        Format::F32 => rescale_of(Format::F32, planes, position, channels),
        Format::Bf16 => rescale_of(Format::Bf16, planes, position, channels),
        Format::I8 => unreachable!("activations are floating-point numbers"),
    }
}

#[inline(always)]
fn rescale_of(format: Format, planes: &mut Planes, position: usize, channels: usize) {
    let groups_per_line = format.per_line() / GROUP;
    // Channels come in whole groups, so that a group which pads a line is left out and stays zero.
    let groups = channels / GROUP;
    let mut extremes = Extremes::NONE;
    for group in 0..groups {
        for line in planes.cells(group / groups_per_line, position) {
            extremes.see(read(format, &planes.lines[line..=line], 0, group % groups_per_line));
        }
    }
    let Rescaling { least, factor } = Rescaling::new(extremes);
    for group in 0..groups {
        for line in planes.cells(group / groups_per_line, position) {
            let line = &mut planes.lines[line..=line];
            let values = read(format, line, 0, group % groups_per_line).map(|value| (value - least) * factor);
            write(format, line, 0, group % groups_per_line, &values);
        }
    }
}

/// Writes the mean atom of each row of logits `[rows, padded]` to `means`; atoms are −n to n. A row with a number
/// that is not finite has the mean NaN.
#[inline(always)]
pub(crate) fn means_of_atoms(logits: &[f32], padded: usize, bound: usize, means: &mut [f32]) {
    let atoms = 2 * bound + 1;
    for (mean, logits) in means.iter_mut().zip(logits.chunks_exact(padded)) {
        let (whole, rest) = logits[..atoms].as_chunks::<GROUP>();
        // Far below all logits, but finite: the padding has no share.
        let mut last = [f32::MIN; GROUP];
        last[..rest.len()].copy_from_slice(rest);
        let largest = fold(whole.iter().fold(last, |largest, logits| each(largest, *logits, greater)), greater);
        let mut atom: [f32; GROUP] = std::array::from_fn(|lane| lane as f32 - bound as f32);
        let (mut shares, mut weighted, mut poison) = ([0.0; GROUP], [0.0; GROUP], [0.0; GROUP]);
        for index in 0..=whole.len() {
            let logits = whole.get(index).copied().unwrap_or(last);
            let share = exp_of_negative(logits.map(|logit| logit - largest));
            shares = each(shares, share, |sum, share| sum + share);
            weighted = each(weighted, each(share, atom, |share, atom| share * atom), |sum, product| sum + product);
            // Comparisons and clamping lose a NaN; this keeps it, and turns an infinity into one.
            poison = each(poison, logits, |poison, logit| poison + logit * 0.0);
            atom = atom.map(|atom| atom + GROUP as f32);
        }
        *mean = total(weighted) / total(shares) + total(poison);
    }
}

/// Returns `exp(x)` for x ≤ 0, to 2 units in the last place; below −87 it returns `exp(−87)`, which is nearly the
/// smallest normal number. Cody & Waite's reduction and the polynomial of the Cephes library.
#[inline(always)]
fn exp_of_negative(x: [f32; GROUP]) -> [f32; GROUP] {
    /// Adding this rounds to an integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    const POLYNOMIAL: [f32; 6] = [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    x.map(|x| {
        let x = if x > -87.0 { x } else { -87.0 };
        let rounded = x * std::f32::consts::LOG2_E + ROUND;
        let n = rounded - ROUND;
        let r = x - n * LN_2_HIGH - n * LN_2_LOW;
        let series = POLYNOMIAL.into_iter().fold(0.0, |series, coefficient| series * r + coefficient);
        let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23));
        (series * r * r + r + 1.0) * power
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_of_every_negative_number_is_exact_to_two_units_in_the_last_place() {
        for step in 0..=870_000 {
            let x = -(step as f32) / 10_000.0;
            let [got, ..] = exp_of_negative([x; GROUP]);
            let want = f64::from(x).exp();
            assert!((f64::from(got) - want).abs() <= 2.4e-7 * want, "exp({x}) is {got}, not {want}");
        }
        for x in [-88.0, -1e30, f32::NEG_INFINITY] {
            let [got, ..] = exp_of_negative([x; GROUP]);
            assert!((0.0..2e-38).contains(&got), "exp({x}) is {got}");
        }
    }

    /// Returns the mean atom of one distribution.
    fn mean(logits: &[f32]) -> f32 {
        let mut padded = logits.to_vec();
        // The padding of a row is not read.
        padded.resize(logits.len().next_multiple_of(GROUP), f32::NAN);
        let mut means = [0.0];
        means_of_atoms(&padded, padded.len(), logits.len() / 2, &mut means);
        means[0]
    }

    #[test]
    fn the_mean_of_atoms_agrees_with_float64_for_every_support() {
        for bound in (1..=70).chain([300, 1024]) {
            for scale in [0.1, 3.0, 60.0] {
                let logits: Vec<f32> = (0..=2 * bound).map(|i| (i * i % 31) as f32 * scale / 31.0 - 2.0).collect();
                let shares: Vec<f64> = logits.iter().map(|&logit| f64::from(logit).exp()).collect();
                let weighted = shares.iter().enumerate().map(|(i, share)| share * (i as f64 - bound as f64));
                let want = weighted.sum::<f64>() / shares.iter().sum::<f64>();
                let got = f64::from(mean(&logits));
                assert!((got - want).abs() <= 2e-6 * bound as f64, "bound {bound}, scale {scale}: {got}, not {want}");
            }
        }
    }

    #[test]
    fn the_mean_of_atoms_is_not_finite_if_a_logit_is_not() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for index in 0..21 {
                let mut logits = [0.5; 21];
                logits[index] = bad;
                assert!(mean(&logits).is_nan(), "{bad} at {index}");
            }
        }
        assert!(mean(&[f32::MAX, f32::MIN, 0.0]).is_finite());
    }
}
