use ::network::is_vector;
use game::ObservationShape;
use inference::Precision;
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use super::dense::Dense;
use super::dense_stochastic::DenseStochastic;
use super::residual::Residual;
use super::size;
use crate::{Error, Network, muzero::rescale};

/// A kind of call; the number is the kind of request on an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatentCall {
    /// From observations to latent states.
    Initial,
    /// From latent states by actions, or from afterstates by chance codes, to latent states.
    Recurrent,
    /// From latent states by actions to afterstates.
    Act,
}

impl LatentCall {
    /// Every kind, by number.
    pub(crate) const ALL: [Self; 3] = [Self::Initial, Self::Recurrent, Self::Act];
}

/// Size and kind of latent states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Layout {
    /// N, the numbers of a state.
    numbers: usize,
    kind: Kind,
}

impl Layout {
    pub(super) fn new(architecture: &Architecture, precision: Precision) -> Self {
        let &Architecture { height, width, channels, .. } = architecture;
        Self { numbers: channels * height * width, kind: crate::rules::kind(precision) }
    }

    /// Allocates memory for latent states, `[slots, N]`, all zeros.
    pub(super) fn states(self, slots: usize, device: Device) -> Result<Tensor, Error> {
        Ok(Tensor::f_zeros([size(slots), size(self.numbers)], (self.kind, device))?)
    }
}

/// A network for inference: batch norms folded, no gradients. Latent states are rows `[B, N]` in the precision of the
/// passes.
#[derive(Debug)]
pub(crate) struct LatentNetwork {
    layers: Layers,
    pub(super) layout: Layout,
    pub(super) shape: ObservationShape,
}

/// Kinds of networks.
#[derive(Debug)]
enum Layers {
    Dense(Dense),
    Residual(Box<Residual>),
    DenseStochastic(Box<DenseStochastic>),
}

impl LatentNetwork {
    /// Copies a network, on the same device.
    pub(crate) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let architecture = network.architecture();
        let &Architecture { planes, height, width, .. } = architecture;
        let layers = if !is_vector(architecture) {
            Layers::Residual(Box::new(Residual::new(network, precision)?))
        } else if architecture.model.codes() > 0 {
            Layers::DenseStochastic(Box::new(DenseStochastic::new(network, precision)?))
        } else {
            Layers::Dense(Dense::new(network, precision)?)
        };
        let shape = ObservationShape { planes, height, width };
        Ok(Self { layers, layout: Layout::new(architecture, precision), shape })
    }

    /// Maps observations `[B, C · H · W]`, float32, to latent states and answers.
    pub(super) fn initial(&self, observations: &Tensor) -> Result<[Tensor; 2], Error> {
        let ObservationShape { planes, height, width } = self.shape;
        let [planes, height, width] = [planes, height, width].map(size);
        let observations = observations.f_to_kind(self.layout.kind)?.f_contiguous()?;
        let states = self.represent(&observations.f_view([-1, planes, height, width])?)?;
        let answers = self.predict(&states)?;
        Ok([states, answers])
    }

    /// Maps latent states and choices `[B]`, int64, to the next states or afterstates, and answers.
    pub(super) fn step(&self, call: LatentCall, states: &Tensor, choices: &Tensor) -> Result<[Tensor; 2], Error> {
        if call == LatentCall::Act {
            let afterstates = self.act(states, choices)?;
            let answers = self.predict_afterstates(&afterstates)?;
            return Ok([afterstates, answers]);
        }
        let next = self.next(states, choices)?;
        let answers = self.predict(&next)?;
        Ok([next, answers])
    }

    /// Maps observations `[B, C, H, W]` to latent states.
    fn represent(&self, observations: &Tensor) -> Result<Tensor, Error> {
        rescale(&match &self.layers {
            Layers::Dense(dense) => dense.represent(observations)?,
            Layers::Residual(residual) => residual.represent(observations)?,
            Layers::DenseStochastic(stochastic) => return stochastic.represent(observations),
        })
    }

    /// Maps latent states and actions `[B]`, int64, or afterstates and chance codes, to the next latent states.
    fn next(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        rescale(&match &self.layers {
            Layers::Dense(dense) => dense.next(states, actions)?,
            Layers::Residual(residual) => residual.next(states, actions)?,
            Layers::DenseStochastic(stochastic) => return stochastic.follow(states, actions),
        })
    }

    /// Maps latent states and actions `[B]`, int64, to afterstates.
    fn act(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        match &self.layers {
            Layers::Dense(_) => Err(::network::Error::Model { expected: "stochastic_muzero" }.into()),
            Layers::Residual(residual) => rescale(&residual.act(states, actions)?),
            Layers::DenseStochastic(stochastic) => stochastic.act(states, actions),
        }
    }

    /// Maps afterstates to logits of the chance codes and values, `[B, M + 1]`, float32.
    fn predict_afterstates(&self, afterstates: &Tensor) -> Result<Tensor, Error> {
        match &self.layers {
            Layers::Dense(_) => Err(::network::Error::Model { expected: "stochastic_muzero" }.into()),
            Layers::Residual(residual) => residual.predict_afterstates(afterstates),
            Layers::DenseStochastic(stochastic) => stochastic.predict_afterstates(afterstates),
        }
    }

    /// Maps latent states to policy logits, values and rewards, `[B, A + 2]`, float32.
    fn predict(&self, states: &Tensor) -> Result<Tensor, Error> {
        match &self.layers {
            Layers::Dense(dense) => dense.predict(states),
            Layers::Residual(residual) => residual.predict(states),
            Layers::DenseStochastic(stochastic) => stochastic.predict(states),
        }
    }
}
