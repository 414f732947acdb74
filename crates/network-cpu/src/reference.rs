//! Reference for every path: evaluates a network in float64 by definition.

use network::{Activation, GROUP_CHANNELS, HEAD_CHANNELS, HeadKind, NORM_EPSILON, activation};

use crate::folded::{Affine, Attention, Block, Dense, Excitation, Folded, PositionNorm};

/// Returns the logits `[A + 3]` of one observation `[C, H, W]`: policy, then win, draw and loss.
pub(crate) fn logits(network: &Folded, observation: &[f32]) -> Vec<f64> {
    let size = (network.architecture.height, network.architecture.width);
    let observation: Vec<f64> = observation.iter().map(|&value| f64::from(value)).collect();
    let mut x = convolve(&network.stem, &observation, size);
    let activation = network.architecture.design.activation;
    let activate = |values: &mut Vec<f64>| activate(activation, values);
    activate(&mut x);
    for block in &network.blocks {
        x = residual(block, activation, &x, size);
    }
    let (channels, cells) = (x.len() / (size.0 * size.1), size.0 * size.1);
    for block in &network.attention {
        let by_cell = transposed(&x, cells);
        x = transposed(&attention(block, activation, by_cell, cells), channels);
    }
    let mut features = convolve(&network.heads, &x, size);
    activate(&mut features);
    let (of_policy, of_value) = features.split_at(HEAD_CHANNELS * cells);
    let (mut logits, mut hidden) = match network.architecture.design.heads {
        HeadKind::Flattened => {
            let by_cell = |features| transposed(features, cells);
            (layer(&network.policy, &by_cell(of_policy)), layer(&network.hidden, &by_cell(of_value)))
        }
        HeadKind::Pooled => {
            let by_cell = transposed(of_policy, cells);
            let of_cells = by_cell.chunks_exact(HEAD_CHANNELS).flat_map(|features| layer(&network.policy, features));
            let others = network.rest.iter().flat_map(|rest| layer(rest, &pooled(of_policy, cells)));
            (of_cells.chain(others).collect(), layer(&network.hidden, &pooled(of_value, cells)))
        }
    };
    activate(&mut hidden);
    logits.extend(layer(&network.value, &hidden));
    logits
}

/// Returns `P(h)` as in [`network::Layers`], for the features `[32, cells]` of a head.
fn pooled(features: &[f64], cells: usize) -> Vec<f64> {
    let means: Vec<f64> = features.chunks_exact(cells).map(|h| h.iter().sum::<f64>() / cells as f64).collect();
    let scaled = means.iter().map(|mean| mean * ((cells as f64).sqrt() - 14.0) / 10.0);
    let maxima = features.chunks_exact(cells).map(|h| h.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    means.iter().copied().chain(scaled).chain(maxima).collect()
}

/// Applies one residual block to `[C, H, W]`.
pub(crate) fn residual(block: &Block, activation: Activation, x: &[f64], size: (usize, usize)) -> Vec<f64> {
    let cells = size.0 * size.1;
    let mut input = block.down.as_ref().map_or_else(|| x.to_vec(), |down| convolve(down, x, size));
    if block.down.is_some() {
        activate(activation, &mut input);
    }
    let mut y = convolve(&block.first, &input, size);
    if let Some(pooling) = &block.pooling {
        pool(pooling, activation, &mut y, cells);
    }
    activate(activation, &mut y);
    let mut z = convolve(&block.second, &y, size);
    if let Some(up) = &block.up {
        activate(activation, &mut z);
        z = convolve(up, &z, size);
    }
    if let Some(excitation) = &block.excitation {
        excite(excitation, &mut z, cells);
    }
    z.iter_mut().zip(x).for_each(|(z, x)| *z += x);
    activate(activation, &mut z);
    z
}

fn pool(pooling: &Dense, activation: Activation, y: &mut [f64], cells: usize) {
    let pooled = pooling.inputs / 2;
    let of_channel = |channel: usize| y[channel * cells..][..cells].iter().map(|&y| activation::value(activation, y));
    let means = (0..pooled).map(|channel| of_channel(channel).sum::<f64>() / cells as f64);
    let maxima = (0..pooled).map(|channel| of_channel(channel).fold(f64::NEG_INFINITY, f64::max));
    let summary: Vec<f64> = means.chain(maxima).collect();
    for (channel, bias) in layer(pooling, &summary).into_iter().enumerate() {
        y[(pooled + channel) * cells..][..cells].iter_mut().for_each(|y| *y += bias);
    }
}

fn excite(excitation: &Excitation, z: &mut [f64], cells: usize) {
    let means: Vec<f64> = z.chunks_exact(cells).map(|z| z.iter().sum::<f64>() / cells as f64).collect();
    let mut hidden = layer(&excitation.hidden, &means);
    rectify(&mut hidden);
    let output = layer(&excitation.output, &hidden);
    let channels = means.len();
    for (channel, z) in z.chunks_exact_mut(cells).enumerate() {
        let scale = 1.0 / (1.0 + (-output[channel]).exp());
        z.iter_mut().for_each(|z| *z = *z * scale + output[channels + channel]);
    }
}

/// Convolves `[inputs, H, W]` to `[outputs, H, W]`, with zero padding.
pub(crate) fn convolve(affine: &Affine, x: &[f64], (height, width): (usize, usize)) -> Vec<f64> {
    let cells = height * width;
    let mut y: Vec<f64> = affine.bias.iter().flat_map(|&bias| vec![f64::from(bias); cells]).collect();
    let side = if affine.taps == 9 { 3 } else { 1 };
    for (y, weights) in y.chunks_exact_mut(cells).zip(affine.weight.chunks_exact(affine.inputs * affine.taps)) {
        for (x, weights) in x.chunks_exact(cells).zip(weights.chunks_exact(affine.taps)) {
            for (tap, &weight) in weights.iter().enumerate() {
                let [(to_row, from_row, rows), (to, from, columns)] =
                    [(tap / side, height), (tap % side, width)].map(|(tap, size)| overlap(tap, side / 2, size));
                // Whole rows are processed at once for speed, since tests call this for many networks.
                for row in 0..rows {
                    let y = &mut y[(to_row + row) * width + to..][..columns];
                    let x = &x[(from_row + row) * width + from..][..columns];
                    y.iter_mut().zip(x).for_each(|(y, x)| *y += f64::from(weight) * x);
                }
            }
        }
    }
    if let Some(norm) = &affine.norm {
        normalise(norm, &mut y, cells);
    }
    y
}

/// Applies a norm of single positions to `[C, cells]`.
fn normalise(norm: &PositionNorm, y: &mut [f64], cells: usize) {
    let channels = norm.scale.len();
    let of_one = channels / norm.convolutions;
    let normed: Vec<Vec<usize>> = if norm.is_grouped {
        let group = |first: usize| (first * cells..(first + GROUP_CHANNELS) * cells).collect();
        (0..channels).step_by(GROUP_CHANNELS).map(group).collect()
    } else {
        let of_cell = |first: usize, cell: usize| (first..first + of_one).map(|c| c * cells + cell).collect();
        let firsts = (0..channels).step_by(of_one);
        firsts.flat_map(|first| (0..cells).map(move |cell| of_cell(first, cell))).collect()
    };
    for indices in normed {
        let mut numbers: Vec<f64> = indices.iter().map(|&index| y[index]).collect();
        standardise(&mut numbers);
        for (index, number) in indices.into_iter().zip(numbers) {
            let channel = index / cells;
            y[index] = number * f64::from(norm.scale[channel]) + f64::from(norm.shift[channel]);
        }
    }
}

/// Subtracts the mean and divides by the standard deviation.
fn standardise(numbers: &mut [f64]) {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / numbers.len() as f64;
    numbers.iter_mut().for_each(|x| *x = (*x - mean) / (variance + NORM_EPSILON).sqrt());
}

/// Transposes `[rows, columns]` to `[columns, rows]`.
fn transposed(x: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|column| x.iter().skip(column).step_by(columns).copied()).collect()
}

