mod answers;
mod draw;
mod entry;
mod priorities;
mod quarantine;
mod total_weight;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use experience::{Trajectory, TrajectoryId, WeightsVersion};

use crate::tree::Tree;
use crate::{Retention, TableSettings};
pub use answers::{Changed, Drawn, Held, Insertion, QuarantineChange, Removed, TableTotals};
use entry::{Entry, ItemWeights};
pub use priorities::{InvalidPriority, ItemKey, PriorityUpdate};

/// The position of each trajectory, by the number of its entry. Never iterated, so that no order can come from its
/// hashes, which have no seed.
type Index = HashMap<TrajectoryId, u64, BuildHasherDefault<DefaultHasher>>;

/// The trajectories held, oldest first, and sampling over the items in the window.
///
/// Each trajectory stores the number of its first item, so the items are one long line, of which the window is the
/// newest stretch. Removal from the front and insertion at the back leave the numbers alone. Items in quarantine, and
/// items that had their last draw, are no part of the window, which reaches further back instead.
///
/// Plain uniform draws need nothing beside that: only items that may be drawn have numbers, a draw is a number in the
/// window's stretch and a binary search, and a quarantine, an operator's act, renumbers. All other settings keep a tree
/// with a place for each item, quarantined or not, and draw in O(log items). Draws read nothing of a trajectory, and
/// are looked up in groups, since what they cost in a large table is waiting for memory.
///
/// The caller inserts each trajectory once, which [`SeenIds`](crate::SeenIds) checks. Several tables may share
/// trajectories: each counts their bytes.
///
/// A restart continues with the inserts, quarantines and priorities of the earlier one in their order, and ends with
/// [`Table::remember`]. How often items were drawn is not saved: what has not left by then may be drawn as often again.
#[derive(Debug)]
pub struct Table {
    settings: TableSettings,
    entries: VecDeque<Entry>,
    /// The number that the next item gets.
    end: u64,
    /// Items that may be drawn, in the window or not.
    items: u64,
    /// Items of all trajectories held, whether they may be drawn or not.
    held_items: u64,
    /// Unless draws are uniform and not counted.
    tree: Option<Tree>,
    /// The index of trajectories, kept where priorities are used: without it, each of them would look through all
    /// trajectories.
    index: Option<Index>,
    /// Entries that ever left, which makes a position in the deque a permanent number.
    entries_removed: u64,
    quarantined_actors: BTreeSet<u64>,
    /// Of trajectories that are not in quarantine.
    versions: Versions,
    /// The newest version that the learner announced; zero before, when nothing is behind it. The versions of
    /// trajectories do not count: one broken actor would make all others stale.
    newest_published: WeightsVersion,
    /// The weights version that weighs one in the tree.
    base: WeightsVersion,
    /// The greatest priority ever set; zero if none was.
    priority_max: f64,
    totals: TableTotals,
    quarantined: usize,
    /// Bytes of the trajectories held.
    trajectory_bytes: u64,
    /// Bytes of what is known of each of their items.
    mark_bytes: u64,
}

