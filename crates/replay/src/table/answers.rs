use std::time::Duration;

use experience::{Sample, Trajectory, TrajectoryId, WeightsVersion};

/// Totals of all inserts, including removed trajectories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableTotals {
    /// Trajectories ever inserted.
    pub trajectories: u64,
    /// Items in all trajectories ever inserted.
    pub items: u64,
}

/// The result of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the rate limiter must count inserted and removed items"]
pub struct Insertion {
    /// Number of items in the inserted trajectory.
    pub items: u64,
    /// Number of inserted items that cannot be drawn because the actor is in quarantine: 0 or `items`. The limiter
    /// counts such items as inserted and deleted.
    pub quarantined_items: u64,
    /// Trajectories removed by this insert, because they exceeded a bound.
    pub removed: Vec<Removed>,
}

/// A trajectory removed from the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Id of the removed trajectory.
    pub id: TrajectoryId,
    /// Number of drawable items before the removal: 0 for a quarantined trajectory.
    pub items: u64,
}

/// The result of quarantining or releasing a trajectory or an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the rate limiter must count deleted and restored items"]
pub enum QuarantineChange {
    /// The trajectory or actor was put into quarantine or released.
    Changed {
        /// Number of items that can no longer be drawn after a quarantine, or can be drawn again after a release. Items
        /// also quarantined for another reason (trajectory id or actor) do not count.
        items: u64,
    },
    /// Nothing changed: the trajectory or actor was already in quarantine, or already released.
    Unchanged,
    /// The table does not hold the trajectory.
    Unknown,
}

/// A drawn item.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// Trajectory that contains the item, shared with the table.
    pub trajectory: Trajectory,
    /// Index of the item among the items of the trajectory.
    pub item: usize,
    /// Weights version in the last step of the trajectory.
    pub weights_version: WeightsVersion,
    /// Probability with which the table drew this item at that moment; 1 if the selector is deterministic. Position and
    /// surprise weights are not included, because importance sampling must not cancel these intended weights.
    pub probability: f64,
    /// Number of items in the window at the time of the draw, including this item.
    pub table_items: u64,
    /// Time of the insert of the trajectory, as passed to [`Table::insert`](crate::Table::insert).
    pub inserted: Duration,
}

impl Drawn {
    /// Returns the item as a sample of `1 + unroll_steps` steps. O(plies), like [`ply`](Self::ply).
    #[must_use]
    pub fn sample(&self, unroll_steps: usize) -> Sample {
        Sample {
            segment: self.trajectory.segment(self.ply(), unroll_steps).expect("the trajectory contains the drawn ply"),
            probability: self.probability,
            table_items: self.table_items,
        }
    }

    /// Returns the ply of the item. O(plies), because this reads the content of the trajectory.
    #[must_use]
    pub fn ply(&self) -> usize {
        self.trajectory.full_plies().nth(self.item).expect("the trajectory contains the drawn item")
    }
}

/// A trajectory held by the table.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// The trajectory, with the searches of the latest revision.
    pub trajectory: &'a Trajectory,
    /// Number of drawable items, inside or outside the window.
    pub items: u64,
    /// True if the trajectory or the actor that played it is in quarantine.
    pub quarantined: bool,
    /// Surprise of the trajectory ([`Trajectory::surprise`]), rounded to 1/32767 and at most 2. Computed once, by the
    /// insert or the latest revision.
    pub surprise: Option<f32>,
    /// Time of the insert, as passed to [`Table::insert`](crate::Table::insert).
    pub inserted: Duration,
    /// Revision of the searches: 0 for self-play, incremented by each reanalysis.
    pub revision: u64,
    /// Time of the latest revision, as passed to [`Table::revise`](crate::Table::revise); `None` without a revision.
    pub revised: Option<Duration>,
}
