//! Requests of operators, and of a learner between its batches. The state that a server reports has no second type: its
//! messages are checked and passed on.

use std::collections::BTreeMap;

use experience::{TotalWeight, Trajectory, TrajectoryId};

pub use super::v1::{
    Actor, ActorState, ActorsResponse as Actors, TableEdge, TableStats, UpdatePrioritiesResponse as UpdatedPriorities,
};

impl TableStats {
    /// Returns the total weight of the items that may be drawn now; each weighs one if the server does not report it.
    #[must_use]
    pub fn total_weight(&self) -> TotalWeight {
        self.total_weight.map_or_else(|| TotalWeight::of_items(self.window_items), TotalWeight::from)
    }
}

impl ActorState {
    /// Returns its name, for output and as a label.
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

/// The statistics of a table and of its server.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// One trajectory.
    Trajectory(TrajectoryId),
    /// All past and future trajectories of this actor.
    Actor(u64),
}

/// A request for a quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The target that is excluded from sampling.
    pub suspect: Suspect,
    /// The human-readable reason.
    pub reason: String,
}

/// A trajectory and the tables that hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// The trajectory.
    pub trajectory: Trajectory,
    /// The tables that hold it.
    pub tables: Vec<String>,
    /// The time of the insert, in milliseconds since 1970 in UTC.
    pub inserted_unix_ms: u64,
    /// True if it is excluded from sampling, by its id or with its actor.
    pub quarantined: bool,
    /// The revision of its searches: 0 for those of self-play, one more after each reanalysis.
    pub revision: u64,
    /// The time of its last revision, in milliseconds since 1970 in UTC; 0 if there was none.
    pub revised_unix_ms: u64,
}

/// The priority of one item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ItemPriority {
    /// The trajectory of the item.
    pub trajectory: TrajectoryId,
    /// The ply within the trajectory.
    pub ply: usize,
    /// Finite, at least 0.
    pub priority: f64,
}

/// New priorities of items of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorityUpdate {
    /// The table of the items.
    pub table: String,
    /// At most [`PRIORITIES_MAX`](crate::limits::PRIORITIES_MAX); if an item occurs twice, the later priority applies.
    pub priorities: Vec<ItemPriority>,
}

/// New settings of a table; every other setting stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChange {
    /// The table.
    pub table: String,
    /// Keys and values of the run file's `[[replay.tables]]`, in the syntax of `--set`.
    pub settings: BTreeMap<String, String>,
}
