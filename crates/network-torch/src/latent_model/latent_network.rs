use ::network::is_vector;
use game::ObservationShape;
use inference::Precision;
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use super::dense::Dense;
use super::dense_stochastic::DenseStochastic;
use super::heads::Layers;
use super::residual::Residual;
use super::size;
use crate::{Error, Network};

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
    layers: Box<dyn Layers>,
    pub(super) layout: Layout,
    pub(super) shape: ObservationShape,
}

impl LatentNetwork {
    /// Copies a network, on the same device.
    pub(crate) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let architecture = network.architecture();
        let &Architecture { planes, height, width, .. } = architecture;
        let layers: Box<dyn Layers> = match (is_vector(architecture), architecture.model.codes()) {
            (false, _) => Box::new(Residual::new(network, precision)?),
            (true, 0) => Box::new(Dense::new(network, precision)?),
            (true, _) => Box::new(DenseStochastic::new(network, precision)?),
        };
        let shape = ObservationShape { planes, height, width };
        Ok(Self { layers, layout: Layout::new(architecture, precision), shape })
    }

    /// Maps observations `[B, C · H · W]`, float32, to latent states and answers.
    pub(super) fn initial(&self, observations: &Tensor) -> Result<[Tensor; 2], Error> {
        let ObservationShape { planes, height, width } = self.shape;
        let [planes, height, width] = [planes, height, width].map(size);
        let observations = observations.f_to_kind(self.layout.kind)?.f_contiguous()?;
        let states = self.layers.represent(&observations.f_view([-1, planes, height, width])?)?;
        let answers = self.layers.predict(&states)?;
        Ok([states, answers])
    }

    /// Maps latent states and choices `[B]`, int64, to the next states or afterstates, and answers.
    pub(super) fn step(&self, call: LatentCall, states: &Tensor, choices: &Tensor) -> Result<[Tensor; 2], Error> {
        if call == LatentCall::Act {
            let afterstates = self.layers.act(states, choices)?;
            let answers = self.layers.predict_afterstates(&afterstates)?;
            return Ok([afterstates, answers]);
        }
        let next = self.layers.next(states, choices)?;
        let answers = self.layers.predict(&next)?;
        Ok([next, answers])
    }
}
