//! Who inserts at a replay server, as it tells whoever asks.

use std::time::Duration;

/// The actors of a replay server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actors {
    /// Ascending by id.
    pub actors: Vec<Actor>,
    /// How often an actor was lost since the server started.
    pub lost_total: u64,
    /// How often the server wants to hear of an actor.
    pub heartbeat: Duration,
}

/// How it stands with an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActorState {
    /// It is heard.
    Live,
    /// It said goodbye and hands in what it has.
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
    /// How it stands with it.
    pub state: ActorState,
    /// Where it comes from, `host:port`; empty if that is not known.
    pub address: String,
    /// How long ago this epoch began to insert there, in whole milliseconds.
    pub since: Duration,
    /// How long ago it was last heard, in whole milliseconds.
    pub silent: Duration,
    /// The weights of the last step that it sent.
    pub weights_version: Option<u64>,
    /// Trajectories of it that were stored since it is listed.
    pub trajectories: u64,
    /// Trajectories on its streams that are not answered.
    pub unanswered: u32,
    /// How many may be.
    pub credit: u32,
}
