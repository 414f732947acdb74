//! Evaluations: the interface every evaluator has, the batch it takes, the predictions it gives.
//!
//! Self-play, play and the arena use an evaluator in the same way on the CPU, on an accelerator, behind a cache or
//! scripted by a test. No rules or tensors here, and no threads but while evaluators are measured. Start with
//! [`Evaluator`].

mod batch;
mod buffer_pool;
mod cache;
pub mod conformance;
mod evaluator;
mod pipelined;
mod prediction;
mod preference;
pub mod queue;
mod routed;
pub mod testing;
mod trial;

pub use batch::Batch;
pub use buffer_pool::{BufferPool, DEPTH_MAX, PooledBuffer};
pub use cache::{Cache, CacheKey, PositionHasher};
pub use evaluator::{Attributes, Error, Evaluator};
pub use pipelined::{Device, InFlightBatch, PipelinedEvaluator};
pub use prediction::{Predictions, Wdl};
pub use preference::{DevicePreference, PrecisionPreference};
pub use routed::{Candidate, Route, Routed};
pub use trial::{Speed, Trial, choose_depth, try_out};
