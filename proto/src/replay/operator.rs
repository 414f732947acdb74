//! Requests that operators send, and that a learner sends between batches. The state reported by a server has no domain
//! type: the messages are checked and passed on.

use experience::{Filter, Trajectory, TrajectoryId, WeightsVersion};
use game::Outcome;

use super::MAIN_TABLE;
pub use super::v1::{
    Actor, ActorState, ActorsResponse as Actors, ConfigureRequest as TableChange, ListOrder, TableEdge, TableStats,
    UpdatePrioritiesResponse as UpdatedPriorities,
};

impl TableStats {
    /// Returns the total weight of the items that may be drawn now. If the server reports no weight, each item has
    /// weight 1.
    #[must_use]
    pub fn total_weight(&self) -> f64 {
        self.total_weight.map_or(self.window_items as f64, |total| total.weight)
    }
}

impl ListOrder {
    /// Ascending by id: actor, epoch, sequence number.
    pub const ASCENDING: Self = Self::Unspecified;
}

impl ActorState {
    /// Returns the name of the state, for output and as a label.
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

/// Statistics of a table and of the server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerStats {
    /// The table of the request.
    pub table: TableStats,
    /// Names of all tables, the main table first.
    pub tables: Vec<String>,
    /// Memory of all tables together and of trajectories in flight, in bytes.
    pub memory_bytes: u64,
}

/// The target of a quarantine or a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// A single trajectory, by id.
    Trajectory(TrajectoryId),
    /// All past and future trajectories of this actor.
    Actor(u64),
}

/// A request for a quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The target to exclude from sampling.
    pub suspect: Suspect,
    /// Human-readable reason for the quarantine.
    pub reason: String,
}

/// A trajectory, and the tables that hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// The stored trajectory, with the latest searches.
    pub trajectory: Trajectory,
    /// Names of the tables that hold the trajectory.
    pub tables: Vec<String>,
    /// Time of the insert, in milliseconds since 1970 in UTC.
    pub inserted_unix_ms: u64,
    /// True if excluded from sampling, by trajectory id or by actor.
    pub quarantined: bool,
    /// Revision of the searches: 0 for self-play, one more after each reanalysis.
    pub revision: u64,
    /// Time of the last revision, in milliseconds since 1970 in UTC; 0 if there was none.
    pub revised_unix_ms: u64,
}

/// A request for one page of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchQuery {
    /// The table to search.
    pub table: String,
    /// The order of the trajectories.
    pub order: ListOrder,
    /// Conditions on the trajectories.
    pub filter: Filter,
    /// True for trajectories in quarantine, false for trajectories outside; `None` for both.
    pub quarantined: Option<bool>,
    /// [`SearchPage::next`] of the previous page; `None` for the first page.
    pub cursor: Option<String>,
    /// The maximum number of trajectories on the page, 1 to [`SEARCH_PAGE_MAX`](crate::limits::SEARCH_PAGE_MAX).
    pub limit: usize,
}

impl Default for SearchQuery {
    /// Returns a request for the 50 latest trajectories of the main table.
    fn default() -> Self {
        let (table, order) = (MAIN_TABLE.to_owned(), ListOrder::Newest);
        Self { table, order, filter: Filter::default(), quarantined: None, cursor: None, limit: 50 }
    }
}

/// One page of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPage {
    /// The trajectories, in the requested order.
    pub found: Vec<Found>,
    /// The cursor of the next page: letters, digits and `-`. `None` after the last page.
    pub next: Option<String>,
}

/// A trajectory that meets the conditions of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Id of the trajectory.
    pub id: TrajectoryId,
    /// Number of plies.
    pub plies: usize,
    /// Outcome of the episode.
    pub outcome: Outcome,
    /// Weights version of the last step.
    pub weights_version: WeightsVersion,
    /// Surprise ([`Trajectory::surprise`]), rounded and at most 2.
    pub surprise: Option<f32>,
    /// True if excluded from sampling, by trajectory id or by actor.
    pub quarantined: bool,
    /// Time of the insert, in milliseconds since 1970 in UTC.
    pub inserted_unix_ms: u64,
    /// Revision of the searches: 0 for self-play, one more after each reanalysis.
    pub revision: u64,
}

/// The priority of one item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ItemPriority {
    /// Id of the item's trajectory.
    pub trajectory: TrajectoryId,
    /// Ply of the item within the trajectory.
    pub ply: usize,
    /// Priority of the item: finite, at least 0.
    pub priority: f64,
}

/// New priorities for items of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorityUpdate {
    /// The table of the items.
    pub table: String,
    /// At most [`PRIORITIES_MAX`](crate::limits::PRIORITIES_MAX); if an item occurs twice, the later priority applies.
    pub priorities: Vec<ItemPriority>,
}