/// Applies an attention block to `[cells, C]`.
fn attention(block: &Attention, activation: Activation, mut x: Vec<f64>, cells: usize) -> Vec<f64> {
    let channels = x.len() / cells;
    let of_head = channels / block.heads;
    let normed = |dense: &Dense, x: &[f64]| -> Vec<Vec<f64>> {
        let of_cell = |cell: &[f64]| {
            let mut cell = cell.to_vec();
            standardise(&mut cell);
            layer(dense, &cell)
        };
        x.chunks_exact(channels).map(of_cell).collect()
    };
    let qkv = normed(&block.qkv, &x);
    let mut sums = vec![vec![0.0; channels]; cells];
    for (head, cell) in (0..block.heads).flat_map(|head| (0..cells).map(move |cell| (head, cell))) {
        let part = |which: usize, cell: usize| &qkv[cell][which * channels + head * of_head..][..of_head];
        let score = |other: usize| {
            let product: f64 = part(0, cell).iter().zip(part(1, other)).map(|(q, k)| q * k).sum();
            let pair = block.pairs[(head * cells + cell) * cells + other];
            product / (of_head as f64).sqrt() + f64::from(pair)
        };
        let total: f64 = (0..cells).map(|other| score(other).exp()).sum();
        for other in 0..cells {
            let to = &mut sums[cell][head * of_head..][..of_head];
            to.iter_mut().zip(part(2, other)).for_each(|(to, v)| *to += score(other).exp() / total * v);
        }
    }
    let add = |x: &mut [f64], dense: &Dense, rows: &[Vec<f64>]| {
        let added = rows.iter().flat_map(|row| layer(dense, row));
        x.iter_mut().zip(added).for_each(|(x, added)| *x += added);
    };
    add(&mut x, &block.output, &sums);
    let mut hidden = normed(&block.hidden, &x);
    hidden.iter_mut().for_each(|row| activate(activation, row));
    add(&mut x, &block.feed_forward, &hidden);
    x
}

/// Returns first output, first input and number of outputs for a tap along a side of `size` cells.
fn overlap(tap: usize, reach: usize, size: usize) -> (usize, usize, usize) {
    let (to, from) = (reach.saturating_sub(tap), tap.saturating_sub(reach));
    (to, from, size.saturating_sub(to + from))
}

pub(crate) fn layer(dense: &Dense, x: &[f64]) -> Vec<f64> {
    let rows = dense.weight.chunks_exact(dense.inputs);
    let sum = |weights: &[f32]| weights.iter().zip(x).map(|(&weight, x)| f64::from(weight) * x).sum::<f64>();
    rows.zip(&dense.bias).map(|(weights, &bias)| f64::from(bias) + sum(weights)).collect()
}

fn activate(activation: Activation, values: &mut [f64]) {
    values.iter_mut().for_each(|value| *value = activation::value(activation, *value));
}

pub(crate) fn rectify(values: &mut [f64]) {
    values.iter_mut().for_each(|value| *value = value.max(0.0));
}
