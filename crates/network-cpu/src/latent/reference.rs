//! Reference for every path: evaluates a MuZero network, or an AlphaZero network of returns, in float64 by
//! definition.

use inference::categorical::inverse_transform;
use network::{Activation, HEAD_CHANNELS, NORM_EPSILON};

use super::folded::{
    DenseHead, DenseLayers, DenseTrunk, FoldedLatent, FoldedLayers, ResidualHead, ResidualLayers, ResidualTrunk,
};
use crate::folded::{Affine, Normed};
use crate::reference::{convolve, layer, rectify, residual};

/// Result for one observation or step.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// Latent state, `[H]` or `[C, H, W]`.
    pub(crate) state: Vec<f64>,
    /// Policy logits `[A]`.
    pub(crate) policy: Vec<f64>,
    pub(crate) value: f64,
    pub(crate) reward: f64,
}

/// Returns the latent state of an observation, with the predictions; the reward is zero.
pub(crate) fn initial(network: &FoldedLatent, observation: &[f32]) -> Answer {
    let observation: Vec<f64> = observation.iter().map(|&value| f64::from(value)).collect();
    let mut state = match &network.layers {
        FoldedLayers::Dense(layers) => dense_trunk(&layers.representation, &observation),
        FoldedLayers::Residual(layers) => residual_trunk(network, &layers.representation, &observation),
    };
    rescale(&mut state);
    Answer { reward: 0.0, ..predictions(network, state) }
}

/// Returns the afterstate of an action in the state of another answer, with the predictions, in a network with
/// chance: the policy is over chance codes, the reward is zero.
pub(crate) fn act(network: &FoldedLatent, Answer { state, .. }: &Answer, action: usize) -> Answer {
    let one_hot = one_hot(network.architecture.actions, action);
    let (state, policy, value) = match &network.layers {
        FoldedLayers::Dense(DenseLayers { chance: Some(chance), .. }) => {
            let mut state = dense_trunk(&chance.afterstate, &[&state[..], &one_hot].concat());
            rescale(&mut state);
            let head = |head: &DenseHead| layer(&head.output, &dense_hidden(head, &state));
            let (policy, value) = (head(&chance.code), head(&chance.value));
            (state, policy, value)
        }
        FoldedLayers::Residual(ResidualLayers { chance: Some(chance), .. }) => {
            let planes = layer(&chance.action, &one_hot);
            let mut state = residual_trunk(network, &chance.afterstate, &[&state[..], &planes].concat());
            rescale(&mut state);
            let head = |head: &ResidualHead| layer(&head.output, &residual_hidden(network, head, &state));
            let (policy, value) = (head(&chance.code), head(&chance.value));
            (state, policy, value)
        }
        FoldedLayers::Dense(_) | FoldedLayers::Residual(_) => unreachable!("the network has afterstates"),
    };
    Answer { state, policy, value: expectation(&value), reward: 0.0 }
}

/// Returns the next state after an action, or after a chance code from an afterstate, with the predictions.
pub(crate) fn recurrent(network: &FoldedLatent, Answer { state, .. }: &Answer, action: usize) -> Answer {
    let one_hot = one_hot(choices(network), action);
    let mut next = match &network.layers {
        FoldedLayers::Dense(layers) => {
            let dynamics = layers.dynamics.as_ref().expect("the network has dynamics");
            dense_trunk(&dynamics.trunk, &[&state[..], &one_hot].concat())
        }
        FoldedLayers::Residual(layers) => {
            let dynamics = layers.dynamics.as_ref().expect("the network has dynamics");
            let planes = layer(&dynamics.action, &one_hot);
            residual_trunk(network, &dynamics.trunk, &[&state[..], &planes].concat())
        }
    };
    rescale(&mut next);
    predictions(network, next)
}

/// Returns the number of actions or codes that the dynamics take.
pub(crate) fn choices(network: &FoldedLatent) -> usize {
    match network.architecture.model.codes() {
        0 => network.architecture.actions,
        codes => codes,
    }
}

fn one_hot(count: usize, hot: usize) -> Vec<f64> {
    (0..count).map(|index| if index == hot { 1.0 } else { 0.0 }).collect()
}

