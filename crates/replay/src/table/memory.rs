use experience::TrajectoryId;

use super::entry::Entry;
use super::positions::PositionCounts;
use super::{Removed, Table};
use crate::tree::Tree;

/// The maximum load of a hash map before growth, in eighths of the buckets.
const INDEX_EIGHTHS: u64 = 7;

/// Bytes of one index bucket, including the control byte.
const BUCKET_BYTES: u64 = (size_of::<(TrajectoryId, u64)>() + 1) as u64;

/// Totals of the trajectories about to be inserted into a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expected {
    /// Number of trajectories.
    pub trajectories: u64,
    /// Total number of items in the trajectories.
    pub items: u64,
    /// Maximum number of items in one trajectory.
    pub items_each_max: u64,
}

impl Table {
    /// Returns the memory of the table in bytes: trajectories, entries, per-item state and indexes, without allocator
    /// overhead.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.trajectory_bytes + self.state_bytes()
    }

    /// Returns the total size of the held trajectories in bytes, including trajectories shared with other tables.
    #[must_use]
    pub fn trajectory_bytes(&self) -> u64 {
        self.trajectory_bytes
    }

    /// Returns an upper bound in bytes on the memory growth due to inserting and looking up the `expected`
    /// trajectories, without the trajectories themselves. Entries, tree and index grow by doubling. After many removals
    /// the index may double once more.
    #[must_use]
    pub fn growth(&self, expected: Expected) -> u64 {
        let Expected { trajectories, items, items_each_max } = expected;
        let capacity_items = self.settings.window.capacity_items;
        // Besides the oldest trajectory, a table holds up to the capacity, and briefly the latest trajectory too.
        let held = self.entries.len() as u64;
        let trajectories = (held + trajectories).min(held.max(capacity_items.saturating_add(1)).saturating_add(1));
        let held_most = self.held_items.max(capacity_items.saturating_add(items_each_max));
        let items = (self.held_items + items).min(held_most.saturating_add(items_each_max));
        let entries = doubled(self.entries.capacity() as u64, trajectories) * size_of::<Entry>() as u64;
        let index = grown_buckets(self.index_capacity(), trajectories) * BUCKET_BYTES;
        let positions = self.positions.as_ref().map_or(0, |positions| positions.bytes_of(items));
        let tree = self.tree.as_ref().map_or(0, |tree| tree.bytes_of(items));
        let marks = self.settings.selector.mark_bytes(trajectories, items).max(self.mark_bytes);
        (entries + index + positions + tree + marks).saturating_sub(self.state_bytes())
    }

    /// Removes the oldest trajectory. Returns `None` if the table has fewer than two trajectories.
    pub fn evict_oldest(&mut self) -> Option<Removed> {
        if self.entries.len() < 2 {
            return None;
        }
        let entry = self.entries.pop_front()?;
        Some(self.forget(&entry))
    }

    /// Returns the size of the table without the trajectories, in bytes.
    fn state_bytes(&self) -> u64 {
        let entries = self.entries.capacity() * size_of::<Entry>();
        let tree = self.tree.as_ref().map_or(0, Tree::bytes);
        let positions = self.positions.as_ref().map_or(0, PositionCounts::bytes);
        self.mark_bytes + (entries + tree) as u64 + buckets(self.index_capacity()) * BUCKET_BYTES + positions
    }

    fn index_capacity(&self) -> usize {
        self.index.as_ref().map_or(0, std::collections::HashMap::capacity)
    }
}

/// Returns the number of buckets of a hash map with the capacity `capacity`.
pub(super) fn buckets(capacity: usize) -> u64 {
    capacity as u64 * 8 / INDEX_EIGHTHS
}

/// Returns the number of buckets of a hash map with the current capacity `capacity` after growth to `keys` keys.
pub(super) fn grown_buckets(capacity: usize, keys: u64) -> u64 {
    doubled(buckets(capacity), keys.saturating_mul(8) / INDEX_EIGHTHS + 1)
}

/// Doubles the greater of `capacity` and 4 until the result is at least `least`.
fn doubled(capacity: u64, least: u64) -> u64 {
    let mut capacity = capacity.max(4);
    while capacity < least {
        capacity *= 2;
    }
    capacity
}
