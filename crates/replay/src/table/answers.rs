use std::time::Duration;

use experience::{Trajectory, TrajectoryId, WeightsVersion};

/// The totals of all inserts, removed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableTotals {
    /// Trajectories ever inserted.
    pub trajectories: u64,
    /// Their items.
    pub items: u64,
}

/// The outcome of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the limiter counts what came in and what left"]
pub struct Insertion {
    /// Its items.
    pub items: u64,
    /// Those of its items that may not be drawn, because its actor is in quarantine: all or none. They count as
    /// inserted and deleted.
    pub quarantined_items: u64,
    /// The trajectories that the capacity removed.
    pub removed: Vec<Removed>,
}

/// A trajectory that left the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// The trajectory.
    pub id: TrajectoryId,
    /// Items that could be drawn until now: none if it was in quarantine, and without those that had their last draw.
    pub items: u64,
}

/// The outcome of a quarantine, or of a release from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the limiter counts what can no longer, or again, be drawn"]
pub enum QuarantineChange {
    /// It is in quarantine now, or out of it; so many items went with it.
    Changed {
        /// Items that can no longer be drawn, or can again, with the priorities they have: none of what is in
        /// quarantine for another reason, by its id or by its actor.
        items: u64,
    },
    /// It was in quarantine already, or was not.
    Unchanged,
    /// The table does not hold it.
    Unknown,
}

/// The outcome of a change of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "the limiter counts what can no longer, or again, be drawn"]
pub struct Changed {
    /// Items that had more draws than they may have now.
    pub deleted_items: u64,
    /// Items that had their last draw, and may have more now.
    pub restored_items: u64,
}

/// One draw.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// From which trajectory.
    pub trajectory: Trajectory,
    /// The index of the item among the trajectory's plies that have one.
    pub item: usize,
    /// The weights version that searched its trajectory's last step.
    pub weights_version: WeightsVersion,
    /// With which probability, given the table at that moment; one where the selector leaves no choice.
    pub probability: f64,
    /// The number of items in the window, this one included.
    pub table_items: u64,
    /// True if this was its last draw: it is deleted from sampling.
    pub exhausted: bool,
    /// The time at which its trajectory was inserted, since the epoch of the caller's clock.
    pub inserted: Duration,
}

impl Drawn {
    /// Returns the ply of the trajectory. O(plies), and reads the trajectory, which drawing does not.
    #[must_use]
    pub fn ply(&self) -> usize {
        self.trajectory.full_plies().nth(self.item).expect("the next entry begins after as many items")
    }
}

/// One trajectory as a list of the table shows it.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// The trajectory itself.
    pub trajectory: &'a Trajectory,
    /// The number of its items that may be drawn if the window reaches them.
    pub items: u64,
    /// True if it is excluded from sampling, by its id or with its actor.
    pub quarantined: bool,
    /// The time of its insert, since the epoch of the caller's clock.
    pub inserted: Duration,
}
