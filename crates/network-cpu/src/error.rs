/// Why a network cannot be computed by this kernel.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The architecture is outside what the kernel computes; libtorch may take it.
    #[error("the CPU kernel does not take {what} of {got}: {expected}")]
    Unsupported {
        /// Which dimension.
        what: &'static str,
        /// What the architecture has.
        got: usize,
        /// What the kernel takes.
        expected: &'static str,
    },
    /// The instructions that were asked for are not there.
    #[error("the CPU kernel's path {path} is not available: {reason}")]
    Unavailable {
        /// The path.
        path: crate::Path,
        /// Why not.
        reason: String,
    },
    /// The bytes are not a safetensors file.
    #[error("the bytes are not a safetensors file: {0}")]
    Format(String),
    /// A tensor the network needs is not in the file.
    #[error("tensor `{name}` is missing")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// The file holds a tensor the network does not have.
    #[error("tensor `{name}` does not belong to this network")]
    UnexpectedTensor {
        /// Its name.
        name: String,
    },
    /// A tensor has the wrong shape or element type.
    #[error("tensor `{name}` is {got}, expected {expected}")]
    Shape {
        /// Its name.
        name: String,
        /// What the network has.
        expected: String,
        /// What the file has.
        got: String,
    },
    /// A tensor holds NaN, an infinity, or a variance below zero.
    #[error("tensor `{name}` holds {value}")]
    BadNumber {
        /// Its name.
        name: String,
        /// The first such number.
        value: f32,
    },
}

impl Error {
    /// Whether another evaluator may take the network: the weights themselves are not to blame.
    #[must_use]
    pub fn is_of_the_kernel(&self) -> bool {
        matches!(self, Self::Unsupported { .. } | Self::Unavailable { .. })
    }
}
