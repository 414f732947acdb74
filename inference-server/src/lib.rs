//! Evaluates positions for other processes with the latest weights: batched requests in, priors and values out.
//!
//! [`run`] is the process, which validates a [`Config`] into [`Settings`]; [`start`] starts an instance, a
//! [`Running`] server. `load` receives weights, and `versions` keeps the latest few, which form an [`engine::Model`].
//! Each call becomes an [`engine::EvalRequest`] in the single [`queue::Queue`] in front of the evaluating threads; an
//! [`engine::Handle`] enqueues it and returns an [`engine::Answer`] or a [`rejection::Rejection`]. `grpc` serves the
//! fast path of actors, analyses and moves, [`open_inference::OpenInference`] the clients of the Open Inference
//! Protocol. Start with [`start`]. Without the feature `server` there is only `config`.

#[cfg(feature = "server")]
mod backend;
pub mod config;
#[cfg(feature = "server")]
pub mod engine;
#[cfg(feature = "server")]
mod grpc;
#[cfg(feature = "server")]
mod load;
#[cfg(feature = "server")]
mod metrics;
#[cfg(feature = "server")]
pub mod open_inference;
#[cfg(feature = "server")]
pub mod queue;
#[cfg(feature = "server")]
pub mod rejection;
#[cfg(feature = "server")]
mod search;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod versions;

pub use config::{Config, Settings};
#[cfg(feature = "server")]
pub use server::{Running, run, start};
