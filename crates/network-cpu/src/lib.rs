//! Evaluates residual towers and MuZero networks on the CPU, without libtorch: for self-play, play and the arena on
//! machines without an accelerator.
//!
//! A position is a stack of pixels with a border of zeros, so that a 3×3 convolution is nine matrix products on
//! shifted views of the same memory (`planes`). In float32, minimal filtering saves products in the convolutions of
//! the blocks (`winograd`). Weights are packed once per version, in reading order, into one piece of memory
//! (`product`). One [`KernelVariant`] per instruction set multiplies them (`paths`, through `multiply`);
//! [`choose_variant`] selects the first that passes a self-check. The crate uses no libtorch and starts no threads:
//! each thread owns a [`TowerEvaluator`] and shares the packed [`Tower`]. [`Kernel`] builds evaluators of each new
//! version as a [`KernelPreference`] demands, and checks a lower precision by the [`Drift`]; integers are scaled by
//! [`Ranges`]. A [`LatentNetwork`] is a packed MuZero network, and a [`LatentEvaluator`] keeps latent states
//! (`latent`). [`supports`] checks an architecture, and [`Error`] gives the reason why a network cannot be computed;
//! [`Stage`]s are for measurements.
//!
//! All `unsafe` code is in `paths` and `multiply`, and is called from `variant` and `multiplier`, which check the
//! preconditions.

mod arrangement;
mod attention;
mod cells;
mod drift;
mod error;
mod evaluator;
mod folded;
mod head_layers;
mod integer_trial;
mod kernel;
mod latent;
mod multiplier;
mod multiply;
mod passes;
mod paths;
mod planes;
mod pooling;
mod position_norm;
mod product;
mod quantise;
mod reference;
mod tower;
mod trunk;
mod variant;
mod winograd;

pub use drift::Drift;
pub use error::{Error, supports};
pub use evaluator::TowerEvaluator;
pub use integer_trial::INTEGERS_SPEEDUP_MIN;
pub use kernel::{ChosenVariant, Kernel, KernelPreference, choose_latent_variant, choose_variant, fastest_first};
pub use latent::{LatentEvaluator, LatentNetwork};
pub use quantise::Ranges;
pub use tower::Tower;
pub use trunk::Stage;
pub use variant::KernelVariant;

#[cfg(test)]
mod tests;
