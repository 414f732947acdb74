//! This crate connects the processes of a fleet over gRPC, and contains no messages.
//!
//! A client opens a [`channel()`], and keeps streams open with [`Reconnecting`](reconnect::Reconnecting). The endpoint
//! is one of several [`servers`] that share a job. A server is a [`server()`] that serves the connections of
//! [`incoming()`]: with a time limit for each call ([`deadline`]), and with TLS, tokens, scopes and limits on request
//! bodies ([`security`]). Messages, generated services and typed clients are in the crate `proto`, which depends on
//! this crate; here, methods are only names in one table of scopes and request limits. Start with [`channel()`]
//! and [`server()`].

mod backoff;
mod channel;
pub mod deadline;
mod incoming;
pub mod limits;
pub mod reconnect;
pub mod security;
mod server;
pub mod servers;
mod socket;
mod status;

pub use channel::{Channel, InvalidEndpoint, channel, channel_with, check as check_endpoint};
pub use incoming::{Connection, incoming};
pub use server::{GuardedServer, serve, server};
pub use status::{RETRY_AFTER, retry_after};
