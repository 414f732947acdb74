//! Evaluates a MuZero network in float64 by its definition, as the reference for every path.

use inference::categorical::inverse_transform;
use network::{HEAD_CHANNELS, NORM_EPSILON};

use super::folded::{
    DenseHead, DenseLayers, DenseTrunk, FoldedLatent, FoldedLayers, ResidualLayers, ResidualTrunk, ScalarHead,
};
use crate::folded::{Affine, Normed};
use crate::reference::{convolve, layer, rectify, residual};

/// The answer to one observation or step.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The latent state, `[H]` or `[C, H, W]`.
    pub(crate) state: Vec<f64>,
    /// Logits `[A]`.
    pub(crate) policy: Vec<f64>,
    pub(crate) value: f64,
    pub(crate) reward: f64,
}

/// Returns the latent state of an observation and the predictions in it; the reward is zero.
pub(crate) fn initial(network: &FoldedLatent, observation: &[f32]) -> Answer {
    let observation: Vec<f64> = observation.iter().map(|&value| f64::from(value)).collect();
    let mut state = match &network.layers {
        FoldedLayers::Dense(layers) => dense_trunk(&layers.representation, &observation),
        FoldedLayers::Residual(layers) => residual_trunk(network, &layers.representation, &observation),
    };
    rescale(&mut state);
    Answer { reward: 0.0, ..predictions(network, state) }
}

/// Returns the afterstate that an action leads to from a latent state of a dense network with chance, and the predictions
/// of it: the policy is that of chance, the reward is zero.
#[cfg(test)]
pub(crate) fn act(network: &FoldedLatent, state: &[f64], action: usize) -> Answer {
    let FoldedLayers::Dense(DenseLayers { chance: Some(chance), .. }) = &network.layers else {
        unreachable!("the network has afterstates")
    };
    let mut one_hot = vec![0.0; network.architecture.actions];
    one_hot[action] = 1.0;
    let mut state = dense_trunk(&chance.afterstate, &[state, &one_hot].concat());
    rescale(&mut state);
    let (policy, value) = (dense_head(&chance.code, &state), expectation(&dense_head(&chance.value, &state)));
    Answer { state, policy, value, reward: 0.0 }
}

/// Returns the state that an action leads to from a latent state, or a chance code from an afterstate, and the predictions
/// in it.
pub(crate) fn recurrent(network: &FoldedLatent, state: &[f64], action: usize) -> Answer {
    let mut next = match &network.layers {
        FoldedLayers::Dense(layers) => {
            let mut one_hot = vec![0.0; choices(network)];
            one_hot[action] = 1.0;
            dense_trunk(&layers.dynamics, &[state, &one_hot].concat())
        }
        FoldedLayers::Residual(layers) => {
            let mut one_hot = vec![0.0; network.architecture.actions];
            one_hot[action] = 1.0;
            let planes = layer(&layers.action, &one_hot);
            residual_trunk(network, &layers.dynamics, &[state, &planes].concat())
        }
    };
    rescale(&mut next);
    predictions(network, next)
}

/// The number of actions or codes that the dynamics take.
pub(crate) fn choices(network: &FoldedLatent) -> usize {
    match network.architecture.model.codes() {
        0 => network.architecture.actions,
        codes => codes,
    }
}

fn predictions(network: &FoldedLatent, state: Vec<f64>) -> Answer {
    let (policy, value, reward) = match &network.layers {
        FoldedLayers::Dense(DenseLayers { policy, value, reward, .. }) => {
            (dense_head(policy, &state), dense_head(value, &state), dense_head(reward, &state))
        }
        FoldedLayers::Residual(ResidualLayers { policy, policy_output, value, reward, .. }) => {
            let features = features(network, policy, &state);
            let policy = layer(policy_output, &features);
            (policy, scalar_head(network, value, &state), scalar_head(network, reward, &state))
        }
    };
    Answer { state, policy, value: expectation(&value), reward: expectation(&reward) }
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

fn dense_head(head: &DenseHead, state: &[f64]) -> Vec<f64> {
    let mut hidden = normed(&head.hidden, state);
    rectify(&mut hidden);
    layer(&head.output, &hidden)
}

/// A matrix and its layer norm.
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
    trunk.blocks.iter().fold(x, |x, block| residual(block, &x, size))
}

/// Features `[cells, 32]` of a head.
fn features(network: &FoldedLatent, convolution: &Affine, state: &[f64]) -> Vec<f64> {
    let (height, width) = (network.architecture.height, network.architecture.width);
    let mut planes = convolve(convolution, state, (height, width));
    rectify(&mut planes);
    let cells = height * width;
    (0..cells * HEAD_CHANNELS).map(|i| planes[i % HEAD_CHANNELS * cells + i / HEAD_CHANNELS]).collect()
}

fn scalar_head(network: &FoldedLatent, head: &ScalarHead, state: &[f64]) -> Vec<f64> {
    let mut hidden = layer(&head.hidden, &features(network, &head.convolution, state));
    rectify(&mut hidden);
    layer(&head.output, &hidden)
}

fn rescale(state: &mut [f64]) {
    let least = state.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = state.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    state.iter_mut().for_each(|x| *x = (*x - least) / (greatest - least + 1e-5));
}

/// The value that logits of the atoms of a support predict.
fn expectation(logits: &[f64]) -> f64 {
    let bound = (logits.len() / 2) as f64;
    let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = logits.iter().map(|logit| (logit - greatest).exp()).collect();
    let mean = shares.iter().enumerate().map(|(atom, share)| share * (atom as f64 - bound)).sum::<f64>();
    inverse_transform(mean / shares.iter().sum::<f64>())
}
