//! Computes the parts of a training step for which libtorch leaves most of a CPU idle: gradients of convolution
//! weights, and batch norms fused with the operations around them.
//!
//! [`WeightGradient`] computes the gradients of a convolution of some [`Shape`], on the matrix tiles or in portable
//! code, as its [`Path`] selects. A [`Norm`] with its [`Affine`] takes two passes over memory forward and two backward,
//! which return an [`AffineGradient`]. Activations are bfloat16, `[B, H, W, C]`, channels last; sums, statistics,
//! weights and their gradients are float32. The crate uses neither libtorch nor threads. All `unsafe` code lies in
//! `convolution::amx`, and in one call in `norm`.

mod convolution;
mod norm;

pub use convolution::{Path, Shape, WeightGradient};
pub use norm::{Affine, AffineGradient, Norm};
