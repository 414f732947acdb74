use experience::{Mass, TrajectoryId};
use weights::WeightsVersion;

/// What a table holds and has done. Totals count since the run began, over restarts, unless they say otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableStats {
    /// Trajectories held.
    pub trajectories: u64,
    /// Items held: positions that may be drawn.
    pub items: u64,
    /// How many of them, the newest, the window lets be drawn.
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
    /// How many samples an inserted item shall give.
    pub samples_per_insert_target: f64,
    /// How many it has given so far; 0 before the first insert.
    pub samples_per_insert: f64,
    /// Why the table holds something up, for people.
    pub waiting_reason: Option<String>,
    /// Bytes held.
    pub bytes: u64,
    /// The oldest trajectory held.
    pub oldest: Option<TableEdge>,
    /// The newest trajectory held.
    pub newest: Option<TableEdge>,
    /// What samplers call it; empty from servers that keep only one.
    pub name: String,
    /// What the items that may be drawn now weigh together; `None` from servers that do not say.
    pub mass: Option<Mass>,
}

impl TableStats {
    /// What the items that may be drawn now weigh together; each weighs one where the server does not say.
    #[must_use]
    pub fn mass(&self) -> Mass {
        self.mass.unwrap_or_else(|| Mass::of_items(self.window_items))
    }
}

/// The oldest or newest trajectory of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableEdge {
    /// Which one.
    pub id: TrajectoryId,
    /// The weights version of its last step.
    pub weights_version: WeightsVersion,
}
