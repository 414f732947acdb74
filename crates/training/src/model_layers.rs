use network::{ConsistencyLayers, LatentLayers, Layer, Layers, Tensor};
use weights::{Architecture, Model};

use crate::{Error, layout::Layout};

/// The layers of a network, for either model family.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a process holds few networks")]
pub enum ModelLayers {
    /// Layers of an AlphaZero network that predicts win, draw and loss.
    Alphazero(Layers),
    /// Layers with latent states; without dynamics, an AlphaZero network that predicts returns.
    Muzero {
        /// Layers that evaluators need.
        latent: LatentLayers,
        /// Heads of the consistency loss; `None` if the loss is not trained.
        consistency: Option<ConsistencyLayers>,
    },
}

impl ModelLayers {
    /// Returns the layers that evaluators need for an architecture.
    ///
    /// # Errors
    /// [`Error::Network`] names a dimension that is out of range.
    pub fn new(architecture: &Architecture) -> Result<Self, Error> {
        Ok(match architecture.model {
            Model::Alphazero => Self::Alphazero(Layers::new(architecture)?),
            Model::AlphazeroReturns { .. } | Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
                Self::Muzero { latent: LatentLayers::new(architecture)?, consistency: None }
            }
        })
    }

    /// Returns the layers of a MuZero architecture, including the heads of the consistency loss.
    ///
    /// # Errors
    /// [`Error::Network`] names a dimension that is out of range, or a model without a consistency loss.
    pub fn with_consistency(architecture: &Architecture) -> Result<Self, Error> {
        let (latent, consistency) = (LatentLayers::new(architecture)?, ConsistencyLayers::new(architecture)?);
        Ok(Self::Muzero { latent, consistency: Some(consistency) })
    }

    /// Iterates over the layers that evaluators need, from the observation to the outputs.
    fn iter(&self) -> Box<dyn Iterator<Item = &Layer> + '_> {
        match self {
            Self::Alphazero(layers) => Box::new(layers.iter()),
            Self::Muzero { latent, .. } => Box::new(latent.iter()),
        }
    }

    /// Returns the layout of all tensors in flat buffers.
    pub fn layout(&self) -> Layout {
        let training = self.consistency().into_iter().flat_map(ConsistencyLayers::iter).flat_map(Layer::tensors);
        Layout::new(self.tensors(), training)
    }

    /// Iterates over the tensors that evaluators need, layer by layer.
    fn tensors(&self) -> impl Iterator<Item = Tensor> {
        self.iter().flat_map(Layer::tensors)
    }

    /// Returns the number of trained parameters that evaluators need, without running statistics.
    pub fn parameters(&self) -> usize {
        self.tensors().filter(|tensor| tensor.role.is_trained()).map(|tensor| tensor.numel()).sum()
    }

    /// Returns the layers of an AlphaZero network that predicts win, draw and loss.
    ///
    /// # Errors
    /// [`network::Error::Model`] for any other network.
    pub fn alphazero(&self) -> Result<&Layers, Error> {
        match self {
            Self::Alphazero(layers) => Ok(layers),
            Self::Muzero { .. } => Err(network::Error::Model { expected: "alphazero" }.into()),
        }
    }

    /// Returns the layers of a MuZero network, or of an AlphaZero network that predicts returns.
    ///
    /// # Errors
    /// [`network::Error::Model`] for any other network.
    pub fn muzero(&self) -> Result<&LatentLayers, Error> {
        match self {
            Self::Muzero { latent, .. } => Ok(latent),
            Self::Alphazero(_) => Err(network::Error::Model { expected: "muzero" }.into()),
        }
    }

    /// Returns the heads of the consistency loss; `None` if the loss is not trained.
    pub fn consistency(&self) -> Option<&ConsistencyLayers> {
        match self {
            Self::Muzero { consistency, .. } => consistency.as_ref(),
            Self::Alphazero(_) => None,
        }
    }
}
