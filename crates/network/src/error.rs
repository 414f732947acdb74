/// Reasons why an architecture or a file is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A size of the architecture is out of range.
    #[error("invalid {what} {got}: must be from {least} to {limit}")]
    Architecture {
        /// Name of the dimension.
        what: &'static str,
        /// Rejected size.
        got: usize,
        /// Minimum size.
        least: usize,
        /// Maximum size.
        limit: usize,
    },
    /// The tower of this model does not support the design.
    #[error("{part} requires the model `alphazero` and a game scored by outcome")]
    Design {
        /// Part of the design, as in run files: `activation mish`.
        part: String,
    },
    /// The channels of bottleneck blocks cannot be halved.
    #[error("bottleneck blocks need an even number of channels, got {channels}")]
    OddChannels {
        /// Number of channels.
        channels: usize,
    },
    /// The heads of attention blocks do not divide the channels.
    #[error("{attention} attention blocks of {heads} heads need channels divisible by {heads}, got {channels}")]
    AttentionHeads {
        /// The number of attention blocks.
        attention: usize,
        /// Number of heads.
        heads: usize,
        /// Number of channels.
        channels: usize,
    },
    /// The channels of a convolution are not a multiple of the norm's group size.
    #[error("group norm needs a multiple of {group} channels, got {channels}")]
    GroupChannels {
        /// Channels per group.
        group: usize,
        /// Channels of the convolution.
        channels: usize,
    },
    /// Pooled heads need an output for each cell, but the game has fewer actions.
    #[error("pooled heads need an action per cell, and {actions} actions are fewer than {cells} cells")]
    PooledHeads {
        /// The number of actions.
        actions: usize,
        /// The number of cells.
        cells: usize,
    },
    /// The architecture belongs to another model.
    #[error("the network is not an instance of the model {expected}")]
    Model {
        /// Name of the expected model.
        expected: &'static str,
    },
    /// The bytes are not a safetensors file.
    #[error("not a safetensors file: {0}")]
    Format(String),
    /// A tensor of the network is not in the file.
    #[error("tensor `{name}` is missing")]
    MissingTensor {
        /// Name of the missing tensor.
        name: String,
    },
    /// The file holds a tensor that the network does not have.
    #[error("tensor `{name}` does not belong to this network")]
    UnexpectedTensor {
        /// Name of the excess tensor.
        name: String,
    },
    /// A tensor has the wrong shape or element type.
    #[error("tensor `{name}` is {got}, expected {expected}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Element type and shape in the network.
        expected: String,
        /// Element type and shape in the file.
        got: String,
    },
    /// A tensor contains NaN, an infinity, or a variance below zero.
    #[error("tensor `{name}` contains the invalid value {value}")]
    BadNumber {
        /// Name of the tensor.
        name: String,
        /// The first invalid number.
        value: f32,
    },
}
