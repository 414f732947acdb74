//! The wire protocol: messages, conversions and typed clients.
//!
//! The .proto files lie in `proto/`, next to the sources; they define the meaning of each message and the legal order
//! of messages in a stream. This crate holds the generated code ([`replay::v1`], [`weights::v1`], [`inference::v1`],
//! [`learners::v1`], [`open_inference::v2`]), the clients ([`replay::Writer`], [`replay::Sampler`],
//! [`weights::Subscriber`], [`inference::Evaluations`], [`learners::Peer`]) with the conversions to and from domain
//! types next to them ([`convert`] has the common part), and the [`limits`] of fields. It depends on no tables, no
//! tensors and no game rules; connections, TLS and tokens are in the crate `transport`. Start with [`replay`].

// The sources of `scripted`, compiled into the tests of this crate, refer to this crate as `proto`.
#[cfg(test)]
extern crate self as proto;

mod codec;
pub mod convert;
pub mod inference;
pub mod learners;
pub mod limits;
pub mod open_inference;
mod reflection;
pub mod replay;
#[cfg(test)]
#[path = "../../tests/scripted/src/lib.rs"]
pub mod scripted;
pub mod weights;

pub use reflection::{HealthReporter, health_and_reflection};

/// The encoded descriptors of all messages and services, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
