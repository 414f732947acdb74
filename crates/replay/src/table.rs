mod answers;
mod draw;
mod entry;
mod memory;
mod positions;
mod priorities;
mod quarantine;
mod revise;
mod weighted;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use experience::{Trajectory, TrajectoryId, WeightsVersion};

use crate::tree::Tree;
use crate::{Retention, TableSettings};
pub use answers::{Drawn, Held, Insertion, QuarantineChange, Removed, TableTotals};
use entry::Entry;
pub use memory::Expected;
use positions::PositionCounts;
pub use priorities::{InvalidPriority, ItemKey, PriorityUpdate};

/// A map from the trajectory id to the permanent number of the entry. The map is never iterated, so the unseeded hashes
/// cannot affect any order.
type Index = HashMap<TrajectoryId, u64, BuildHasherDefault<DefaultHasher>>;

/// A replay table: holds trajectories, oldest first, and samples items from the window.
///
/// Each entry stores the number of the first item in the trajectory. The items form one numbered sequence with the
/// window as a suffix. Removal at the front and insertion at the back do not change the numbers. Quarantined
/// items are not part of the window, which extends to older items in place of them.
///
/// Uniform draws need no other state. Only drawable items have numbers, and a draw is a random number and
/// a binary search. Quarantines are rare, so each quarantine renumbers all items. All other settings need a tree with a
/// place for each item, drawable or not, and draw in O(log items). In a large table, draws spend most of the time
/// waiting for memory. Draws therefore do not read the content of trajectories, and lookups run in groups.
///
/// The caller must insert each trajectory only once; [`SeenIds`](crate::SeenIds) can detect duplicates. If several
/// tables share a trajectory, each table counts the bytes.
///
/// After a restart, the caller repeats all earlier inserts, quarantines and priority updates in order, and then calls
/// [`Table::remember`].
#[derive(Debug)]
pub struct Table {
    settings: TableSettings,
    entries: VecDeque<Entry>,
    /// The number of the next item to insert.
    end: u64,
    /// The number of drawable items, inside or outside the window.
    items: u64,
    /// The total number of items in all trajectories, drawable or not.
    held_items: u64,
    /// The item weights; `None` if draws are uniform.
    tree: Option<Tree>,
    /// The index from ids to trajectories, built for selectors with priorities and by the first [`Table::lookup`] or
    /// [`Table::revise`]. Without an index, each access by id would search all trajectories.
    index: Option<Index>,
    /// The number of items at each position; `None` unless equal positions are merged.
    positions: Option<PositionCounts>,
    /// The number of entries ever removed: the permanent number of an entry minus the index in `entries`.
    entries_removed: u64,
    quarantined_actors: BTreeSet<u64>,
    /// The weights versions of all trajectories outside quarantine.
    versions: Versions,
    /// The latest version announced by the learner; zero before the first announcement. Versions of trajectories are
    /// not used, because one faulty actor could then make the trajectories of all other actors stale.
    newest_published: WeightsVersion,
    /// The highest priority ever set; zero if no priority was set.
    priority_max: f64,
    totals: TableTotals,
    quarantined: usize,
    /// The total size of all trajectories, in bytes.
    trajectory_bytes: u64,
    /// The total size of per-item state, in bytes.
    mark_bytes: u64,
}

impl Table {
    /// Creates an empty table. The settings must have passed [`TableSettings::check`].
    #[must_use]
    pub fn new(settings: TableSettings) -> Self {
        let mut table = Self {
            settings,
            entries: VecDeque::new(),
            end: 0,
            items: 0,
            held_items: 0,
            tree: None,
            index: None,
            positions: settings.merge_positions.then(PositionCounts::default),
            entries_removed: 0,
            quarantined_actors: BTreeSet::new(),
            versions: Versions::default(),
            newest_published: WeightsVersion::default(),
            priority_max: 0.0,
            totals: TableTotals::default(),
            quarantined: 0,
            trajectory_bytes: 0,
            mark_bytes: 0,
        };
        table.rebuild();
        table
    }

    /// Sets the latest weights version, from which inserts and [`Table::expire`] measure the lag of trajectories. The
    /// version may decrease if a learner resumes from an earlier checkpoint.
    pub fn hold_to_newest(&mut self, version: WeightsVersion) {
        self.newest_published = version;
    }

    /// Returns true if a trajectory with weights version `version` in the last step exceeds the maximum lag
    /// ([`Retention::lag_versions_max`]).
    #[must_use]
    pub fn is_stale(&self, version: WeightsVersion) -> bool {
        let lag = self.newest_published.0.saturating_sub(version.0);
        self.settings.retention.lag_versions_max.is_some_and(|lag_max| lag > lag_max)
    }

