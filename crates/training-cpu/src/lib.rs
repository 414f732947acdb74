//! Trains AlphaZero networks on the CPU, without libtorch.
//!
//! A [`Trainer`] takes batches of [`Examples`](training::Examples) and computes steps in float32 with the
//! instructions of a [`Path`], on threads of its own; a [`Snapshot`] is a copy of its state, in the files of every
//! backend. The crate depends on no game, process or clock. `tower` runs a network forward and back in segments between
//! batch norms, which consist of convolutions (`convolution`, `filtering`, `weight_gradient`), norms (`norm`) and what
//! follows them (`activation`); `losses` and `optimiser` complete a step. Start with `tower`.

mod activation;
mod alphazero;
mod buffer;
mod convolution;
mod elements;
mod error;
mod filtering;
mod graph;
mod latent;
mod layer_norm;
mod losses;
mod matrix;
mod memory;
mod norm;
mod optimiser;
mod parts;
mod path;
mod planes;
#[cfg(test)]
mod reference;
mod rescale;
mod shape;
mod snapshot;
mod threads;
mod trainer;
mod vector;
mod weight_gradient;
mod weight_sums;

pub use error::Error;
pub use path::Path;
pub use snapshot::Snapshot;
pub use trainer::Trainer;

#[cfg(test)]
mod tests {
    pub(crate) mod networks;
}
