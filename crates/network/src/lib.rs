//! The declaration of a network: limits of its size, layers, tensors, parameters, multiply-adds, and its file. It
//! contains no arithmetic but that of activations, functions of one number, and of the shares of attention.
//!
//! The evaluators and the trainer share it, so that every tensor, shape and constant is declared once. [`Layers`] lists
//! the layers of an [`Architecture`]: each [`Layer`] has a [`LayerKind`] and [`Tensor`]s, each tensor a [`Role`].
//! [`LatentLayers`] lists those of a MuZero network, of which an AlphaZero network of returns lacks the
//! [`DynamicsLayers`]; [`ChanceLayers`] lists what Stochastic MuZero adds, [`ConsistencyLayers`] what only training
//! needs, [`AttentionBlock`] the layers behind a tower, [`mean_scale`] how a pooled mean depends on the board.
//! [`activation`] computes what a [`Design`](weights::Design) names, [`shares`] what lies between the products of
//! attention. [`check`] checks an architecture against the limits, such as [`CHANNELS_MAX`]. [`Reader`] and [`write()`]
//! turn tensors into a safetensors file and back; an [`Error`] names the tensor that is wrong. Start with [`Layers`].

pub mod activation;
mod attention;
mod chance_layers;
mod consistency_layers;
mod error;
mod file;
mod latent_layers;
mod layers;
mod pooled;
pub mod shares;

pub use attention::AttentionBlock;
pub use chance_layers::ChanceLayers;
pub use consistency_layers::ConsistencyLayers;
pub use error::Error;
pub use file::{Entry, Reader, write};
pub use latent_layers::{DynamicsLayers, Head, LatentLayers, Trunk, is_vector};
pub use layers::{
    ACTIONS_MAX, ATTENTION_MAX, ATTENTION_SIDE_MAX, BLOCKS_MAX, Block, CHANNELS_MAX, CODES_MAX, Excitation, Layer,
    LayerKind, Layers, PLANES_MAX, Role, SIDE_MAX, SQUEEZE_EXCITATION_MAX, SUPPORT_MAX, Tensor, check,
};
pub use pooled::mean_scale;
pub use weights::{Activation, Architecture, BlockKind, HeadKind, NormKind};

/// Channels of the 1×1 convolution in front of each head.
pub const HEAD_CHANNELS: usize = 32;
/// Numbers of a position behind the pooling of a head: means, scaled means and maxima of its channels.
pub const POOLED: usize = 3 * HEAD_CHANNELS;
/// Planes into which the dynamics of a residual MuZero network map an action.
pub const ACTION_PLANES: usize = 4;
/// Units of the hidden layer of the value head.
pub const VALUE_HIDDEN: usize = 64;
/// Units of the LSTM that predicts value prefixes: as many as it has inputs, the hidden units of the reward head.
pub const MEMORY_UNITS: usize = 64;
/// The steps after which that LSTM begins again with an empty memory (Ye et al. 2021).
pub const PREFIX_HORIZON: usize = 5;
/// The ε that a norm adds to variances under the square root.
pub const NORM_EPSILON: f64 = 1e-5;
/// Channels of a group of a group norm, which Wu and He (2018, table 3) found best.
pub const GROUP_CHANNELS: usize = 16;
/// The third block, the sixth and so on have global pooling.
const POOLING_PERIOD: usize = 3;
