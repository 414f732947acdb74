use super::{Changed, Index, Table};
use crate::TableSettings;
use crate::tree::Tree;

impl Table {
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
    pub(super) fn rebuild(&mut self) {
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
    pub(super) fn plant(&mut self) {
        let weigh = self.weigh();
        self.tree = None;
        let Some(front) = self.entries.front().map(|front| front.first) else {
            self.tree = self.settings.tells_items_apart().then(|| Tree::new(self.end));
            return;
        };
        if !self.settings.tells_items_apart() {
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
    pub(super) fn renumber(&mut self) {
        let Some(front) = self.entries.front() else { return };
        let mut number = front.first;
        for entry in &mut self.entries {
            entry.first = number;
            number += u64::from(entry.drawable);
        }
        self.end = number;
    }
}
