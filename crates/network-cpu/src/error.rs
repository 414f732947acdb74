use weights::{Architecture, Model};

use crate::KernelVariant;

/// Checks that the kernel computes networks of an architecture, of any model.
///
/// # Errors
/// [`Error::Unsupported`] for sizes that this kernel does not take, [`Error::Network`] for those that no backend takes.
pub fn supports(architecture: &Architecture) -> Result<(), Error> {
    match architecture.model {
        Model::Alphazero => Error::check(architecture),
        Model::AlphazeroReturns { .. } | Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
            Error::check_latent(architecture)
        }
    }
}

/// Reasons why this kernel cannot compute a network.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The kernel does not support the architecture; libtorch may.
    #[error("the CPU kernel does not take {what} of {got}: {expected}")]
    Unsupported {
        /// The name of the dimension.
        what: &'static str,
        /// Its size in the architecture.
        got: usize,
        /// The sizes that the kernel computes.
        expected: &'static str,
    },
    /// The requested instructions are not available on this machine.
    #[error("the CPU kernel's path {path} is not available: {reason}")]
    Unavailable {
        /// The path.
        path: KernelVariant,
        /// The reason.
        reason: String,
    },
    /// The architecture or the bytes are not those of a network.
    #[error(transparent)]
    Network(#[from] network::Error),
}

impl Error {
    /// Returns whether another evaluator may support the network: the weights themselves are valid.
    #[must_use]
    pub fn is_of_the_kernel(&self) -> bool {
        matches!(self, Self::Unsupported { .. } | Self::Unavailable { .. })
    }

    /// Checks that the kernel computes AlphaZero networks of an architecture.
    pub(crate) fn check(architecture: &Architecture) -> Result<(), Self> {
        network::check(architecture)?;
        Self::check_planes(architecture)
    }

    /// Checks that the kernel computes MuZero networks of an architecture.
    pub(crate) fn check_latent(architecture: &Architecture) -> Result<(), Self> {
        network::LatentLayers::new(architecture)?;
        if network::is_vector(architecture) { Ok(()) } else { Self::check_planes(architecture) }
    }

    /// Checks that the kernel computes residual networks of planes of an architecture.
    fn check_planes(architecture: &Architecture) -> Result<(), Self> {
        let unsupported = |what, got, expected| Err(Self::Unsupported { what, got, expected });
        match *architecture {
            Architecture { channels: got, .. } if got % 16 != 0 => unsupported("channels", got, "a multiple of 16"),
            Architecture { channels: got, design, .. } if design.block.inner_channels(got) % 16 != 0 => {
                unsupported("channels", got, "a multiple of 32 in bottleneck blocks")
            }
            _ => Ok(()),
        }
    }
}