fn predictions(network: &FoldedLatent, state: Vec<f64>) -> Answer {
    let (policy, value, reward) = match &network.layers {
        FoldedLayers::Dense(DenseLayers { policy, value, dynamics, .. }) => {
            let head = |head: &DenseHead| layer(&head.output, &dense_hidden(head, &state));
            (head(policy), head(value), dynamics.as_ref().map(|dynamics| head(&dynamics.reward)))
        }
        FoldedLayers::Residual(ResidualLayers { policy, policy_output, value, dynamics, .. }) => {
            let head = |head: &ResidualHead| layer(&head.output, &residual_hidden(network, head, &state));
            let policy = layer(policy_output, &features(network, policy, &state));
            (policy, head(value), dynamics.as_ref().map(|dynamics| head(&dynamics.reward)))
        }
    };
    let reward = reward.map_or(0.0, |reward| expectation(&reward));
    Answer { state, policy, value: expectation(&value), reward }
}

fn dense_trunk(trunk: &DenseTrunk, input: &[f64]) -> Vec<f64> {
    let mut x = normed(&trunk.input, input);
    rectify(&mut x);
    for [first, second] in &trunk.blocks {
        let mut y = normed(first, &x);
        rectify(&mut y);
        let mut z = normed(second, &y);
        z.iter_mut().zip(&x).for_each(|(z, x)| *z += x);
        rectify(&mut z);
        x = z;
    }
    x
}

fn dense_hidden(head: &DenseHead, state: &[f64]) -> Vec<f64> {
    let mut hidden = normed(&head.hidden, state);
    rectify(&mut hidden);
    hidden
}

/// Applies a matrix and layer norm.
fn normed(of: &Normed, x: &[f64]) -> Vec<f64> {
    let rows = of.weight.chunks_exact(of.inputs);
    let y: Vec<f64> = rows.map(|row| row.iter().zip(x).map(|(&weight, x)| f64::from(weight) * x).sum()).collect();
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / y.len() as f64;
    let parameters = of.scale.iter().zip(&of.shift);
    let unit = |y: f64| (y - mean) / (variance + NORM_EPSILON).sqrt();
    y.iter().zip(parameters).map(|(&y, (&scale, &shift))| unit(y) * f64::from(scale) + f64::from(shift)).collect()
}

fn residual_trunk(network: &FoldedLatent, trunk: &ResidualTrunk, input: &[f64]) -> Vec<f64> {
    let size = (network.architecture.height, network.architecture.width);
    let mut x = convolve(&trunk.stem, input, size);
    rectify(&mut x);
    trunk.blocks.iter().fold(x, |x, block| residual(block, Activation::Relu, &x, size))
}

/// Returns the features `[cells, 32]` of a head.
fn features(network: &FoldedLatent, convolution: &Affine, state: &[f64]) -> Vec<f64> {
    let (height, width) = (network.architecture.height, network.architecture.width);
    let mut planes = convolve(convolution, state, (height, width));
    rectify(&mut planes);
    let cells = height * width;
    (0..cells * HEAD_CHANNELS).map(|i| planes[i % HEAD_CHANNELS * cells + i / HEAD_CHANNELS]).collect()
}

fn residual_hidden(network: &FoldedLatent, head: &ResidualHead, state: &[f64]) -> Vec<f64> {
    let mut hidden = layer(&head.hidden, &features(network, &head.convolution, state));
    rectify(&mut hidden);
    hidden
}

fn rescale(state: &mut [f64]) {
    let least = state.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = state.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    state.iter_mut().for_each(|x| *x = (*x - least) / (greatest - least + 1e-5));
}

/// Returns the value that logits over the atoms of a support predict.
fn expectation(logits: &[f64]) -> f64 {
    let bound = (logits.len() / 2) as f64;
    let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = logits.iter().map(|logit| (logit - greatest).exp()).collect();
    let mean = shares.iter().enumerate().map(|(atom, share)| share * (atom as f64 - bound)).sum::<f64>();
    inverse_transform(mean / shares.iter().sum::<f64>())
}
