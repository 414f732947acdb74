//! Defines what an evaluator of positions is, and combines evaluators: caches, pipelines and routes of them.
//!
//! An [`Evaluator`] has [`Attributes`], takes a [`Batch`] of observations and writes [`Predictions`]: priors and a
//! [`Wdl`] value for each position, or an [`Error`]. [`Cache`] keeps answers by position and weights version.
//! [`PipelinedEvaluator`] keeps several batches in flight on one [`Device`], each in a buffer of a [`BufferPool`].
//! [`Routed`] sends each batch to the evaluator that was fastest at its size in a [`Trial`]; [`Hashing`] is a network
//! without meaning, for benchmarks. Self-play, play and the arena use all of them alike. No rules and no tensors, and
//! no threads except while evaluators are measured. Start with [`Evaluator`].

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
