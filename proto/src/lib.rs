//! The wire: messages, conversions, typed clients.
//!
//! `proto/` beside this crate's sources holds the .proto files; they say what a message means and in which order the
//! messages of a stream may come. Here are the code generated from them ([`replay::v1`], [`weights::v1`], [`inference::v1`],
//! [`open_inference::v2`]), the conversions to and from domain types ([`convert`]), the clients ([`replay::Writer`],
//! [`replay::Sampler`], [`weights::Subscriber`], [`inference::Evaluations`]), where the servers are that share one job
//! ([`servers`]), and what every server and channel shares: settings, and who is at the other end ([`security`]). It knows no
//! table, no tensor and no rules. Start with
//! [`replay`].

mod channel;
pub mod convert;
mod incoming;
pub mod inference;
pub mod limits;
pub mod open_inference;
mod reconnect;
pub mod replay;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;
pub mod security;
mod server;
pub mod servers;
pub mod weights;

pub use channel::{Channel, InvalidEndpoint, channel, channel_with, check as check_endpoint};
pub use incoming::{Connection, incoming};
pub use server::{health_and_reflection, server};

/// The descriptors of all messages and services: what reflection serves.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
