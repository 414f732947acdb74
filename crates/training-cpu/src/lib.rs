//! Trains networks on the CPU without libtorch.

mod buffer;
mod convolution;
mod path;
mod shape;
mod threads;
mod vector;
mod weight_gradient;

pub use path::Path;
