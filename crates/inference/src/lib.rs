//! Evaluations: the interface every evaluator has, the batch it takes, the predictions it gives.
//!
//! Self-play, play and the arena cannot tell an evaluator on the CPU from one on an accelerator, behind a cache or
//! scripted by a test. No rules, tensors or threads here. Start with [`Evaluator`].

mod batch;
mod cache;
pub mod conformance;
mod evaluator;
mod prediction;
pub mod queue;
mod routed;
pub mod testing;
mod trial;

pub use batch::Batch;
pub use cache::{Cache, CacheKey, PositionHasher};
pub use evaluator::{Attributes, Error, Evaluator};
pub use prediction::{Predictions, Wdl};
pub use routed::{Candidate, Route, Routed};
pub use trial::{Speed, Trial, try_out};
