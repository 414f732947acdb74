//! What looks at a whole position at once: global pooling, squeeze-and-excitation.

use crate::folded::{Dense, Excitation};
use crate::planes::Planes;

/// Numbers of one position between the layers of these operations; grows to the widest and stays.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summaries {
    inputs: Vec<f32>,
    hidden: Vec<f32>,
    outputs: Vec<f32>,
}

/// Global pooling (after Wu 2019, section 3.3), then ReLU over all channels of `y`: means and maxima of its first G
/// channels, rectified, become a bias of the others.
pub(crate) fn pool(y: &mut Planes, position: usize, pooling: &Dense, channels: usize, summaries: &mut Summaries) {
    let pooled = pooling.inputs / 2;
    let Summaries { inputs, outputs, .. } = summaries;
    inputs.clear();
    inputs.resize(2 * pooled, 0.0);
    let (means, maxima) = inputs.split_at_mut(pooled);
    each_line(y, position, pooled, |_, first, values| {
        let count = values.len().min(pooled - first);
        for (lane, value) in values[..count].iter_mut().enumerate() {
            let value = if 0.0 > *value { 0.0 } else { *value };
            means[first + lane] += value;
            maxima[first + lane] = if value > maxima[first + lane] { value } else { maxima[first + lane] };
        }
    });
    let cells = y.board.cells() as f32;
    means.iter_mut().for_each(|mean| *mean /= cells);
    // No bias for the pooled channels themselves.
    outputs.clear();
    outputs.resize(pooled, 0.0);
    layer(pooling, inputs, outputs);
    each_line(y, position, channels, |_, first, values| {
        let count = values.len().min(channels - first);
        for (value, bias) in values[..count].iter_mut().zip(&outputs[first..]) {
            let sum = *value + bias;
            *value = if 0.0 > sum { 0.0 } else { sum };
        }
    });
}

/// Squeeze-and-excitation (Hu et al. 2018, with the bias of Leela Chess Zero), the residual addition and ReLU:
/// `x ← relu(x + σ(s) · z + b)` with scales s and biases b from the means of z.
pub(crate) fn excite(
    z: &mut Planes,
    x: &mut Planes,
    position: usize,
    excitation: &Excitation,
    channels: usize,
    summaries: &mut Summaries,
) {
    let Summaries { inputs, hidden, outputs } = summaries;
    inputs.clear();
    inputs.resize(channels, 0.0);
    each_line(z, position, channels, |_, first, values| {
        let count = values.len().min(channels - first);
        for (mean, value) in inputs[first..].iter_mut().zip(&values[..count]) {
            *mean += *value;
        }
    });
    let cells = z.board.cells() as f32;
    inputs.iter_mut().for_each(|mean| *mean /= cells);
    hidden.clear();
    layer(&excitation.hidden, inputs, hidden);
    hidden.iter_mut().for_each(|value| *value = if 0.0 > *value { 0.0 } else { *value });
    outputs.clear();
    layer(&excitation.output, hidden, outputs);
    let (scales, biases) = outputs.split_at_mut(channels);
    scales.iter_mut().for_each(|scale| *scale = 1.0 / (1.0 + (-*scale).exp()));

    let format = x.format;
    each_line(x, position, channels, |line, first, values| {
        let z = z.lines[line].unpack(format);
        let count = values.len().min(channels - first);
        for lane in 0..count {
            let sum = values[lane] + scales[first + lane] * z[lane] + biases[first + lane];
            values[lane] = if 0.0 > sum { 0.0 } else { sum };
        }
    });
}

/// Calls `change(line, first channel, values)` with the values of every cell of a position, for every line that holds some
/// of the first `channels` channels, and writes them back.
fn each_line(planes: &mut Planes, position: usize, channels: usize, mut change: impl FnMut(usize, usize, &mut [f32])) {
    let (board, format) = (planes.board, planes.format);
    let per_line = format.per_line();
    for block in 0..format.lines(channels) {
        for row in 0..board.height {
            let first = planes.index(block, position, row * board.pitch());
            for line in first..first + board.width {
                let mut values = planes.lines[line].unpack(format);
                change(line, block * per_line, &mut values[..per_line]);
                planes.lines[line].pack(format, &values);
            }
        }
    }
}

/// Appends the outputs of a layer.
fn layer(dense: &Dense, inputs: &[f32], outputs: &mut Vec<f32>) {
    for (weights, bias) in dense.weight.chunks_exact(dense.inputs).zip(&dense.bias) {
        outputs.push(bias + dot(weights, inputs));
    }
}

/// In eight strands, which the compiler keeps in registers side by side.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut strands = [0.0; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        (0..8).for_each(|lane| strands[lane] += a[lane] * b[lane]);
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    strands.iter().sum::<f32>() + rest
}
