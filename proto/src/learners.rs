//! Discovery among learners that train one network together: `zerofleet.learners.v1`.
//!
//! A learner adds a [`LearnersService`] to its gRPC server. The service passes every [`Question`] to the task that
//! manages the learner's membership. A [`Peer`] is the client with which to ask another learner.

mod convert;
mod exchange;
mod peer;
mod service;

use ::weights::Digest;

pub(crate) use exchange::KEY_BYTES_MAX;
pub use exchange::{Exchange, ExchangeError, Secret};
pub use peer::{Peer, PeerError};
pub use service::{LearnersService, Question, Refusal};

/// Maximum number of learners in a group.
pub const LEARNERS_MAX: usize = 64;
/// Highest generation or weights version that a learner accepts from another learner, so that increments never wrap.
pub const NUMBER_MAX: u64 = 1 << 53;

/// Generated from `zerofleet/learners/v1/learners.proto`, which documents every item.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("zerofleet.learners.v1");
}

/// The phase of a learner in the formation of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The learner looks for a coordinator.
    Seeking,
    /// The learner coordinates a group that is being formed.
    Calling,
    /// The learner is a member of a group with this coordinator.
    Training {
        /// Index of the coordinator in the list of learners.
        coordinator: usize,
    },
}

/// The status of a learner, as other learners see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Current activity.
    pub phase: Phase,
    /// Index in the list of learners.
    pub index: usize,
    /// Training steps so far in the learner's state.
    pub steps: u64,
}

impl Look {
    /// Returns true if the learner coordinates a group, or a group that is being formed.
    #[must_use]
    pub fn coordinates(&self) -> bool {
        match self.phase {
            Phase::Seeking => false,
            Phase::Calling => true,
            Phase::Training { coordinator } => coordinator == self.index,
        }
    }
}

/// Unique identity of a GPU.
pub type Gpu = [u8; 16];

/// The data with which the members of a group connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// With Gloo, by addresses that the members exchange at the coordinator.
    Exchange {
        /// The secret of the group.
        secret: Secret,
    },
    /// With NCCL, by a unique id.
    Nccl {
        /// The unique id from the coordinator.
        id: Box<[u8; 128]>,
    },
}

/// A learner that requests a place in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Index in the list of learners.
    pub index: usize,
    /// Training steps so far in the learner's state.
    pub steps: u64,
    /// The latest group with this learner as a member; 0 for none.
    pub generation: u64,
    /// The latest weights version that may have been published with this learner; 0 for none.
    pub weights_version: u64,
    /// Digest of the network and the training settings.
    pub fingerprint: Digest,
    /// The GPU for sums with NCCL.
    pub gpu: Option<Gpu>,
}

/// A group of learners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roster {
    /// Number of the group; grows with every group.
    pub generation: u64,
    /// Indices of the members, by rank; the first is the coordinator.
    pub members: Vec<usize>,
    /// Rank of the member that provides the training state for all members.
    pub source: usize,
    /// The latest weights version that may have been published with a member; 0 for none.
    pub weights_version: u64,
    /// The means by which the members connect.
    pub meeting: Meeting,
}

impl Roster {
    /// Returns the rank of a learner; `None` if the learner is not a member.
    #[must_use]
    pub fn rank_of(&self, index: usize) -> Option<usize> {
        self.members.iter().position(|&member| member == index)
    }

    /// Returns the index of the coordinator.
    #[must_use]
    pub fn coordinator(&self) -> usize {
        self.members[0]
    }
}
