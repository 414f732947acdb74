//! How learners that train one network together find each other: `zerofleet.learners.v1`.
//!
//! A learner adds a [`LearnersService`] to its server, which hands every [`Question`] to the owner of the learner's
//! membership, and asks the others as [`Peer`]s.

mod exchange;
mod peer;
mod service;

use ::weights::Digest;

pub(crate) use exchange::KEY_BYTES_MAX;
pub use exchange::{Exchange, ExchangeError, Secret};
pub use peer::{Peer, PeerError};
pub use service::{LearnersService, Question, Refusal};

/// The most learners of a group.
pub const LEARNERS_MAX: usize = 64;
/// The highest number of a group or of a version of weights that a learner accepts from another one: what follows
/// never wraps.
pub const NUMBER_MAX: u64 = 1 << 53;

/// Generated from `zerofleet/learners/v1/learners.proto`, which documents every item.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("zerofleet.learners.v1");
}

/// What a learner does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It looks for a coordinator.
    Seeking,
    /// It coordinates a group that is being formed.
    Calling,
    /// It is a member of a group with this coordinator.
    Training {
        /// The coordinator's index.
        coordinator: usize,
    },
}

/// What others see of a learner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// What it does.
    pub phase: Phase,
    /// Its place in the list of learners.
    pub index: usize,
    /// The training steps that its state has taken.
    pub steps: u64,
}

impl Look {
    /// Returns whether it coordinates a group, or one that is being formed.
    #[must_use]
    pub fn coordinates(&self) -> bool {
        match self.phase {
            Phase::Seeking => false,
            Phase::Calling => true,
            Phase::Training { coordinator } => coordinator == self.index,
        }
    }
}

/// The identity of a GPU, which no other one has.
pub type Gpu = [u8; 16];

/// How the members of a group connect to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// With Gloo, by addresses that they exchange at the coordinator.
    Exchange {
        /// The secret of the group.
        secret: Secret,
    },
    /// With NCCL.
    Nccl {
        /// The unique id that the coordinator made.
        id: Box<[u8; 128]>,
    },
}

/// A learner that asks for a place in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its place in the list of learners.
    pub index: usize,
    /// The training steps that its state has taken.
    pub steps: u64,
    /// The newest group that it was a member of; 0 for none.
    pub generation: u64,
    /// The newest version of weights that may have been published with it; 0 for none.
    pub weights_version: u64,
    /// The digest of its network and its settings of training.
    pub fingerprint: Digest,
    /// The GPU on which it can sum with NCCL.
    pub gpu: Option<Gpu>,
}

/// A group of learners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roster {
    /// Grows with every group.
    pub generation: u64,
    /// The indices of the members, by rank; the first is the coordinator.
    pub members: Vec<usize>,
    /// The rank of the member whose state the others take.
    pub source: usize,
    /// The newest version of weights that may have been published with a member; 0 for none.
    pub weights_version: u64,
    /// How the members connect.
    pub meeting: Meeting,
}

impl Roster {
    /// Returns the rank of a learner; `None` if it is no member.
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
