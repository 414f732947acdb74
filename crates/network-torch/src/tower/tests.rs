use ::network::{AttentionBlock, GROUP_CHANNELS, HEAD_CHANNELS, NORM_EPSILON};
use tch::{Kind, Tensor};
use training::Losses;
use weights::{Activation, Architecture, BlockKind, HeadKind, NormKind};

use super::{Mode, forward};
use crate::layers::NORM_MOMENTUM;
use crate::{
    Network,
    losses::{Targets, losses, tests::targets},
    network,
    tests::networks::{
        activated, assert_close, attentive, batch, bottleneck, complete, numbers, observations, of_positions, on,
        pooled, seasoned, small, tiny,
    },
};

/// Feature maps `[B][C][H][W]` in plain float64: an implementation that shares nothing with libtorch.
type Maps = Vec<Vec<Vec<Vec<f64>>>>;

struct Reference<'a> {
    network: &'a Network,
    mode: Mode,
}

impl Reference<'_> {
    fn numbers(&self, name: &str) -> Vec<f64> {
        numbers(self.network.tensor(name))
    }

    fn convolve(&self, name: &str, x: &Maps) -> Maps {
        let weight = self.numbers(&format!("{name}.convolution.weight"));
        let shape = self.network.tensor(&format!("{name}.convolution.weight")).size();
        let [outputs, inputs, k] = [shape[0], shape[1], shape[2]].map(|n| n as usize);
        let (height, width) = (x[0][0].len() as isize, x[0][0][0].len() as isize);
        let half = (k / 2) as isize;
        let one = |b: usize, o: usize, row: isize, column: isize| {
            let mut sum = 0.0;
            for i in 0..inputs {
                for (ky, dy) in (-half..=half).enumerate() {
                    for (kx, dx) in (-half..=half).enumerate() {
                        let (y, x_) = (row + dy, column + dx);
                        if (0..height).contains(&y) && (0..width).contains(&x_) {
                            sum += weight[((o * inputs + i) * k + ky) * k + kx] * x[b][i][y as usize][x_ as usize];
                        }
                    }
                }
            }
            sum
        };
        (0..x.len())
            .map(|b| {
                (0..outputs)
                    .map(|o| (0..height).map(|r| (0..width).map(|c| one(b, o, r, c)).collect()).collect())
                    .collect()
            })
            .collect()
    }

    fn normed(&self, name: &str, x: &Maps) -> Maps {
        let mut x = self.convolve(name, x);
        let part = |part: &str| self.numbers(&format!("{name}.norm.{part}"));
        let (gamma, beta) = (part("weight"), part("bias"));
        match self.network.architecture().design.norm {
            NormKind::Batch => {}
            NormKind::Layer => {
                for maps in &mut x {
                    let mut cells = to_cells(maps);
                    for cell in &mut cells {
                        normalise(cell);
                        let affine = gamma.iter().zip(&beta);
                        cell.iter_mut().zip(affine).for_each(|(x, (gamma, beta))| *x = *x * gamma + beta);
                    }
                    set_cells(maps, &cells);
                }
                return x;
            }
            NormKind::Group => {
                for group in x.iter_mut().flat_map(|maps| maps.chunks_exact_mut(GROUP_CHANNELS)) {
                    let mut values: Vec<f64> = group.iter().flatten().flatten().copied().collect();
                    normalise(&mut values);
                    group.iter_mut().flatten().flatten().zip(values).for_each(|(to, value)| *to = value);
                }
                for maps in &mut x {
                    for (channel, map) in maps.iter_mut().enumerate() {
                        map.iter_mut().flatten().for_each(|value| *value = *value * gamma[channel] + beta[channel]);
                    }
                }
                return x;
            }
        }
        for channel in 0..gamma.len() {
            let all: Vec<f64> = x.iter().flat_map(|maps| maps[channel].iter().flatten().copied()).collect();
            let batch_mean = all.iter().sum::<f64>() / all.len() as f64;
            let batch_variance = all.iter().map(|v| (v - batch_mean).powi(2)).sum::<f64>() / all.len() as f64;
            let (mean, variance) = match self.mode {
                Mode::Training | Mode::TrainingAgain => (batch_mean, batch_variance),
                Mode::Evaluation => (part("mean")[channel], part("variance")[channel]),
            };
            for value in x.iter_mut().flat_map(|maps| maps[channel].iter_mut().flatten()) {
                *value = (*value - mean) / (variance + NORM_EPSILON).sqrt() * gamma[channel] + beta[channel];
            }
        }
        x
    }

    fn head(&self, name: &str, x: &Maps) -> Vec<Vec<f64>> {
        let x = self.activated(self.normed(name, x));
        let flat = |maps: &Vec<Vec<Vec<f64>>>| {
            let (height, width) = (maps[0].len(), maps[0][0].len());
            (0..height * width).flat_map(|cell| maps.iter().map(move |map| map[cell / width][cell % width])).collect()
        };
        x.iter().map(flat).collect()
    }

    /// Returns the logits of a pooled policy head: per-cell logits first, then all other actions.
    fn pooled_policy(&self, features: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let of_cells = features.iter().map(|features| {
            let cells: Vec<Vec<f64>> = features.chunks(HEAD_CHANNELS).map(<[f64]>::to_vec).collect();
            self.linear("policy.output", &cells).concat()
        });
        if self.network.layout.parameters.iter().all(|entry| entry.tensor.name != "policy.rest.weight") {
            return of_cells.collect();
        }
        let others = self.linear("policy.rest", &pool(features));
        of_cells.zip(others).map(|(of_cells, others)| [of_cells, others].concat()).collect()
    }

    fn linear(&self, name: &str, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let (weight, bias) = (self.numbers(&format!("{name}.weight")), self.numbers(&format!("{name}.bias")));
        let row = |x: &Vec<f64>| {
            let dot = |o: usize| weight[o * x.len()..][..x.len()].iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
            (0..bias.len()).map(|o| bias[o] + dot(o)).collect()
        };
        x.iter().map(row).collect()
    }

    /// Applies global pooling: shifts all but the first channels of each position by values computed from the first
    /// channels.
    fn pooled(&self, name: &str, mut y: Maps) -> Maps {
        let (pooled, name) = (self.network.architecture().global_pooling, format!("{name}.pooling"));
        for maps in &mut y {
            let positive: Vec<Vec<f64>> = maps[..pooled].iter().map(|map| cells(map, |y| self.f(y))).collect();
            let means = positive.iter().map(|p| mean(p));
            let maxima = positive.iter().map(|p| p.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            let shifts = self.linear(&name, &[means.chain(maxima).collect()]);
            for (map, shift) in maps[pooled..].iter_mut().zip(&shifts[0]) {
                map.iter_mut().flatten().for_each(|y| *y += shift);
            }
        }
        y
    }

    /// Applies squeeze-and-excitation: scales and shifts every channel of each position by values computed from all
    /// channels.
    fn excited(&self, name: &str, mut z: Maps) -> Maps {
        for maps in &mut z {
            let squeezed: Vec<f64> = maps.iter().map(|map| mean(&cells(map, |z| z))).collect();
            let mut hidden = self.linear(&format!("{name}.excitation.hidden"), &[squeezed]);
            hidden[0].iter_mut().for_each(|value| *value = value.max(0.0));
            let output = self.linear(&format!("{name}.excitation.output"), &hidden);
            let (gates, shifts) = output[0].split_at(maps.len());
            for ((map, gate), shift) in maps.iter_mut().zip(gates).zip(shifts) {
                map.iter_mut().flatten().for_each(|z| *z = *z / (1.0 + (-gate).exp()) + shift);
            }
        }
        z
    }

    /// Applies layer norm to each cell `[C]`, then a matrix.
    fn pre_normed(&self, name: &str, cells: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let [gamma, beta] = ["weight", "bias"].map(|part| self.numbers(&format!("{name}.norm.{part}")));
        let normed = cells.iter().map(|cell| {
            let mut cell = cell.clone();
            normalise(&mut cell);
            cell.iter().zip(gamma.iter().zip(&beta)).map(|(x, (gamma, beta))| x * gamma + beta).collect()
        });
        self.linear(name, &normed.collect::<Vec<_>>())
    }

    /// Applies an attention block to one position's cells `[cells][C]`.
    fn attention(&self, name: &str, mut x: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        let &Architecture { height, width, channels, ref design, .. } = self.network.architecture();
        let (heads, cells) = (design.attention_heads, height * width);
        let of_head = channels / heads;
        let offsets = AttentionBlock::offsets([height, width]);
        let table = self.numbers(&format!("{name}.position.offsets"));
        let of_table = table.len() / heads;
        let qkv = self.pre_normed(&format!("{name}.qkv"), &x);
        let mut sums = vec![vec![0.0; channels]; cells];
        for (head, cell) in (0..heads).flat_map(|head| (0..cells).map(move |cell| (head, cell))) {
            let part = |which: usize, cell: usize| &qkv[cell][which * channels + head * of_head..][..of_head];
            let scores: Vec<f64> = (0..cells)
                .map(|other| {
                    let dot: f64 = part(0, cell).iter().zip(part(1, other)).map(|(q, k)| q * k).sum();
                    dot / (of_head as f64).sqrt() + table[head * of_table + offsets[cell * cells + other]]
                })
                .collect();
            let total: f64 = scores.iter().map(|score| score.exp()).sum();
            for (other, score) in scores.iter().enumerate() {
                let to = &mut sums[cell][head * of_head..][..of_head];
                to.iter_mut().zip(part(2, other)).for_each(|(to, v)| *to += score.exp() / total * v);
            }
        }
        let add = |x: &mut Vec<Vec<f64>>, y: Vec<Vec<f64>>| {
            x.iter_mut().flatten().zip(y.iter().flatten()).for_each(|(x, y)| *x += y);
        };
        add(&mut x, self.linear(&format!("{name}.output"), &sums));
        let mut hidden = self.pre_normed(&format!("{name}.hidden"), &x);
        hidden.iter_mut().flatten().for_each(|unit| *unit = self.f(*unit));
        add(&mut x, self.linear(&format!("{name}.feed_forward.output"), &hidden));
        x
    }

    fn f(&self, x: f64) -> f64 {
        ::network::activation::value(self.network.architecture().design.activation, x)
    }

    fn activated(&self, mut x: Maps) -> Maps {
        x.iter_mut().flatten().flatten().flatten().for_each(|value| *value = self.f(*value));
        x
    }

    /// Returns policy logits `[B · A]` and value logits `[B · 3]`.
    fn forward(&self, observations: Maps) -> (Vec<f64>, Vec<f64>) {
        let mut x = self.activated(self.normed("stem", &observations));
        let Architecture { blocks, squeeze_excitation, global_pooling, .. } = *self.network.architecture();
        for block in 0..blocks {
            let name = format!("block.{block}");
            let narrows = self.network.architecture().design.block == BlockKind::Bottleneck;
            let inner = if narrows { self.activated(self.normed(&format!("{name}.down"), &x)) } else { x.clone() };
            let mut y = self.normed(&format!("{name}.first"), &inner);
            if global_pooling > 0 && block % 3 == 2 {
                y = self.pooled(&name, y);
            }
            let mut y = self.normed(&format!("{name}.second"), &self.activated(y));
            if narrows {
                y = self.normed(&format!("{name}.up"), &self.activated(y));
            }
            if squeeze_excitation > 0 {
                y = self.excited(&name, y);
            }
            let pairs = y.iter_mut().flatten().flatten().flatten().zip(x.iter().flatten().flatten().flatten());
            pairs.for_each(|(y, x)| *y += x);
            x = self.activated(y);
        }
        for maps in &mut x {
            let mut cells = to_cells(maps);
            for index in 0..self.network.architecture().design.attention {
                cells = self.attention(&format!("attention.{index}"), cells);
            }
            set_cells(maps, &cells);
        }
        let [of_policy, of_value] = ["policy", "value"].map(|name| self.head(name, &x));
        let (policy, mut hidden) = match self.network.architecture().design.heads {
            HeadKind::Flattened => (self.linear("policy.output", &of_policy), self.linear("value.hidden", &of_value)),
            HeadKind::Pooled => (self.pooled_policy(&of_policy), self.linear("value.hidden", &pool(&of_value))),
        };
        hidden.iter_mut().flatten().for_each(|value| *value = self.f(*value));
        let value = self.linear("value.output", &hidden);
        (policy.into_iter().flatten().collect(), value.into_iter().flatten().collect())
    }
}

