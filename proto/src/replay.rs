//! The replay service, which stores trajectories and returns samples: `zerofleet.replay.v1`.
//!
//! An actor holds a [`Writer`] for each server, the learner a [`ShardedSampler`] with a [`Sampler`] for each server.
//! A tool that inspects a table holds an [`Inspector`], an actor that searches stored trajectories again a
//! [`Reviser`]. The server implements [`v1::replay_server::Replay`] and reads streams through [`order`];
//! [`service()`] adds the service to a server.

mod convert;
mod epoch;
mod inspector;
mod operator;
pub mod order;
mod reviser;
mod route;
mod sampler;
mod sharded;
mod writer;

use std::num::NonZeroU64;
use std::time::Duration;

pub use convert::{batch_to_wire, change_from_wire, choice_to_wire, revision_from_wire, trace_of, waiting_to_wire};
pub use epoch::next_epoch;
use experience::{Invalid, Sample, TrajectoryId};
pub use inspector::{Inspector, RequestError, report, stats};
pub use operator::{
    Actor, ActorState, Actors, Found, ItemPriority, ListOrder, Located, PriorityUpdate, Quarantine, SearchPage,
    SearchQuery, ServerStats, Suspect, TableChange, TableEdge, TableStats, UpdatedPriorities,
};
pub use reviser::{Choice, Revisable, ReviseRefusal, Revised, Reviser};
pub use route::{LinkState, Links, Route};
pub use sampler::{NewestWeights, Sampler, SamplerSettings};
pub use sharded::{SHARD_TIMEOUT, ShardedBatch, ShardedSampler, ShardedSettings};
use transport::Channel;
use transport::limits::MESSAGE_BYTES_MAX;
pub use v1::InsertWait;
pub use writer::{EpochUse, Outbox, Received, UploadStatus, Writer, WriterError, WriterSettings, WriterStats};

/// Generated from `zerofleet/replay/v1/replay.proto`, which documents every item.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("zerofleet.replay.v1");
}

/// The source of an insert stream: all trajectories of the stream carry this actor, epoch and game.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The actor, stable over restarts.
    pub actor: u64,
    /// The epoch of the actor: grows with every start.
    pub epoch: u64,
    /// Name of the game, as in the spec.
    pub game: String,
}

/// Revision of the insert stream that this crate implements: with heartbeats, a goodbye, responses for stale
/// trajectories, and reports of why trajectories wait.
pub const INSERT_REVISION: u32 = 2;

/// The outcome of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The trajectory was new and is durable.
    Inserted {
        /// Sequence number in the epoch.
        sequence: u64,
    },
    /// The trajectory was already stored and counts once.
    Duplicate {
        /// Sequence number in the epoch.
        sequence: u64,
    },
    /// The policy lag of the trajectory exceeds the limit of every table: it is not stored and need not be resent.
    Stale {
        /// Sequence number in the epoch.
        sequence: u64,
    },
    /// The trajectory is invalid and permanently refused.
    Refused {
        /// Sequence number in the epoch.
        sequence: u64,
        /// The invalid field, with the reason.
        fault: Invalid,
    },
}

impl Answer {
    /// Returns the sequence number of the trajectory.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        match *self {
            Self::Inserted { sequence }
            | Self::Duplicate { sequence }
            | Self::Stale { sequence }
            | Self::Refused { sequence, .. } => sequence,
        }
    }
}

/// The request of a sampler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleQuery {
    /// Name of the game, as in the spec.
    pub game: String,
    /// Samples in a batch.
    pub batch_size: usize,
    /// Steps after the first in a segment: K unroll steps plus n for the bootstrapped return.
    pub unroll_steps: usize,
    /// The table to sample from.
    pub table: String,
    /// Time without a batch after which the server closes the stream, in whole milliseconds; `None` for no limit.
    pub timeout: Option<Duration>,
}

/// Samples drawn together, and the table statistics at the time of the draw.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleBatch {
    /// The requested number of samples.
    pub samples: Vec<Sample>,
    /// Statistics of the sampled table.
    pub table: TableStats,
}

/// Name of the default table.
pub const MAIN_TABLE: &str = "main";

/// A request to list trajectory ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// The table to list.
    pub table: String,
    /// The order of the ids.
    pub order: ListOrder,
    /// The exclusive lower bound of the listed ids; requires ascending order.
    pub after: Option<TrajectoryId>,
    /// The maximum number of ids.
    pub limit: Option<NonZeroU64>,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self { table: MAIN_TABLE.to_owned(), order: ListOrder::ASCENDING, after: None, limit: None }
    }
}

/// A report of a trajectory that violates the game rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Id of the trajectory.
    pub trajectory: TrajectoryId,
    /// The step that violates the rules.
    pub ply: usize,
    /// Human-readable description of the violation.
    pub reason: String,
}

/// Returns the replay service with the message limits of this crate, to add to a server.
pub fn service<R: v1::replay_server::Replay>(replay: R) -> v1::replay_server::ReplayServer<R> {
    v1::replay_server::ReplayServer::new(replay)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns the generated client with the message limits of this crate.
#[must_use]
pub fn client(channel: Channel) -> v1::replay_client::ReplayClient<Channel> {
    v1::replay_client::ReplayClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}
