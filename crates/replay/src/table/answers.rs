use std::time::Duration;

use experience::{Sample, Trajectory, TrajectoryId, WeightsVersion};

/// Totals of all inserts, including removed trajectories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableTotals {
    /// Trajectories ever inserted.
    pub trajectories: u64,
    /// Items of these trajectories.
    pub items: u64,
}

/// The outcome of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the limiter counts what came in and what left"]
pub struct Insertion {
    /// Number of items of the trajectory.
    pub items: u64,
    /// Number of these items that may not be drawn because the actor is in quarantine: all or none. They count as
    /// inserted and deleted.
    pub quarantined_items: u64,
    /// Trajectories that were removed because they exceeded a bound.
    pub removed: Vec<Removed>,
}

/// A trajectory that was removed from the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Id of the removed trajectory.
    pub id: TrajectoryId,
    /// Number of items that could be drawn until now: exhausted items do not count, nor does any item of a quarantined
    /// trajectory.
    pub items: u64,
}

/// The outcome of a quarantine, or of a release from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the limiter counts what can no longer, or again, be drawn"]
pub enum QuarantineChange {
    /// The trajectory or actor was put into quarantine, or released from it.
    Changed {
        /// Number of items that can no longer be drawn, or can be drawn again with the priorities they have. Items that
        /// are also in quarantine for another reason, by id or by actor, do not count.
        items: u64,
    },
    /// The trajectory or actor was already in quarantine, or already released.
    Unchanged,
    /// The table does not hold the trajectory.
    Unknown,
}

/// The outcome of a change of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "the limiter counts what can no longer, or again, be drawn"]
pub struct Changed {
    /// Number of items that the new settings make exhausted.
    pub deleted_items: u64,
    /// Number of exhausted items that the new settings allow to be drawn again.
    pub restored_items: u64,
}

/// A drawn item.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// Trajectory of the item, shared with the table.
    pub trajectory: Trajectory,
    /// Index of the item among the items of the trajectory.
    pub item: usize,
    /// Weights version that searched the last step of the trajectory.
    pub weights_version: WeightsVersion,
    /// Probability of the draw, given the table at that moment; 1 if the selector is deterministic. The weights of
    /// positions and surprises are left out, because they are part of what is learned: an importance weight must not
    /// undo them.
    pub probability: f64,
    /// Number of items in the window, including this one.
    pub table_items: u64,
    /// True if this was the item's last draw, after which it is deleted from sampling.
    pub exhausted: bool,
    /// Time of the trajectory's insert, since the epoch of the caller's clock.
    pub inserted: Duration,
}

impl Drawn {
    /// Returns the item as a sample of `1 + unroll_steps` steps. O(plies), as [`ply`](Self::ply).
    #[must_use]
    pub fn sample(&self, unroll_steps: usize) -> Sample {
        Sample {
            segment: self.trajectory.segment(self.ply(), unroll_steps).expect("a drawn ply is one of the trajectory"),
            probability: self.probability,
            table_items: self.table_items,
        }
    }

    /// Returns the ply of the item. O(plies); reads the content of the trajectory, which drawing does not.
    #[must_use]
    pub fn ply(&self) -> usize {
        self.trajectory.full_plies().nth(self.item).expect("the next entry begins after as many items")
    }
}

/// A trajectory held by the table.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// The trajectory as stored: after a revision, with the new searches.
    pub trajectory: &'a Trajectory,
    /// Number of items that may be drawn if the window reaches them.
    pub items: u64,
    /// True if the trajectory or the actor is in quarantine.
    pub quarantined: bool,
    /// Time of the insert, since the epoch of the caller's clock.
    pub inserted: Duration,
    /// Revision of the searches: 0 for self-play, one more after each reanalysis.
    pub revision: u64,
    /// Time of the last revision, since the epoch of the caller's clock; `None` if there was none.
    pub revised: Option<Duration>,
}