/// Returns means, scaled means and maxima of each position's features `[cells · 32]`; the scale is a tenth of
/// `√cells − 14`.
fn pool(features: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let of_position = |features: &Vec<f64>| {
        let of_channel = |channel: usize| features.iter().skip(channel).step_by(HEAD_CHANNELS).copied();
        let cells = (features.len() / HEAD_CHANNELS) as f64;
        let means: Vec<f64> = (0..HEAD_CHANNELS).map(|channel| of_channel(channel).sum::<f64>() / cells).collect();
        let scaled = means.iter().map(|mean| mean * (cells.sqrt() - 14.0) / 10.0).collect();
        let maxima = (0..HEAD_CHANNELS).map(|channel| of_channel(channel).fold(f64::NEG_INFINITY, f64::max)).collect();
        [means, scaled, maxima].concat()
    };
    features.iter().map(of_position).collect()
}

/// Converts maps of a position to cells, `[cells][C]`.
fn to_cells(maps: &[Vec<Vec<f64>>]) -> Vec<Vec<f64>> {
    let width = maps[0][0].len();
    let cells = 0..maps[0].len() * width;
    cells.map(|cell| maps.iter().map(|map| map[cell / width][cell % width]).collect()).collect()
}

/// Overwrites the maps of a position from `cells`.
fn set_cells(maps: &mut [Vec<Vec<f64>>], cells: &[Vec<f64>]) {
    for (channel, map) in maps.iter_mut().enumerate() {
        map.iter_mut().flatten().zip(cells).for_each(|(to, cell)| *to = cell[channel]);
    }
}

