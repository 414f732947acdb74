//! Declaration of a network: size limits, layers, tensors, parameters, multiply-adds, and the file format. The only
//! arithmetic is in activation functions and attention shares.
//!
//! The evaluators and the trainer share this crate, so that every tensor, shape and constant is declared once.
//! [`Layers`] lists the layers of an [`Architecture`]: each [`Layer`] has a [`LayerKind`] and [`Tensor`]s, each
//! tensor a [`Role`]. [`LatentLayers`] lists the layers of a MuZero network; an AlphaZero network of returns lacks
//! the [`DynamicsLayers`]. [`ChanceLayers`] lists additions for Stochastic MuZero, [`ConsistencyLayers`] layers for
//! training alone, [`AttentionBlock`] layers after a tower. [`mean_scale`] gives the board dependence of a pooled
//! mean. [`activation`] computes the functions of a [`Design`](weights::Design), [`shares`] the steps between the
//! products of attention. [`check`] checks an architecture against the limits, such as [`CHANNELS_MAX`]. [`Reader`]
//! and [`write()`] convert between tensors and a safetensors file, [`in_bfloat16`] halves the file, and [`note`] reads
//! the metadata; an [`Error`] names the wrong tensor. Start with [`Layers`].

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
pub use file::{Entry, Reader, in_bfloat16, note, write};
pub use latent_layers::{DynamicsLayers, Head, LatentLayers, Transition, Trunk, is_vector};
pub use layers::{
    ACTIONS_MAX, ATTENTION_MAX, ATTENTION_SIDE_MAX, BLOCKS_MAX, Block, CHANNELS_MAX, CODES_MAX, Excitation, Layer,
    LayerKind, Layers, PLANES_MAX, Role, SIDE_MAX, SQUEEZE_EXCITATION_MAX, SUPPORT_MAX, Tensor, check,
};
pub use pooled::mean_scale;
pub use weights::{Activation, Architecture, BlockKind, HeadKind, NormKind};

/// Channels of the 1×1 convolution before each head.
pub const HEAD_CHANNELS: usize = 32;
/// Features of a position after the pooling of a head: mean, scaled mean and maximum per channel.
pub const POOLED: usize = 3 * HEAD_CHANNELS;
/// Planes that represent an action in the dynamics of a residual MuZero network.
pub const ACTION_PLANES: usize = 4;
/// Hidden units of the value head.
pub const VALUE_HIDDEN: usize = 64;
/// ε that a norm adds to variances under the square root.
pub const NORM_EPSILON: f64 = 1e-5;
/// Channels per group of a group norm, the best choice in Wu and He (2018, table 3).
pub const GROUP_CHANNELS: usize = 16;
/// The third block, the sixth and so on have global pooling.
const POOLING_PERIOD: usize = 3;
