//! The wire protocol: messages, conversions and typed clients.
//!
//! The .proto files lie in `proto/`, next to the sources; they define the meaning of each message and the legal order
//! of messages in a stream. This crate holds the generated code ([`replay::v1`], [`weights::v1`], [`inference::v1`],
//! [`learners::v1`], [`open_inference::v2`]), the conversions to and from domain types ([`convert`]), the clients
//! ([`replay::Writer`], [`replay::Sampler`], [`weights::Subscriber`], [`inference::Evaluations`],
//! [`learners::Peer`]), the discovery of servers that share one job ([`servers`]), and the settings and
//! authentication for all servers and channels ([`security`]). It depends on no tables, no tensors and no game rules.
//! Start with [`replay`].

// The sources of `scripted`, compiled into the tests of this crate, refer to this crate as `proto`.
#[cfg(test)]
extern crate self as proto;

mod channel;
pub mod convert;
pub mod deadline;
mod incoming;
pub mod inference;
pub mod learners;
pub mod limits;
pub mod open_inference;
mod reconnect;
pub mod replay;
#[cfg(test)]
#[path = "../../tests/scripted/src/lib.rs"]
pub mod scripted;
pub mod security;
mod server;
pub mod servers;
mod socket;
mod status;
pub mod weights;

pub use channel::{Channel, InvalidEndpoint, channel, channel_with, check as check_endpoint};
pub use incoming::{Connection, incoming};
pub use server::{GuardedServer, health_and_reflection, serve, server};

/// The encoded descriptors of all messages and services, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
