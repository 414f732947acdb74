//! The interface of position evaluators, and combinations of evaluators: caches, batching and routes.
//!
//! An [`Evaluator`] has [`Attributes`], takes a [`Batch`] of observations and writes [`Predictions`], or fails with
//! an [`Error`]. Predictions are priors and a value per position, a [`Wdl`] or a return. [`Cache`] keeps answers by
//! position and weights. A [`LatentModel`] is a learned model of an environment with latent states in [`Slot`]s and
//! values that are categorical over a [`Support`]; [`ReturnEvaluator`] evaluates positions with it. A
//! [`BatchingEngine`] merges requests from many threads into batches for one [`Device`]. [`Routed`] sends each batch
//! to the evaluator with the highest speed for the batch size in a [`Trial`]; [`Hashing`] is a pseudo-random
//! evaluator for benchmarks. Self-play, play and the arena all use evaluators. The crate has no rules and no tensors;
//! the only threads are the thread of an engine and the threads that measure evaluators. Start with [`Evaluator`].

mod batch;
mod cache;
pub mod categorical;
mod engine;
mod evaluator;
mod hashing;
mod latent;
mod precision;
mod prediction;
mod preference;
mod return_evaluator;
mod routed;
mod trial;

pub use batch::Batch;
pub use cache::{Cache, PositionHasher, WeightsCache};
pub use categorical::Support;
pub use engine::{
    BATCH_SIZES, BatchedEvaluator, BatchingEngine, Caller, DEPTH_MAX, Device, DeviceError, EngineCounts,
    EngineSettings, LoadedNetwork, Weights,
};
pub use evaluator::{Attributes, Error, Evaluator};
pub use hashing::Hashing;
pub use latent::{LatentModel, LatentPredictions, Slot, Unroll};
pub use precision::Precision;
pub use prediction::{Predictions, Wdl};
pub use preference::{DevicePreference, PrecisionPreference, TrainingKernel, TrainingPrecision};
pub use return_evaluator::ReturnEvaluator;
pub use routed::{Candidate, Route, Routed};
pub use trial::{Speed, Trial, choose_depth, doubling_sizes, try_out, try_out_latent};
