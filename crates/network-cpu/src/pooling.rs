//! Layers over a whole position: global pooling, squeeze-and-excitation, pooled heads, and activations that no
//! product applies.
//!
//! The functions are plain Rust, inlined into separate functions per path, where the compiler can use the registers
//! of the path.

use network::activation::Function;
use network::{Activation, HEAD_CHANNELS, POOLED, with_function};

use crate::folded::{Dense, Excitation};
use crate::multiply::rectified;
use crate::planes::{CHANNELS_MAX, Format, Planes};

/// Buffers for per-position numbers between these layers; they grow to the widest layer and are kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summaries {
    inputs: Vec<f32>,
    hidden: Vec<f32>,
    outputs: Vec<f32>,
}

/// Matrices over pooled features: means, scaled means and maxima `[96]` of a head's channels over the cells.
#[derive(Debug)]
pub(crate) struct PooledMatrices {
    /// To the logits of actions that belong to no cell, if there are any.
    pub(crate) rest: Option<Dense>,
    /// To hidden units `[64]`.
    pub(crate) hidden: Dense,
    /// Multiplier of the scaled means.
    pub(crate) mean_scale: f32,
}

/// Applies an activation to the first channels of a position of `y`. Zeros stay zero, so that borders and padding do
/// not matter.
#[inline(always)]
pub(crate) fn activate(y: &mut Planes, position: usize, activation: Activation, channels: usize) {
    with_function!(activation, f => {
        for block in 0..y.format.lines(channels) {
            for line in y.cells(block, position) {
                let line = &mut y.lines[line];
                match y.format {
                    Format::F32 => line.0.iter_mut().for_each(|word| *word = f.value(f32::from_bits(*word)).to_bits()),
                    format => {
                        let values = line.unpack(format).map(|value| f.value(value));
                        line.pack(format, &values);
                    }
                }
            }
        }
    });
}

/// Applies global pooling (after Wu 2019, section 3.3), then f to all channels of `y`: means and maxima over f of the
/// first G channels become a bias of the remaining channels.
#[inline(always)]
pub(crate) fn pool<F: Function>(
    f: F,
    y: &mut Planes,
    position: usize,
    pooling: &Dense,
    channels: usize,
    summaries: &mut Summaries,
) {
    let (format, pooled) = (y.format, pooling.inputs / 2);
    let Summaries { inputs, outputs, .. } = summaries;
    inputs.clear();
    inputs.resize(2 * pooled, 0.0);
    let (means, maxima) = inputs.split_at_mut(pooled);
    summarise(|value| f.value(value), y, position, 0, means, maxima);
    // No bias for the pooled channels.
    outputs.clear();
    outputs.resize(channels, 0.0);
    layer(pooling, inputs, &mut outputs[pooled..]);
    for (block, first) in (0..channels).step_by(format.per_line()).enumerate() {
        let biases = of_block(&outputs[first..]);
        for line in y.cells(block, position) {
            let mut values = y.lines[line].unpack(format);
            for lane in 0..CHANNELS_MAX {
                values[lane] = f.value(values[lane] + biases[lane]);
            }
            y.lines[line].pack(format, &values);
        }
    }
}

/// Writes means and maxima of f over a position's cells, for consecutive channels of `y` from channel `first` on.
#[inline(always)]
fn summarise(f: impl Fn(f32) -> f32, y: &Planes, position: usize, first: usize, means: &mut [f32], maxima: &mut [f32]) {
    let (format, cells) = (y.format, y.layout.board.cells() as f32);
    let per_line = format.per_line();
    let of_lines = means.chunks_mut(per_line).zip(maxima.chunks_mut(per_line));
    for (block, (means, maxima)) in (first / per_line..).zip(of_lines) {
        let (mut sums, mut largest) = ([0.0; CHANNELS_MAX], [f32::NEG_INFINITY; CHANNELS_MAX]);
        for line in y.cells(block, position) {
            let values = y.lines[line].unpack(format);
            for lane in 0..CHANNELS_MAX {
                let value = f(values[lane]);
                sums[lane] += value;
                largest[lane] = if value > largest[lane] { value } else { largest[lane] };
            }
        }
        means.iter_mut().zip(sums).for_each(|(mean, sum)| *mean = sum / cells);
        maxima.iter_mut().zip(largest).for_each(|(maximum, largest)| *maximum = largest);
    }
}

