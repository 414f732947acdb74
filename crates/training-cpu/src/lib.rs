//! Trains networks of every model on the CPU, without libtorch.
//!
//! A [`Trainer`] takes batches of [`Examples`](training::Examples) and computes steps with the instructions of a
//! [`Path`], on dedicated threads; a [snapshot](training::Snapshot) is a copy of the state, in the file format of every
//! backend. The crate depends on no game, process or clock.
//!
//! `alphazero` and `latent` build the `graph` of a network, which runs forward and backward in phases between batch
//! norms. The operations are convolutions and matrices (`convolution`, `filtering`, `weight_gradient`), norms
//! (`norm`, `layer_norm`, `position_norm`), what follows norms (`activation`), `attention`, `pooled` and `rescale`;
//! `losses`, `optimiser` and `muon` complete a step. Start with `graph`.

mod activation;
mod alphazero;
mod attention;
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
mod muon;
mod norm;
mod optimiser;
mod parts;
mod path;
mod planes;
mod pooled;
mod position_norm;
#[cfg(test)]
mod reference;
mod rescale;
mod shape;
mod snapshot;
mod stored;
mod threads;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod trainer;
mod vector;
mod weight_gradient;
mod weight_sums;

pub use error::Error;
pub use path::Path;
pub use trainer::Trainer;

#[cfg(test)]
mod tests {
    mod boards;
    mod growth;
    pub(crate) mod networks;
}
