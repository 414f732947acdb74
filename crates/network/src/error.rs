/// Reasons why an architecture or a file is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A size of the architecture is out of range.
    #[error("a network of {what} {got} cannot be built, the limit is {least} to {limit}")]
    Architecture {
        /// The name of the dimension.
        what: &'static str,
        /// Its size.
        got: usize,
        /// The smallest size that is accepted.
        least: usize,
        /// The largest size that is accepted.
        limit: usize,
    },
    /// The tower of this model is made of other layers.
    #[error("{part} is of the model alphazero in games scored by their outcome, and the network is of another")]
    Design {
        /// The part of the design, as in run files: `activation mish`.
        part: String,
    },
    /// The channels of bottleneck blocks cannot be halved.
    #[error("bottleneck blocks halve the channels, and {channels} are odd")]
    OddChannels {
        /// The number of channels.
        channels: usize,
    },
    /// The heads of attention blocks do not divide the channels.
    #[error("{attention} attention blocks of {heads} heads cannot be built, since {heads} does not divide {channels}")]
    AttentionHeads {
        /// The number of attention blocks.
        attention: usize,
        /// The number of heads.
        heads: usize,
        /// The number of channels.
        channels: usize,
    },
    /// The channels of a convolution do not make groups of a norm.
    #[error("group norm is over {group} channels each, which {channels} are no multiple of")]
    GroupChannels {
        /// The number of channels of a group.
        group: usize,
        /// The number of channels of the convolution.
        channels: usize,
    },
    /// Pooled heads have an output for each cell, and the game has fewer actions.
    #[error("pooled heads need an action of each cell, and {actions} actions are fewer than {cells} cells")]
    PooledHeads {
        /// The number of actions.
        actions: usize,
        /// The number of cells.
        cells: usize,
    },
    /// The architecture is that of another model.
    #[error("the network is not of the model {expected}")]
    Model {
        /// The name of the expected model.
        expected: &'static str,
    },
    /// The bytes are not a safetensors file.
    #[error("the bytes are not a safetensors file: {0}")]
    Format(String),
    /// A tensor of the network is not in the file.
    #[error("tensor `{name}` is missing")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// The file holds a tensor that the network does not have.
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
        /// The type and shape that the network has.
        expected: String,
        /// The type and shape in the file.
        got: String,
    },
    /// A tensor holds NaN, an infinity, or a variance below zero.
    #[error("tensor `{name}` holds {value}")]
    BadNumber {
        /// Its name.
        name: String,
        /// The first invalid number.
        value: f32,
    },
}