    /// Restores the totals from before a restart, including trajectories that were not reinserted.
    pub fn remember(&mut self, totals: TableTotals) {
        self.totals.trajectories = self.totals.trajectories.max(totals.trajectories);
        self.totals.items = self.totals.items.max(totals.items);
    }

    /// Inserts a new trajectory, and removes the trajectories beyond a bound. The new items get the highest priority
    /// ever set, so that each item is drawn soon (Schaul et al. 2016, algorithm 1), or 1 if no priority above 0 was
    /// set. The trajectory must never have been inserted before.
    ///
    /// `now` is the time since a fixed moment chosen by the caller. A trajectory without items is also held.
    pub fn insert(&mut self, trajectory: Trajectory, now: Duration) -> Insertion {
        let mut entry = Entry::new(trajectory, self.end, now);
        let id = entry.trajectory.id();
        entry.actor_quarantined = self.quarantined_actors.contains(&id.actor);
        self.equip(&mut entry);
        let (selector, items) = (self.settings.selector, entry.items());
        if let Some(tree) = &mut self.tree {
            tree.push_back(selector.leaves(&entry, items));
        }
        if let Some(index) = &mut self.index {
            index.insert(id, self.entries_removed + self.entries.len() as u64);
        }
        self.count_in(&entry);
        let items = items as u64;
        let quarantined_items = if entry.is_quarantined() { items } else { 0 };
        self.end += if self.tree.is_some() { items } else { entry.drawable() };
        self.totals.trajectories += 1;
        self.totals.items += items;
        self.entries.push_back(entry);
        Insertion { items, quarantined_items, removed: self.expire(now) }
    }

    /// Adds the per-item state required by the settings to an entry.
    fn equip(&self, entry: &mut Entry) {
        if self.settings.selector.uses_priorities() {
            entry.assume_priority(self.initial_priority());
        }
    }

    fn count_in(&mut self, entry: &Entry) {
        self.items += entry.drawable();
        self.held_items += entry.items() as u64;
        self.quarantined += usize::from(entry.is_quarantined());
        self.trajectory_bytes += entry.trajectory_bytes();
        self.mark_bytes += entry.mark_bytes();
        if let Some(positions) = &mut self.positions {
            positions.insert(&entry.trajectory);
        }
        if !entry.is_quarantined() {
            self.versions.insert(entry.last_weights_version);
        }
    }

    fn count_out(&mut self, entry: &Entry) {
        self.items -= entry.drawable();
        self.held_items -= entry.items() as u64;
        self.quarantined -= usize::from(entry.is_quarantined());
        self.trajectory_bytes -= entry.trajectory_bytes();
        self.mark_bytes -= entry.mark_bytes();
        if let Some(positions) = &mut self.positions {
            positions.remove(&entry.trajectory);
        }
        if !entry.is_quarantined() {
            self.versions.remove(entry.last_weights_version);
        }
    }

    /// Changes the settings, which must have passed [`TableSettings::check`]. Priorities and quarantines are kept,
    /// even if unused under the new settings. Items beyond a new bound are removed at the next insert or
    /// [`Table::expire`]. O(items) if the selector or the merging of positions changes, otherwise O(1).
    pub fn change(&mut self, settings: TableSettings) {
        let selector = std::mem::replace(&mut self.settings, settings).selector;
        if settings.selector != selector {
            self.rebuild();
        }
        if settings.merge_positions != self.positions.is_some() {
            let trajectories = self.entries.iter().map(|entry| &entry.trajectory);
            self.positions = settings.merge_positions.then(|| PositionCounts::of(trajectories));
        }
    }

    /// Recomputes all settings-dependent state from the entries. O(items).
    fn rebuild(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        (self.items, self.mark_bytes) = (0, 0);
        for entry in &mut entries {
            self.equip(entry);
            self.items += entry.drawable();
            self.mark_bytes += entry.mark_bytes();
        }
        self.entries = entries;
        if self.settings.selector.uses_priorities() {
            self.keep_index();
        }
        self.plant();
    }

    /// Builds the index of trajectories, unless already built. O(trajectories).
    fn keep_index(&mut self) {
        if self.index.is_none() {
            let numbered = (self.entries_removed..).zip(&self.entries);
            self.index = Some(numbered.map(|(number, entry)| (entry.trajectory.id(), number)).collect());
        }
    }

