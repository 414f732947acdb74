//! Evaluates residual towers on the CPU, without libtorch: for self-play, play and the arena where there is no
//! accelerator.
//!
//! A position is a stack of pixels with a border of zeros, so that a 3×3 convolution is nine matrix products on the
//! same memory, shifted (`planes`); in float32 the convolutions of the blocks make fewer products by minimal filtering
//! (`winograd`). Weights are packed once per version in the order they are read and lie in one piece of memory
//! (`product`). One [`KernelVariant`] per instruction set multiplies them (`paths`, by way of `multiply`);
//! [`choose_variant`] takes the first that gives the right answers. No libtorch, no threads: each thread owns a
//! [`TowerEvaluator`] and shares the packed [`Tower`]. [`Kernel`] builds evaluators of each new version by a
//! [`KernelPreference`], and checks coarse numbers by their [`Drift`]; integers are scaled by [`Ranges`]. [`Error`]
//! names what the kernel does not compute; [`Stage`]s are for measurements.
//!
//! All `unsafe` code lies in `paths` and `multiply`, and is called from `variant` and `multiplier`, which check what it
//! relies on.

mod drift;
mod error;
mod evaluator;
mod folded;
mod kernel;
mod multiplier;
mod multiply;
mod paths;
mod planes;
mod pooling;
mod product;
mod quantise;
mod reference;
mod tower;
mod variant;
mod winograd;

pub use drift::Drift;
pub use error::Error;
pub use evaluator::TowerEvaluator;
pub use kernel::{ChosenVariant, Kernel, KernelPreference, choose_variant, fastest_first};
pub use quantise::Ranges;
pub use tower::{Stage, Tower};
pub use variant::KernelVariant;

#[cfg(test)]
mod tests;
