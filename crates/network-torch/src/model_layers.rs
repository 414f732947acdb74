use network::{LatentLayers, Layer, Layers, Tensor};
use weights::{Architecture, Model};

use crate::Error;

/// The layers of a network of either model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a process holds few networks")]
pub(crate) enum ModelLayers {
    /// Of priors and values.
    Alphazero(Layers),
    /// Of latent states.
    Muzero(LatentLayers),
}

impl ModelLayers {
    /// The layers of an architecture.
    ///
    /// # Errors
    /// [`Error::Network`] names the dimension that is out of range.
    pub(crate) fn new(architecture: &Architecture) -> Result<Self, Error> {
        Ok(match architecture.model {
            Model::Alphazero => Self::Alphazero(Layers::new(architecture)?),
            Model::Muzero { .. } | Model::StochasticMuzero { .. } => Self::Muzero(LatentLayers::new(architecture)?),
        })
    }

    /// Every layer, from the observation to the outputs.
    fn iter(&self) -> Box<dyn Iterator<Item = &Layer> + '_> {
        match self {
            Self::Alphazero(layers) => Box::new(layers.iter()),
            Self::Muzero(layers) => Box::new(layers.iter()),
        }
    }

    /// Every tensor, layer by layer.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = Tensor> {
        self.iter().flat_map(Layer::tensors)
    }

    /// The number of trained parameters; running statistics do not count.
    pub(crate) fn parameters(&self) -> usize {
        self.tensors().filter(|tensor| tensor.role.is_trained()).map(|tensor| tensor.numel()).sum()
    }

    /// The layers of an AlphaZero network.
    ///
    /// # Errors
    /// [`network::Error::Model`] for a MuZero network.
    pub(crate) fn alphazero(&self) -> Result<&Layers, Error> {
        match self {
            Self::Alphazero(layers) => Ok(layers),
            Self::Muzero(_) => Err(network::Error::Model { expected: "alphazero" }.into()),
        }
    }

    /// The layers of a MuZero network.
    ///
    /// # Errors
    /// [`network::Error::Model`] for an AlphaZero network.
    pub(crate) fn muzero(&self) -> Result<&LatentLayers, Error> {
        match self {
            Self::Muzero(layers) => Ok(layers),
            Self::Alphazero(_) => Err(network::Error::Model { expected: "muzero" }.into()),
        }
    }
}
