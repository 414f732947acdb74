use experience::TrajectoryId;

use super::{Entry, QuarantineChange, Table};

impl Table {
    /// Puts a trajectory into quarantine until a release. The table still holds the trajectory. O(trajectories) without
    /// an index by id, because quarantines are too rare to justify the memory of an index.
    pub fn quarantine(&mut self, id: TrajectoryId) -> QuarantineChange {
        self.mark_one(id, |entry| !std::mem::replace(&mut entry.quarantined, true))
    }

    /// Releases a trajectory from quarantine. Priorities are kept.
    pub fn release(&mut self, id: TrajectoryId) -> QuarantineChange {
        self.mark_one(id, |entry| std::mem::replace(&mut entry.quarantined, false))
    }

    /// Puts all current and future trajectories of an actor into quarantine until a release of the actor.
    /// O(trajectories).
    pub fn quarantine_actor(&mut self, actor: u64) -> QuarantineChange {
        if !self.quarantined_actors.insert(actor) {
            return QuarantineChange::Unchanged;
        }
        self.mark_all_of(actor, |entry| !std::mem::replace(&mut entry.actor_quarantined, true))
    }

    /// Releases an actor from quarantine, with all trajectories of the actor except trajectories quarantined by id.
    /// O(trajectories).
    pub fn release_actor(&mut self, actor: u64) -> QuarantineChange {
        if !self.quarantined_actors.remove(&actor) {
            return QuarantineChange::Unchanged;
        }
        self.mark_all_of(actor, |entry| std::mem::replace(&mut entry.actor_quarantined, false))
    }

    /// Returns the ids of the actors in quarantine, in ascending order.
    pub fn quarantined_actors(&self) -> impl Iterator<Item = u64> + '_ {
        self.quarantined_actors.iter().copied()
    }

    /// Returns the ids of held trajectories quarantined by id, oldest first. Quarantined actors are not considered.
    pub fn quarantined_ids(&self) -> impl Iterator<Item = TrajectoryId> + '_ {
        self.entries.iter().filter(|entry| entry.quarantined).map(|entry| entry.trajectory.id())
    }

    /// Returns the position of a trajectory in `entries`. O(1) with an index by id, O(trajectories) without.
    pub(super) fn find(&self, id: TrajectoryId) -> Option<usize> {
        let Some(index) = &self.index else {
            return self.entries.iter().position(|entry| entry.trajectory.id() == id);
        };
        let at = index.get(&id)? - self.entries_removed;
        Some(usize::try_from(at).expect("an index into entries in memory"))
    }

    fn mark_one(&mut self, id: TrajectoryId, mark: fn(&mut Entry) -> bool) -> QuarantineChange {
        let Some(at) = self.find(id) else { return QuarantineChange::Unknown };
        let before = self.items;
        if !self.mark(at, mark) {
            return QuarantineChange::Unchanged;
        }
        self.renumber_implicit();
        QuarantineChange::Changed { items: self.items.abs_diff(before) }
    }

    fn mark_all_of(&mut self, actor: u64, mark: fn(&mut Entry) -> bool) -> QuarantineChange {
        let before = self.items;
        for at in 0..self.entries.len() {
            if self.entries[at].trajectory.id().actor == actor {
                self.mark(at, mark);
            }
        }
        self.renumber_implicit();
        QuarantineChange::Changed { items: self.items.abs_diff(before) }
    }

    /// Applies `mark` to an entry and updates the counters of the table. `mark` changes a quarantine flag and returns
    /// true if the flag was different before. The caller must renumber the items afterwards.
    fn mark(&mut self, at: usize, mark: fn(&mut Entry) -> bool) -> bool {
        let selector = self.settings.selector;
        let entry = &mut self.entries[at];
        let (before, drawable) = (entry.is_quarantined(), entry.drawable());
        let is_changed = mark(entry);
        if entry.is_quarantined() == before {
            return is_changed;
        }
        let version = entry.last_weights_version;
        if let Some(tree) = &mut self.tree {
            tree.replace(entry.first, selector.leaves(entry, entry.items()));
        }
        self.items = self.items - drawable + entry.drawable();
        if before {
            self.quarantined -= 1;
            self.versions.insert(version);
        } else {
            self.quarantined += 1;
            self.versions.remove(version);
        }
        is_changed
    }

    fn renumber_implicit(&mut self) {
        if self.tree.is_none() {
            self.renumber();
        }
    }
}