    /// Numbers the items, and builds the tree if the settings need per-item state. O(items).
    fn plant(&mut self) {
        let selector = self.settings.selector;
        self.tree = None;
        let Some(front) = self.entries.front().map(|front| front.first) else {
            self.tree = selector.uses_priorities().then(|| Tree::new(self.end));
            return;
        };
        if !selector.uses_priorities() {
            return self.renumber();
        }
        let mut tree = Tree::new(front);
        let mut number = front;
        for entry in &mut self.entries {
            let items = entry.items();
            entry.first = number;
            number += items as u64;
            tree.push_back(selector.leaves(entry, items));
        }
        self.end = number;
        self.tree = Some(tree);
    }

    /// Numbers the drawable items of a table without a tree. O(trajectories).
    fn renumber(&mut self) {
        let Some(front) = self.entries.front() else { return };
        let mut number = front.first;
        for entry in &mut self.entries {
            entry.first = number;
            number += entry.drawable();
        }
        self.end = number;
    }

    /// Removes the trajectories beyond a bound at `now`, oldest first: trajectories beyond the latest `capacity_items`
    /// items or beyond [`Retention`]. Every insert does this too.
    ///
    /// Items that cannot be drawn count towards the capacity. The capacity thus bounds memory and log size even while a
    /// quarantined actor continues to send.
    pub fn expire(&mut self, now: Duration) -> Vec<Removed> {
        let mut removed = Vec::new();
        // The latest trajectory always stays, even if it alone exceeds a bound.
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
    }

    /// Updates all other state after `entry` has been removed from the front.
    fn forget(&mut self, entry: &Entry) -> Removed {
        let id = entry.trajectory.id();
        self.entries_removed += 1;
        self.count_out(entry);
        if let Some(tree) = &mut self.tree {
            tree.pop_front(entry.items() as u64);
        }
        if let Some(index) = &mut self.index {
            index.remove(&id);
        }
        Removed { id, items: entry.drawable() }
    }

    /// Returns the total numbers of trajectories and items ever inserted, including removed trajectories.
    #[must_use]
    pub fn totals(&self) -> TableTotals {
        self.totals
    }

    /// Returns the number of held trajectories, including quarantined trajectories.
    #[must_use]
    pub fn trajectories(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of held trajectories in quarantine, by id or by actor.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// Returns the number of drawable items, inside or outside the window.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the total number of items in held trajectories, drawable or not. The capacity bounds this number.
    #[must_use]
    pub fn held_items(&self) -> u64 {
        self.held_items
    }

    /// Returns the number of items in the window, including items with a weight of zero.
    #[must_use]
    pub fn window_items(&self) -> u64 {
        self.settings.window.items(self.totals.items).min(self.items)
    }

    /// Returns the latest weights version in the last step of any held trajectory outside quarantine.
    #[must_use]
    pub fn newest_weights_version(&self) -> Option<WeightsVersion> {
        self.versions.newest()
    }

    /// Returns the held trajectories, latest first.
    pub fn held(&self) -> impl Iterator<Item = Held<'_>> + '_ {
        self.entries.iter().rev().map(Entry::held)
    }

    /// Returns the held trajectories with numbers below `below`, latest first, each with the number: how many inserts
    /// came before, which never changes after [`Table::remember`]. The first trajectory is found in O(1).
    pub fn held_below(&self, below: u64) -> impl Iterator<Item = (u64, Held<'_>)> + '_ {
        let first = self.totals.trajectories - self.entries.len() as u64;
        let held = usize::try_from(below.saturating_sub(first)).unwrap_or(usize::MAX).min(self.entries.len());
        let numbered = self.entries.range(..held).enumerate().rev();
        numbered.map(move |(at, entry)| (first + at as u64, entry.held()))
    }

    /// Returns the oldest trajectory, the next to be removed.
    #[must_use]
    pub fn oldest(&self) -> Option<&Trajectory> {
        self.entries.front().map(|entry| &entry.trajectory)
    }

    /// Returns the latest inserted trajectory.
    #[must_use]
    pub fn newest(&self) -> Option<&Trajectory> {
        self.entries.back().map(|entry| &entry.trajectory)
    }
}

/// Number of trajectories for each weights version. A table holds a few hundred versions.
#[derive(Debug, Default)]
struct Versions {
    trajectories: BTreeMap<WeightsVersion, u64>,
}

impl Versions {
    /// Increments the number of trajectories of a version.
    fn insert(&mut self, version: WeightsVersion) {
        *self.trajectories.entry(version).or_default() += 1;
    }

    /// Decrements the number of trajectories of a version.
    fn remove(&mut self, version: WeightsVersion) {
        let trajectories = self.trajectories.get_mut(&version).expect("a removed version was counted");
        *trajectories -= 1;
        if *trajectories == 0 {
            self.trajectories.remove(&version);
        }
    }

    fn newest(&self) -> Option<WeightsVersion> {
        self.trajectories.last_key_value().map(|(&version, _)| version)
    }
}

#[cfg(test)]
mod tests;
