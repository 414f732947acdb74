//! The actors that insert at a replay server, as the server lists them.

use std::time::Duration;

/// The actors of a replay server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actors {
    /// Ascending by id.
    pub actors: Vec<Actor>,
    /// The number of times that an actor was lost since the server started.
    pub lost_total: u64,
    /// The heartbeat interval that the server requests.
    pub heartbeat: Duration,
}

/// The state of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActorState {
    /// Its messages arrive within the lease.
    Live,
    /// It sent a goodbye and uploads the rest of its trajectories.
    Draining,
    /// It was silent for too long.
    Lost,
}

impl ActorState {
    /// Its name, for people and as a label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Lost => "lost",
        }
    }
}

/// One actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Its id.
    pub actor: u64,
    /// The newest that it came with.
    pub epoch: u64,
    /// The state of the actor.
    pub state: ActorState,
    /// The address of its connection, `host:port`; empty if that is not known.
    pub address: String,
    /// The time since this epoch began to insert there, in whole milliseconds.
    pub since: Duration,
    /// The time since its last message, in whole milliseconds.
    pub silent: Duration,
    /// The weights of the last step that it sent.
    pub weights_version: Option<u64>,
    /// Trajectories of it that were stored since it is listed.
    pub trajectories: u64,
    /// Trajectories on its streams that are not answered.
    pub unanswered: u32,
    /// The maximum number.
    pub credit: u32,
}
