use weights::{Architecture, Model};

use crate::KernelVariant;

/// Checks that the kernel supports an architecture, of any model.
///
/// # Errors
/// [`Error::Unsupported`] for sizes outside this kernel's limits, [`Error::Network`] for sizes outside every
/// backend's.
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
    #[error("the CPU kernel does not support {got} {what}, only {expected}")]
    Unsupported {
        /// Name of the dimension.
        what: &'static str,
        /// Size in the architecture.
        got: usize,
        /// Sizes that the kernel supports.
        expected: &'static str,
    },
    /// The requested instructions are not available on this machine.
    #[error("the CPU kernel's path {path} is not available: {reason}")]
    Unavailable {
        /// Requested path.
        path: KernelVariant,
        /// Reason, as the end of the message.
        reason: String,
    },
    /// The architecture or the bytes are no valid network.
    #[error(transparent)]
    Network(#[from] network::Error),
}

impl Error {
    /// Returns whether another evaluator may support the network: the weights themselves are valid.
    #[must_use]
    pub fn is_of_the_kernel(&self) -> bool {
        matches!(self, Self::Unsupported { .. } | Self::Unavailable { .. })
    }

    /// Checks that the kernel supports an AlphaZero architecture.
    pub(crate) fn check(architecture: &Architecture) -> Result<(), Self> {
        network::check(architecture)?;
        Self::check_planes(architecture)
    }

    /// Checks that the kernel supports a MuZero architecture.
    pub(crate) fn check_latent(architecture: &Architecture) -> Result<(), Self> {
        network::LatentLayers::new(architecture)?;
        if network::is_vector(architecture) { Ok(()) } else { Self::check_planes(architecture) }
    }

    /// Checks that the kernel supports a residual network of planes.
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
