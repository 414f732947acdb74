use experience::{Mass, TrajectoryId};
use weights::WeightsVersion;

/// The size and counters of a table. Totals count since the run began, across restarts, unless noted otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableStats {
    /// Trajectories held.
    pub trajectories: u64,
    /// Items held: positions that may be drawn.
    pub items: u64,
    /// The number of items, the newest, that the window allows to be drawn.
    pub window_items: u64,
    /// Trajectories stored.
    pub trajectories_inserted_total: u64,
    /// Items stored: the limiter counts these.
    pub items_inserted_total: u64,
    /// Samples drawn.
    pub samples_total: u64,
    /// Inserts that had been stored before, since the server started.
    pub duplicates_total: u64,
    /// Trajectories refused as invalid, since the server started.
    pub refused_total: u64,
    /// Trajectories held that a report took out of sampling.
    pub quarantined_total: u64,
    /// The target number of samples per inserted item.
    pub samples_per_insert_target: f64,
    /// The actual number so far; 0 before the first insert.
    pub samples_per_insert: f64,
    /// The reason for which the table blocks, for people.
    pub waiting_reason: Option<String>,
    /// Bytes held.
    pub bytes: u64,
    /// The oldest trajectory held.
    pub oldest: Option<TableEdge>,
    /// The newest trajectory held.
    pub newest: Option<TableEdge>,
    /// The name that samplers use; empty from servers that keep only one table.
    pub name: String,
    /// The total weight of the items that may be drawn now; `None` from servers that do not report it.
    pub mass: Option<Mass>,
}

impl TableStats {
    /// Returns the total weight of the items that may be drawn now; each weighs one where the server does not report
    /// it.
    #[must_use]
    pub fn mass(&self) -> Mass {
        self.mass.unwrap_or_else(|| Mass::of_items(self.window_items))
    }
}

/// The oldest or newest trajectory of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableEdge {
    /// The table.
    pub id: TrajectoryId,
    /// The weights version of its last step.
    pub weights_version: WeightsVersion,
}
