use experience::TrajectoryId;

use super::Table;
use super::entry::PRIORITY_DEFAULT;

/// Unique key of an item. Keys are never reused, because trajectory ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey {
    /// Id of the trajectory that contains the item.
    pub trajectory: TrajectoryId,
    /// Ply of the item within the trajectory.
    pub ply: usize,
}

impl std::fmt::Display for ItemKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.trajectory, self.ply)
    }
}

/// Counts of the keys in a priority update, by effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PriorityUpdate {
    /// Number of keys for which the priority was set.
    pub updated: u64,
    /// Number of keys that match no item in the table.
    pub unknown: u64,
    /// Number of keys ignored because the selector uses no priorities.
    pub unused: u64,
}

/// The error for a priority that is negative, infinite or NaN.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the priority {priority} of item {key} is not a finite number of at least 0")]
pub struct InvalidPriority {
    /// Key of the item.
    pub key: ItemKey,
    /// The rejected priority: negative, infinite or NaN.
    pub priority: f64,
}

impl Table {
    /// Sets the priorities of items, including quarantined items. If a key occurs several times, the last priority
    /// takes effect. Does nothing if the selector uses no priorities.
    ///
    /// O(log items) for each key.
    ///
    /// # Errors
    /// [`InvalidPriority`] names the first invalid priority. No priority is then changed.
    pub fn update_priorities(&mut self, priorities: &[(ItemKey, f64)]) -> Result<PriorityUpdate, InvalidPriority> {
        priorities.iter().try_for_each(|&(key, priority)| check(key, priority))?;
        let mut update = PriorityUpdate::default();
        if !self.settings.selector.uses_priorities() {
            update.unused = priorities.len() as u64;
            return Ok(update);
        }
        for &(key, priority) in priorities {
            match self.set_priority(key, priority) {
                Some(()) => update.updated += 1,
                None => update.unknown += 1,
            }
        }
        Ok(update)
    }

    /// Returns true if the table holds the item. O(log items) if the table uses priorities.
    pub fn holds_item(&mut self, key: ItemKey) -> bool {
        let at = self.find(key.trajectory);
        at.is_some_and(|at| self.entries[at].item_at(key.ply).is_some())
    }

    fn set_priority(&mut self, key: ItemKey, priority: f64) -> Option<()> {
        let at = self.find(key.trajectory)?;
        let selector = self.settings.selector;
        let entry = &mut self.entries[at];
        let item = entry.item_at(key.ply)?;
        entry.set_priority(item, priority);
        self.priority_max = self.priority_max.max(priority);
        let tree = self.tree.as_mut().expect("a table with priorities keeps state for each item");
        tree.replace(entry.first + item as u64, std::iter::once(selector.leaf(entry, item)));
        Some(())
    }

    /// Returns the priority of a new item: the highest priority ever set, or the default priority if that is zero,
    /// because an item with priority zero might never be drawn.
    pub(super) fn initial_priority(&self) -> f64 {
        if self.priority_max > 0.0 { self.priority_max } else { PRIORITY_DEFAULT }
    }
}

fn check(key: ItemKey, priority: f64) -> Result<(), InvalidPriority> {
    if priority >= 0.0 && priority.is_finite() { Ok(()) } else { Err(InvalidPriority { key, priority }) }
}
