//! The interface of evaluators of positions, and combinations of them: caches, pipelines and routes.
//!
//! An [`Evaluator`] has [`Attributes`], takes a [`Batch`] of observations and writes [`Predictions`]: priors and a
//! [`Wdl`] value for each position, or an [`Error`]. [`Cache`] keeps answers by position and weights version.
//! [`PipelinedEvaluator`] keeps several batches in flight on one [`Device`], each in a buffer of a [`BufferPool`].
//! [`Routed`] sends each batch to the evaluator that was fastest at its size in a [`Trial`]; [`Hashing`] is a
//! pseudo-random evaluator for benchmarks. Self-play, play and the arena all use them. The crate has no rules and no
//! tensors, and no threads except while evaluators are measured. Start with [`Evaluator`].

mod batch;
mod buffer_pool;
mod cache;
mod evaluator;
mod hashing;
mod pipelined;
mod prediction;
mod preference;
mod routed;
mod trial;

pub use batch::Batch;
pub use buffer_pool::{BufferPool, DEPTH_MAX, PooledBuffer};
pub use cache::{Cache, CacheKey, PositionHasher};
pub use evaluator::{Attributes, Error, Evaluator};
pub use hashing::Hashing;
pub use pipelined::{Device, InFlightBatch, PipelinedEvaluator};
pub use prediction::{Predictions, Wdl};
pub use preference::{DevicePreference, PrecisionPreference, TrainingKernel};
pub use routed::{Candidate, Route, Routed};
pub use trial::{Speed, Trial, choose_depth, try_out};