/// Subtracts the mean and divides by the standard deviation.
fn normalise(values: &mut [f64]) {
    let mean = mean(values);
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
    values.iter_mut().for_each(|value| *value = (*value - mean) / (variance + NORM_EPSILON).sqrt());
}

/// Returns the numbers of a map after `change`.
fn cells(map: &[Vec<f64>], change: impl Fn(f64) -> f64) -> Vec<f64> {
    map.iter().flatten().map(|&value| change(value)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn maps(tensor: &Tensor) -> Maps {
    let size = tensor.size();
    let [channels, height, width] = [size[1], size[2], size[3]].map(|n| n as usize);
    let all = numbers(tensor);
    let position = |values: &[f64]| {
        values.chunks(height * width).map(|map| map.chunks(width).map(<[f64]>::to_vec).collect()).collect()
    };
    all.chunks(channels * height * width).map(position).collect()
}

fn agrees_with_the_reference(architecture: &Architecture, mode: Mode) {
    let network = seasoned(architecture, 11);
    let input = observations(architecture, &batch(architecture, 5, 12));
    let (policy, value) = Reference { network: &network, mode }.forward(maps(&input));
    let logits = forward(&network, &input, Kind::Float, mode).unwrap();
    assert_close(&numbers(&logits.policy), &policy, 1e-4);
    assert_close(&numbers(&logits.value), &value, 1e-4);
}

#[test]
fn evaluation_agrees_with_a_float64_reference_that_shares_no_code() {
    agrees_with_the_reference(&tiny(), Mode::Evaluation);
}

#[test]
fn training_agrees_with_a_float64_reference_that_shares_no_code() {
    agrees_with_the_reference(&tiny(), Mode::Training);
}

#[test]
fn squeeze_excitation_and_global_pooling_agree_with_the_reference_in_evaluation_and_training() {
    agrees_with_the_reference(&complete(), Mode::Evaluation);
    agrees_with_the_reference(&complete(), Mode::Training);
}

#[test]
fn every_activation_agrees_with_the_reference_in_evaluation_and_training() {
    for activation in Activation::ALL {
        agrees_with_the_reference(&activated(activation), Mode::Evaluation);
        agrees_with_the_reference(&activated(activation), Mode::Training);
    }
}

#[test]
fn bottleneck_blocks_agree_with_the_reference_in_evaluation_and_training() {
    agrees_with_the_reference(&bottleneck(), Mode::Evaluation);
    agrees_with_the_reference(&bottleneck(), Mode::Training);
}

#[test]
fn attention_and_norms_of_positions_agree_with_the_reference_in_evaluation_and_training() {
    for architecture in of_positions() {
        agrees_with_the_reference(&architecture, Mode::Evaluation);
        agrees_with_the_reference(&architecture, Mode::Training);
    }
}

#[test]
fn pooled_heads_agree_with_the_reference_in_evaluation_and_training_on_every_board() {
    let [several, one] = pooled();
    // The same number of actions per cell as in chess.
    let many = Architecture { actions: 73 * several.height * several.width, ..several.clone() };
    for architecture in [&several, &one, &many, &on(&several, [2, 7]), &on(&one, [1, 1])] {
        agrees_with_the_reference(architecture, Mode::Evaluation);
        agrees_with_the_reference(architecture, Mode::Training);
    }
}

#[test]
fn either_option_alone_agrees_with_the_reference() {
    agrees_with_the_reference(&Architecture { squeeze_excitation: 0, ..complete() }, Mode::Evaluation);
    agrees_with_the_reference(&Architecture { global_pooling: 0, ..complete() }, Mode::Evaluation);
}

#[test]
fn training_moves_the_running_statistics_by_the_momentum_and_evaluation_does_not() {
    let network = seasoned(&tiny(), 13);
    let input = observations(&tiny(), &batch(&tiny(), 5, 14));
    let before = numbers(network.tensor("stem.norm.mean"));
    let reference = Reference { network: &network, mode: Mode::Training };
    let convolved = reference.convolve("stem", &maps(&input));
    forward(&network, &input, Kind::Float, Mode::Evaluation).unwrap();
    assert_eq!(numbers(network.tensor("stem.norm.mean")), before);

    forward(&network, &input, Kind::Float, Mode::Training).unwrap();
    let expected: Vec<f64> = (0..2)
        .map(|channel| {
            let all: Vec<f64> = convolved.iter().flat_map(|maps| maps[channel].iter().flatten().copied()).collect();
            (1.0 - NORM_MOMENTUM) * before[channel] + NORM_MOMENTUM * all.iter().sum::<f64>() / all.len() as f64
        })
        .collect();
    assert_close(&numbers(network.tensor("stem.norm.mean")), &expected, 1e-5);
}

#[test]
fn bf16_stays_near_f32() {
    stays_near_f32_in_bf16(&small());
    stays_near_f32_in_bf16(&complete());
    stays_near_f32_in_bf16(&attentive());
    stays_near_f32_in_bf16(&pooled()[0]);
}

fn stays_near_f32_in_bf16(architecture: &Architecture) {
    let network = seasoned(architecture, 15);
    let input = observations(architecture, &batch(architecture, 8, 16));
    let f32 = forward(&network, &input, Kind::Float, Mode::Evaluation).unwrap();
    let bf16 = forward(&network, &input.to_kind(Kind::BFloat16), Kind::BFloat16, Mode::Evaluation).unwrap();
    // Eight mantissa bits through five layers cause errors of a few hundredths in logits of size one.
    assert_close(&numbers(&bf16.policy), &numbers(&f32.policy), 0.05);
    assert_close(&numbers(&bf16.value), &numbers(&f32.value), 0.05);
}

/// Returns the loss of `parameters` in float64, batch statistics included.
fn loss(template: &Network, parameters: &[f64], input: &Tensor, targets: &Targets) -> (Tensor, Network) {
    let statistics = template.flat_statistics.to_kind(Kind::Double).detach_copy();
    let (architecture, layers) = (template.architecture(), template.layers.clone());
    let network = Network::from_flat(architecture, layers, Tensor::from_slice(parameters), statistics).unwrap();
    let logits = forward(&network, input, Kind::Double, Mode::Training).unwrap();
    let weights = Losses { policy: 1.0, value: 0.7, ..Losses::ZERO };
    (losses(&logits, targets, &weights).unwrap().scalars.total, network)
}

/// Returns a batch in float64: observations and targets.
fn doubles(architecture: &Architecture, positions: usize, seed: u64) -> (Tensor, Targets) {
    let batch = batch(architecture, positions, seed);
    (observations(architecture, &batch).to_kind(Kind::Double), targets(&batch, Kind::Double))
}

/// Central differences in float64: with a step of 1e-7 they are accurate to about 1e-8, unless the step crosses the
/// kink of a ReLU.
fn every_gradient_is_the_slope(architecture: &Architecture) {
    let template = seasoned(architecture, 17);
    let (input, targets) = doubles(architecture, 4, 18);
    let parameters: Vec<f64> = numbers(&template.flat_parameters);
    let at = |parameters: &[f64]| loss(&template, parameters, &input, &targets).0.double_value(&[]);

    let (total, network) = loss(&template, &parameters, &input, &targets);
    let gradients = Tensor::run_backward(&[total], &network.parameters, false, false);
    let gradient = numbers(&network::flatten(&network.layout.parameters, &gradients).unwrap());
    let mut checked = 0;
    for entry in &template.layout.parameters {
        for index in (entry.range()).step_by(1 + entry.len / 12) {
            let shifted = |by: f64| {
                let mut parameters = parameters.clone();
                parameters[index] += by;
                at(&parameters)
            };
            let slope = (shifted(1e-7) - shifted(-1e-7)) / 2e-7;
            let off = (slope - gradient[index]).abs();
            assert!(off < 1e-7, "{}: gradient {} where the slope is {slope}", entry.tensor.name, gradient[index]);
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} slopes were compared");
}

#[test]
fn every_gradient_is_the_slope_of_the_loss() {
    every_gradient_is_the_slope(&tiny());
}

#[test]
fn every_gradient_of_squeeze_excitation_and_global_pooling_is_the_slope_of_the_loss() {
    every_gradient_is_the_slope(&complete());
}

#[test]
fn every_gradient_of_other_designs_is_the_slope_of_the_loss() {
    every_gradient_is_the_slope(&bottleneck());
    for activation in [Activation::Mish, Activation::Silu, Activation::Gelu] {
        every_gradient_is_the_slope(&activated(activation));
    }
}

#[test]
fn every_gradient_of_attention_and_norms_of_positions_is_the_slope_of_the_loss() {
    for architecture in of_positions() {
        every_gradient_is_the_slope(&architecture);
    }
}

#[test]
fn every_gradient_of_pooled_heads_is_the_slope_of_the_loss() {
    for architecture in pooled() {
        every_gradient_is_the_slope(&architecture);
    }
}