impl Table {
    /// An empty table. The settings must have passed [`TableSettings::check`].
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
            entries_removed: 0,
            quarantined_actors: BTreeSet::new(),
            versions: Versions::default(),
            newest_published: WeightsVersion::default(),
            base: WeightsVersion::default(),
            priority_max: 0.0,
            totals: TableTotals::default(),
            quarantined: 0,
            trajectory_bytes: 0,
            mark_bytes: 0,
        };
        table.rebuild();
        table
    }

    /// Judges by this weights version, from the next insert or [`Table::expire`] on, what is too far behind. It may be
    /// an older one than before: a learner that went on from an older checkpoint.
    pub fn hold_to_newest(&mut self, version: WeightsVersion) {
        self.newest_published = version;
    }

    /// Returns true if the bound on lag rejects a trajectory that these weights searched last.
    #[must_use]
    pub fn is_stale(&self, version: WeightsVersion) -> bool {
        let lag = self.newest_published.0.saturating_sub(version.0);
        self.settings.retention.lag_versions_max.is_some_and(|lag_max| lag > lag_max)
    }

    /// Counts what came in before a restart, beyond the trajectories that could be read back.
    pub fn remember(&mut self, totals: TableTotals) {
        self.totals.trajectories = self.totals.trajectories.max(totals.trajectories);
        self.totals.items = self.totals.items.max(totals.items);
    }

    /// Puts a trajectory in that was never inserted before, and removes what is beyond a bound. Its items get the
    /// greatest priority ever set, so that each is drawn soon (Schaul et al. 2016, algorithm 1); 1 if there is none
    /// above 0.
    ///
    /// `now` is the time since any fixed moment. A trajectory without items is held until it reaches the front.
    pub fn insert(&mut self, trajectory: Trajectory, now: Duration) -> Insertion {
        let mut entry = Entry::new(trajectory, self.end, now);
        let id = entry.trajectory.id();
        entry.actor_quarantined = self.quarantined_actors.contains(&id.actor);
        self.equip(&mut entry);
        let weigh = self.weigh();
        entry.count_drawable(weigh);
        let items = entry.items();
        if let Some(tree) = &mut self.tree {
            tree.push_back(weigh.leaves(&entry, items));
        }
        if let Some(index) = &mut self.index {
            index.insert(id, self.entries_removed + self.entries.len() as u64);
        }
        self.count_in(&entry);
        let items = items as u64;
        let quarantined_items = if entry.is_quarantined() { items } else { 0 };
        self.end += if self.tree.is_some() { items } else { u64::from(entry.drawable) };
        self.totals.trajectories += 1;
        self.totals.items += items;
        self.entries.push_back(entry);
        Insertion { items, quarantined_items, removed: self.expire(now) }
    }

    /// Gives an entry what the settings need to know of each item.
    fn equip(&self, entry: &mut Entry) {
        if self.settings.selector.uses_priorities() {
            entry.assume_priority(self.initial_priority());
        }
        if self.settings.max_times_sampled.is_some() {
            entry.count_draws();
        }
    }

    fn count_in(&mut self, entry: &Entry) {
        self.items += u64::from(entry.drawable);
        self.held_items += entry.items() as u64;
        self.quarantined += usize::from(entry.is_quarantined());
        self.trajectory_bytes += entry.trajectory_bytes();
        self.mark_bytes += entry.mark_bytes();
        if !entry.is_quarantined() {
            self.versions.insert(entry.last_weights_version);
        }
    }

    fn count_out(&mut self, entry: &Entry) {
        self.items -= u64::from(entry.drawable);
        self.held_items -= entry.items() as u64;
        self.quarantined -= usize::from(entry.is_quarantined());
        self.trajectory_bytes -= entry.trajectory_bytes();
        self.mark_bytes -= entry.mark_bytes();
        if !entry.is_quarantined() {
            self.versions.remove(entry.last_weights_version);
        }
    }

    /// Changes the settings, which must have passed [`TableSettings::check`]. Loses nothing: priorities, quarantines
    /// and counted draws outlast settings that do not use them. Items beyond a new bound leave with the next insert or
    /// [`Table::expire`].
    ///
    /// While draws may be repeated without end they are not counted, and so far counted ones are no obstacle. O(items)
    /// if the selector or the number of draws changes, otherwise O(1).
    pub fn change(&mut self, settings: TableSettings) -> Changed {
        let TableSettings { selector, max_times_sampled, .. } = self.settings;
        let same = (selector, max_times_sampled) == (settings.selector, settings.max_times_sampled);
        self.settings = settings;
        let before = self.items;
        if !same {
            self.rebuild();
        }
        Changed { deleted_items: before.saturating_sub(self.items), restored_items: self.items.saturating_sub(before) }
    }

    /// Brings everything that depends on the settings up to date with the entries. O(items).
    fn rebuild(&mut self) {
        let (weigh, mut entries) = (self.weigh(), std::mem::take(&mut self.entries));
        (self.items, self.mark_bytes) = (0, 0);
        for entry in &mut entries {
            self.equip(entry);
            entry.count_drawable(weigh);
            self.items += u64::from(entry.drawable);
            self.mark_bytes += entry.mark_bytes();
        }
        self.entries = entries;
        self.index = self.settings.selector.uses_priorities().then(Index::default);
        if let Some(index) = &mut self.index {
            for (number, entry) in (self.entries_removed..).zip(&self.entries) {
                index.insert(entry.trajectory.id(), number);
            }
        }
        self.plant();
    }

    /// Numbers all items, and makes the tree that the settings need. O(items).
    fn plant(&mut self) {
        let weigh = self.weigh();
        self.tree = None;
        let Some(front) = self.entries.front().map(|front| front.first) else {
            self.tree = self.settings.has_item_state().then(|| Tree::new(self.end));
            return;
        };
        if !self.settings.has_item_state() {
            return self.renumber();
        }
        let mut tree = Tree::new(front);
        let mut number = front;
        for entry in &mut self.entries {
            let items = entry.items();
            entry.first = number;
            number += items as u64;
            tree.push_back(weigh.leaves(entry, items));
        }
        self.end = number;
        self.tree = Some(tree);
    }

    /// Numbers the items that may be drawn, where no others have numbers. O(trajectories).
    fn renumber(&mut self) {
        let Some(front) = self.entries.front() else { return };
        let mut number = front.first;
        for entry in &mut self.entries {
            entry.first = number;
            number += u64::from(entry.drawable);
        }
        self.end = number;
    }

    /// Lets go of what is beyond a bound at `now`, from the old end on: trajectories of which no item is among the
    /// newest `capacity_items`, those beyond [`Retention`], and those whose items all had their last draw. Every insert
    /// does it too.
    ///
    /// Items that may not be drawn count for the capacity: it bounds memory and log, also while an actor in quarantine
    /// goes on sending.
    pub fn expire(&mut self, now: Duration) -> Vec<Removed> {
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
            index.remove(&id);
        }
        Removed { id, items: u64::from(entry.drawable) }
    }

    fn weigh(&self) -> ItemWeights {
        ItemWeights::new(&self.settings, self.base)
    }

    /// Returns the totals of all inserts.
    #[must_use]
    pub fn totals(&self) -> TableTotals {
        self.totals
    }

    /// Trajectories held, quarantined ones included.
    #[must_use]
    pub fn trajectories(&self) -> usize {
        self.entries.len()
    }

    /// Trajectories held but out of sampling.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// Items that may be drawn if the window reaches them.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Items of all trajectories held, whether they may be drawn or not: what the capacity bounds.
    #[must_use]
    pub fn held_items(&self) -> u64 {
        self.held_items
    }

    /// Items in the window. Of these, some may weigh nothing.
    #[must_use]
    pub fn window_items(&self) -> u64 {
        self.settings.window.items(self.totals.items).min(self.items)
    }

    /// Bytes of memory that it keeps: trajectories, their entries, and what is known of each item. What the allocator
    /// adds is not known here.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let entries = self.entries.capacity() * size_of::<Entry>();
        let tree = self.tree.as_ref().map_or(0, Tree::bytes);
        // A map fills seven eighths of its buckets, and keeps a byte beside each.
        let buckets = self.index.as_ref().map_or(0, |index| index.capacity() * 8 / 7);
        let index = buckets * (size_of::<(TrajectoryId, u64)>() + 1);
        self.trajectory_bytes + self.mark_bytes + (entries + tree + index) as u64
    }

    /// Returns the bytes of the trajectories alone, shared or not.
    #[must_use]
    pub fn trajectory_bytes(&self) -> u64 {
        self.trajectory_bytes
    }

    /// The newest weights version that searched the last step of a trajectory held and not in quarantine.
    #[must_use]
    pub fn newest_weights_version(&self) -> Option<WeightsVersion> {
        self.versions.newest()
    }

    /// Returns the trajectories held, newest first.
    pub fn held(&self) -> impl Iterator<Item = Held<'_>> + '_ {
        self.entries.iter().rev().map(|entry| Held {
            trajectory: &entry.trajectory,
            items: u64::from(entry.drawable),
            quarantined: entry.is_quarantined(),
            inserted: entry.inserted(),
        })
    }

    /// The trajectory that leaves next.
    #[must_use]
    pub fn oldest(&self) -> Option<&Trajectory> {
        self.entries.front().map(|entry| &entry.trajectory)
    }

    /// The trajectory that came last.
    #[must_use]
    pub fn newest(&self) -> Option<&Trajectory> {
        self.entries.back().map(|entry| &entry.trajectory)
    }
}

/// The number of trajectories of each weights version: a few hundred versions, whatever the trajectories.
#[derive(Debug, Default)]
struct Versions {
    trajectories: BTreeMap<WeightsVersion, u64>,
}

impl Versions {
    /// Counts a trajectory.
    fn insert(&mut self, version: WeightsVersion) {
        *self.trajectories.entry(version).or_default() += 1;
    }

    /// Forgets a trajectory that was counted.
    fn remove(&mut self, version: WeightsVersion) {
        let trajectories = self.trajectories.get_mut(&version).expect("what leaves was counted");
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
