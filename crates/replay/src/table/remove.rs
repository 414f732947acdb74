use std::time::Duration;

use super::{Entry, Removed, Table};
use crate::Retention;

impl Table {
    /// Lets go of what is beyond a bound at `now`, from the old end on: trajectories of which no item is among the
    /// newest `capacity_items`, those beyond [`Retention`], and those whose items all had their last draw. Every insert
    /// does it too.
    ///
    /// Items that may not be drawn count for the capacity: it bounds memory and log, also while an actor in quarantine
    /// goes on sending.
    pub fn expire(&mut self, now: Duration) -> Vec<Removed> {
        self.remove_beyond_bounds(now)
    }

    pub(super) fn remove_beyond_bounds(&mut self, now: Duration) -> Vec<Removed> {
        let mut removed = Vec::new();
        // The newest trajectory stays whatever its size: it has items among the newest.
        while self.entries.len() > 1 && self.is_beyond_bounds(&self.entries[0], now) {
            let Some(entry) = self.entries.pop_front() else { break };
            removed.push(self.forget(&entry));
        }
        removed
    }

    fn is_beyond_bounds(&self, front: &Entry, now: Duration) -> bool {
        let Retention { age_max, trajectory_bytes_max, .. } = self.settings.retention;
        self.held_items - front.items() as u64 >= self.settings.window.capacity_items
            || trajectory_bytes_max.is_some_and(|bytes| self.trajectory_bytes > bytes)
            || age_max.is_some_and(|age| now.saturating_sub(front.inserted()) > age)
            || self.is_stale(front.last_weights_version)
            || (front.drawable == 0 && front.is_exhausted(self.weigh()))
    }

    /// Brings everything else up to date with an entry that has left the front.
    fn forget(&mut self, entry: &Entry) -> Removed {
        let id = entry.trajectory.id();
        self.entries_removed += 1;
        self.count_out(entry);
        if let Some(tree) = &mut self.tree {
            tree.pop_front(entry.items() as u64);
        }
        if let Some(index) = &mut self.index {
            index.remove(id);
        }
        Removed { id, items: u64::from(entry.drawable) }
    }
}