/// Computes the logits of actions that belong to no cell, and f of the value's hidden units, given both heads'
/// features.
#[inline(always)]
pub(crate) fn multiply_pooled<F: Function>(
    f: F,
    features: &Planes,
    position: usize,
    matrices: &PooledMatrices,
    logits: &mut [f32],
    hidden: &mut [f32],
) {
    let pooled = |first| {
        let mut pooled = [0.0; POOLED];
        let (means, others) = pooled.split_at_mut(HEAD_CHANNELS);
        let (scaled, maxima) = others.split_at_mut(HEAD_CHANNELS);
        summarise(|value| value, features, position, first, means, maxima);
        scaled.iter_mut().zip(means).for_each(|(scaled, mean)| *scaled = *mean * matrices.mean_scale);
        pooled
    };
    if let Some(rest) = &matrices.rest {
        layer(rest, &pooled(0), logits);
    }
    layer(&matrices.hidden, &pooled(HEAD_CHANNELS), hidden);
    hidden.iter_mut().for_each(|unit| *unit = f.value(*unit));
}

/// Applies squeeze-and-excitation (Hu et al. 2018, with the bias of Leela Chess Zero), the residual addition and f:
/// `x ← f(x + σ(s) · z + b)` with scales s and biases b from the means of z.
#[inline(always)]
pub(crate) fn excite<F: Function>(
    f: F,
    z: &Planes,
    x: &mut Planes,
    position: usize,
    excitation: &Excitation,
    channels: usize,
    summaries: &mut Summaries,
) {
    let format = x.format;
    let Summaries { inputs, hidden, outputs } = summaries;
    inputs.clear();
    inputs.resize(channels, 0.0);
    let cells = z.layout.board.cells() as f32;
    for (block, first) in (0..channels).step_by(format.per_line()).enumerate() {
        let mut sums = [0.0; CHANNELS_MAX];
        for line in z.cells(block, position) {
            let values = z.lines[line].unpack(format);
            (0..CHANNELS_MAX).for_each(|lane| sums[lane] += values[lane]);
        }
        inputs[first..].iter_mut().zip(sums).take(format.per_line()).for_each(|(mean, sum)| *mean = sum / cells);
    }
    hidden.resize(excitation.hidden.bias.len(), 0.0);
    layer(&excitation.hidden, inputs, hidden);
    hidden.iter_mut().for_each(|value| *value = rectified(*value));
    outputs.resize(excitation.output.bias.len(), 0.0);
    layer(&excitation.output, hidden, outputs);
    let (scales, biases) = outputs.split_at_mut(channels);
    scales.iter_mut().for_each(|scale| *scale = 1.0 / (1.0 + (-*scale).exp()));

    for (block, first) in (0..channels).step_by(format.per_line()).enumerate() {
        let (scales, biases) = (of_block(&scales[first..]), of_block(&biases[first..]));
        for line in x.cells(block, position) {
            let (z, mut values) = (z.lines[line].unpack(format), x.lines[line].unpack(format));
            for lane in 0..CHANNELS_MAX {
                values[lane] = f.value(values[lane] + scales[lane] * z[lane] + biases[lane]);
            }
            x.lines[line].pack(format, &values);
        }
    }
}

/// Pads the first numbers with zeros to a block, so that padding channels stay zero.
#[inline(always)]
fn of_block(values: &[f32]) -> [f32; CHANNELS_MAX] {
    let mut block = [0.0; CHANNELS_MAX];
    block.iter_mut().zip(values).for_each(|(block, value)| *block = *value);
    block
}

/// Computes the outputs of a linear layer.
#[inline(always)]
fn layer(dense: &Dense, inputs: &[f32], outputs: &mut [f32]) {
    let rows = dense.weight.chunks_exact(dense.inputs).zip(&dense.bias);
    for (output, (weights, bias)) in outputs.iter_mut().zip(rows) {
        *output = bias + dot(weights, inputs);
    }
}

/// Computes a dot product in eight strands, which the compiler keeps in registers.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut strands = [0.0; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        (0..8).for_each(|lane| strands[lane] += a[lane] * b[lane]);
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    strands.iter().sum::<f32>() + rest
}
