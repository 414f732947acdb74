//! Reference for every path: evaluates a MuZero network, or an AlphaZero network of returns, in float64 by
//! definition.

use inference::categorical::inverse_transform;
use network::{Activation, HEAD_CHANNELS, NORM_EPSILON};

use super::folded::{Chance, Features, FoldedLatent, Head, Transition, Trunk};
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
    let state = next_state(network, &network.representation, &observation);
    Answer { reward: 0.0, ..predictions(network, state) }
}

/// Returns the afterstate of an action in the state of another answer, with the predictions, in a network with
/// chance: the policy is over chance codes, the reward is zero.
pub(crate) fn act(network: &FoldedLatent, Answer { state, .. }: &Answer, action: usize) -> Answer {
    let Chance { afterstate, value, code } = network.chance.as_ref().expect("the network has afterstates");
    let state = follow(network, afterstate, state, network.architecture.actions, action);
    let (policy, value) = (logits(network, code, &state), logits(network, value, &state));
    Answer { state, policy, value: expectation(&value), reward: 0.0 }
}

/// Returns the next state after an action, or after a chance code from an afterstate, with the predictions.
pub(crate) fn recurrent(network: &FoldedLatent, Answer { state, .. }: &Answer, action: usize) -> Answer {
    let dynamics = network.dynamics.as_ref().expect("the network has dynamics");
    predictions(network, follow(network, &dynamics.transition, state, choices(network), action))
}

/// Returns the number of actions or codes that the dynamics take.
pub(crate) fn choices(network: &FoldedLatent) -> usize {
    match network.architecture.model.codes() {
        0 => network.architecture.actions,
        codes => codes,
    }
}

/// Returns the state after one of `choices` choices.
fn follow(network: &FoldedLatent, of: &Transition, state: &[f64], choices: usize, choice: usize) -> Vec<f64> {
    let one_hot: Vec<f64> = (0..choices).map(|index| if index == choice { 1.0 } else { 0.0 }).collect();
    let beside = match &of.action {
        Some(planes) => layer(planes, &one_hot),
        None => one_hot,
    };
    next_state(network, &of.trunk, &[state, &beside].concat())
}

fn predictions(network: &FoldedLatent, state: Vec<f64>) -> Answer {
    let number = |head: &Head| expectation(&logits(network, head, &state));
    let (policy, value) = (logits(network, &network.policy, &state), number(&network.value));
    let reward = network.dynamics.as_ref().map_or(0.0, |dynamics| number(&dynamics.reward));
    Answer { state, policy, value, reward }
}

/// Applies a trunk, and rescales the state.
fn next_state(network: &FoldedLatent, trunk: &Trunk, input: &[f64]) -> Vec<f64> {
    let mut state = match trunk {
        Trunk::Dense { input: first, blocks } => dense_trunk(first, blocks, input),
        Trunk::Residual { stem, blocks } => {
            let size = (network.architecture.height, network.architecture.width);
            let mut x = convolve(stem, input, size);
            rectify(&mut x);
            blocks.iter().fold(x, |x, block| residual(block, Activation::Relu, &x, size))
        }
    };
    rescale(&mut state);
    state
}

fn dense_trunk(first: &Normed, blocks: &[[Normed; 2]], input: &[f64]) -> Vec<f64> {
    let mut x = normed(first, input);
    rectify(&mut x);
    for [first, second] in blocks {
        let mut y = normed(first, &x);
        rectify(&mut y);
        let mut z = normed(second, &y);
        z.iter_mut().zip(&x).for_each(|(z, x)| *z += x);
        rectify(&mut z);
        x = z;
    }
    x
}

/// Returns the logits of a head.
fn logits(network: &FoldedLatent, Head { features, output }: &Head, state: &[f64]) -> Vec<f64> {
    let mut hidden = match features {
        Features::Dense(hidden) => normed(hidden, state),
        Features::Residual { convolution, hidden } => {
            let features = features_of(network, convolution, state);
            let Some(hidden) = hidden else { return layer(output, &features) };
            layer(hidden, &features)
        }
    };
    rectify(&mut hidden);
    layer(output, &hidden)
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

/// Returns the features `[cells, 32]` of a head.
fn features_of(network: &FoldedLatent, convolution: &Affine, state: &[f64]) -> Vec<f64> {
    let (height, width) = (network.architecture.height, network.architecture.width);
    let mut planes = convolve(convolution, state, (height, width));
    rectify(&mut planes);
    let cells = height * width;
    (0..cells * HEAD_CHANNELS).map(|i| planes[i % HEAD_CHANNELS * cells + i / HEAD_CHANNELS]).collect()
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
