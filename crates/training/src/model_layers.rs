use network::{ConsistencyLayers, LatentLayers, Layer, Layers, Tensor};
use weights::{Architecture, Model};

use crate::{Error, layout::Layout};

/// The layers of a network of either model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a process holds few networks")]
pub enum ModelLayers {
    /// Of priors and values.
    Alphazero(Layers),
    /// Of latent states; without dynamics, that of an AlphaZero network of returns.
    Muzero {
        /// The layers of evaluators.
        latent: LatentLayers,
        /// The heads of the consistency loss, where it is trained.
        consistency: Option<ConsistencyLayers>,
    },
}

impl ModelLayers {
    /// The layers of an architecture as evaluators need them.
    ///
    /// # Errors
    /// [`Error::Network`] names the dimension that is out of range.
    pub fn new(architecture: &Architecture) -> Result<Self, Error> {
        Ok(match architecture.model {
            Model::Alphazero => Self::Alphazero(Layers::new(architecture)?),
            Model::AlphazeroReturns { .. } | Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
                Self::Muzero { latent: LatentLayers::new(architecture)?, consistency: None }
            }
        })
    }

    /// The layers of a MuZero architecture, with the heads of the consistency loss.
    ///
    /// # Errors
    /// [`Error::Network`] names the dimension that is out of range, or the model.
    pub fn with_consistency(architecture: &Architecture) -> Result<Self, Error> {
        let (latent, consistency) = (LatentLayers::new(architecture)?, ConsistencyLayers::new(architecture)?);
        Ok(Self::Muzero { latent, consistency: Some(consistency) })
    }

    /// Every layer of evaluators, from the observation to the outputs.
    fn iter(&self) -> Box<dyn Iterator<Item = &Layer> + '_> {
        match self {
            Self::Alphazero(layers) => Box::new(layers.iter()),
            Self::Muzero { latent, .. } => Box::new(latent.iter()),
        }
    }

    /// The places of all tensors.
    pub fn layout(&self) -> Layout {
        let training = self.consistency().into_iter().flat_map(ConsistencyLayers::iter).flat_map(Layer::tensors);
        Layout::new(self.tensors(), training)
    }

    /// Every tensor of evaluators, layer by layer.
    fn tensors(&self) -> impl Iterator<Item = Tensor> {
        self.iter().flat_map(Layer::tensors)
    }

    /// The number of trained parameters that evaluators need; running statistics do not count.
    pub fn parameters(&self) -> usize {
        self.tensors().filter(|tensor| tensor.role.is_trained()).map(|tensor| tensor.numel()).sum()
    }

    /// The layers of an AlphaZero network of wins, draws and losses.
    ///
    /// # Errors
    /// [`network::Error::Model`] for any other network.
    pub fn alphazero(&self) -> Result<&Layers, Error> {
        match self {
            Self::Alphazero(layers) => Ok(layers),
            Self::Muzero { .. } => Err(network::Error::Model { expected: "alphazero" }.into()),
        }
    }

    /// The layers of a MuZero network, or of an AlphaZero network of returns.
    ///
    /// # Errors
    /// [`network::Error::Model`] for any other network.
    pub fn muzero(&self) -> Result<&LatentLayers, Error> {
        match self {
            Self::Muzero { latent, .. } => Ok(latent),
            Self::Alphazero(_) => Err(network::Error::Model { expected: "muzero" }.into()),
        }
    }

    /// The heads of the consistency loss, where it is trained.
    pub fn consistency(&self) -> Option<&ConsistencyLayers> {
        match self {
            Self::Muzero { consistency, .. } => consistency.as_ref(),
            Self::Alphazero(_) => None,
        }
    }
}
