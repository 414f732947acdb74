use network::{Head, LatentLayers, Layer, Role};
use tch::{Kind, Tensor};

use super::size;
use crate::{Error, Network, categorical};

/// Error of a step in a network without dynamics.
pub(super) const NO_DYNAMICS: Error =
    Error::Training(training::Error::Network(network::Error::Model { expected: "muzero" }));

/// Error of an action in a network without chance.
pub(super) const NO_CHANCE: Error =
    Error::Training(training::Error::Network(network::Error::Model { expected: "stochastic_muzero" }));

/// Layers of a kind of network.
pub(super) trait Layers: std::fmt::Debug + Send {
    /// Maps observations `[B, C, H, W]` to latent states.
    fn represent(&self, observations: &Tensor) -> Result<Tensor, Error>;

    /// Maps latent states and actions `[B]`, int64, or afterstates and chance codes, to the next latent states.
    fn next(&self, states: &Tensor, choices: &Tensor) -> Result<Tensor, Error>;

    /// Maps latent states to policy logits, values and rewards, `[B, A + 2]`, float32.
    fn predict(&self, states: &Tensor) -> Result<Tensor, Error>;

    /// Maps latent states and actions `[B]`, int64, to afterstates, in a network with chance.
    fn act(&self, _states: &Tensor, _actions: &Tensor) -> Result<Tensor, Error> {
        Err(NO_CHANCE)
    }

    /// Maps afterstates to logits of the chance codes and values, `[B, M + 1]`, float32, in a network with chance.
    fn predict_afterstates(&self, _afterstates: &Tensor) -> Result<Tensor, Error> {
        Err(NO_CHANCE)
    }
}

/// Returns the heads that read latent states: policy, value and, if the network has dynamics, reward.
pub(super) fn all(layers: &LatentLayers) -> Vec<&Head> {
    let reward = layers.dynamics.as_ref().map(|dynamics| &dynamics.reward);
    [&layers.policy, &layers.value].into_iter().chain(reward).collect()
}

/// Matrices of several heads as one batched matrix: `[heads, B, in]` to `[heads, B, out]`, padded with zeros for
/// heads with fewer outputs.
///
/// The time for small batches depends more on the number of operations than on multiplications.
#[derive(Debug)]
pub(super) struct Batched {
    /// `[heads, in, out]`.
    weight: Tensor,
    /// `[heads, 1, out]`.
    bias: Tensor,
}

impl Batched {
    /// Copies the matrices of `layers`, which have the same inputs, in `kind`; `columns` reorders the columns of
    /// each.
    pub(super) fn new(
        network: &Network,
        layers: &[&Layer],
        kind: Kind,
        columns: impl Fn(&Tensor) -> Result<Tensor, Error>,
    ) -> Result<Self, Error> {
        let outputs = layers.iter().map(|layer| layer.outputs).max().expect("there are heads");
        let (mut weights, mut biases) = (Vec::new(), Vec::new());
        for layer in layers {
            let missing = size(outputs - layer.outputs);
            let weight = columns(network.of(layer, Role::Linear))?.f_detach()?.f_transpose(0, 1)?;
            weights.push(weight.f_constant_pad_nd([0, missing])?);
            biases.push(network.of(layer, Role::Bias).f_detach()?.f_constant_pad_nd([0, missing])?.f_unsqueeze(0)?);
        }
        Ok(Self {
            weight: Tensor::f_stack(&weights, 0)?.f_to_kind(kind)?,
            bias: Tensor::f_stack(&biases, 0)?.f_to_kind(kind)?,
        })
    }

    /// Maps `[heads, B, in]` to `[heads, B, out]`.
    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(self.bias.f_baddbmm(x, &self.weight, 1.0, 1.0)?)
    }
}

/// Converts policy logits `[B, A]` and the logits of values and rewards `[2, B, 2n + 1]` to `[B, A + 2]`, float32;
/// without rewards to `[B, A + 1]`.
pub(super) fn answers(policy: &Tensor, scalars: &Tensor) -> Result<Tensor, Error> {
    let scalars = categorical::value(&scalars.f_to_kind(Kind::Float)?)?.f_transpose(0, 1)?;
    Ok(Tensor::f_cat(&[policy.f_to_kind(Kind::Float)?, scalars], 1)?)
}
