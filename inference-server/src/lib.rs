//! Evaluates positions for other processes with the latest weights: batched requests in, priors and values out.
//!
//! [`run`] is the process, which validates a [`Config`](run_file::inference::Config); [`start`] starts an instance, a
//! [`Running`] server. `load` receives weights, and `versions` keeps the latest few, which form an [`engine::Model`].
//! Each call becomes an [`engine::EvalRequest`] in the single [`queue::Queue`] in front of the evaluating threads; an
//! [`engine::Handle`] enqueues it and returns an [`engine::Answer`] or a [`rejection::Rejection`]. `grpc` serves the
//! fast path of actors, analyses and moves, [`open_inference::OpenInference`] the clients of the Open Inference
//! Protocol. A `search` needs one of the `places`, which are divided among clients. Start with [`start`].

mod backend;
pub mod engine;
mod grpc;
mod load;
mod metrics;
pub mod open_inference;
mod places;
pub mod queue;
pub mod rejection;
mod search;
mod server;
mod versions;

pub use server::{Running, run, start};
