//! Requests of operators, and of a learner between its batches; what a server reports about itself, whose messages are
//! passed on as they are once they are checked.

use std::collections::BTreeMap;

use experience::{TotalWeight, Trajectory, TrajectoryId};

pub use super::v1::{
    Actor, ActorState, ActorsResponse as Actors, TableEdge, TableStats, UpdatePrioritiesResponse as UpdatedPriorities,
};

impl TableStats {
    /// Returns the total weight of the items that may be drawn now; each weighs one where the server does not report
    /// it.
    #[must_use]
    pub fn total_weight(&self) -> TotalWeight {
        self.total_weight.map_or_else(|| TotalWeight::of_items(self.window_items), TotalWeight::from)
    }
}

impl ActorState {
    /// Its name, for people and as a label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unknown",
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Lost => "lost",
        }
    }
}

/// A table, and the server that keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerStats {
    /// The table of the request.
    pub table: TableStats,
    /// The names of all tables, the main one first.
    pub tables: Vec<String>,
    /// The memory of all tables together and of trajectories in flight, in bytes.
    pub memory_bytes: u64,
}

/// The target of a quarantine or a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspect {
    /// One trajectory.
    Trajectory(TrajectoryId),
    /// All of this actor, past and to come.
    Actor(u64),
}

/// A request for a quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The target that is excluded from sampling.
    pub suspect: Suspect,
    /// The reason, for people.
    pub reason: String,
}

/// A trajectory, and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// It.
    pub trajectory: Trajectory,
    /// The tables that hold it.
    pub tables: Vec<String>,
    /// The time of the insert, in milliseconds since 1970 in UTC.
    pub inserted_unix_ms: u64,
    /// True if it is excluded from sampling, by its id or with its actor.
    pub quarantined: bool,
}

/// The priority of one item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ItemPriority {
    /// Of which trajectory.
    pub trajectory: TrajectoryId,
    /// The ply within the trajectory.
    pub ply: usize,
    /// Finite, at least 0.
    pub priority: f64,
}

/// New priorities of items of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorityUpdate {
    /// Of which table.
    pub table: String,
    /// At most [`PRIORITIES_MAX`](crate::limits::PRIORITIES_MAX); of two for one item the later counts.
    pub priorities: Vec<ItemPriority>,
}

/// New settings of a table; every other setting stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChange {
    /// The table.
    pub table: String,
    /// Keys and values of the run file's `[[replay.tables]]`, written as after `--set`.
    pub settings: BTreeMap<String, String>,
}
