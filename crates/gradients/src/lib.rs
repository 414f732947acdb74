//! Kernels for training on the CPU, where libtorch leaves most of the machine idle: the gradients of the weights of
//! convolutions, on matrix tiles, and batch norms with what surrounds them, each in two passes over memory.
//!
//! Activations are bfloat16, `[B, H, W, C]`, channels last; sums, statistics, weights and their gradients are float32.
//! No libtorch and no threads. All `unsafe` code lies in `convolution::amx`, and in a call of `norm`.

mod convolution;
mod norm;

pub use convolution::{Path, Shape, WeightGradient};
pub use norm::{Affine, AffineGradient, Norm};
