//! Trains networks on the CPU without libtorch.

mod activation;
mod buffer;
mod convolution;
mod error;
mod filtering;
mod losses;
mod matrix;
mod norm;
mod optimiser;
mod parts;
mod path;
#[cfg(test)]
mod reference;
mod shape;
mod snapshot;
mod threads;
mod tower;
mod trainer;
mod vector;
mod weight_gradient;

pub use error::Error;
pub use path::Path;
pub use snapshot::Snapshot;
pub use trainer::Trainer;

#[cfg(test)]
mod tests {
    pub(crate) mod networks;
}
