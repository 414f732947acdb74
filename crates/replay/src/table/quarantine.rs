use experience::TrajectoryId;

use super::{Entry, Quarantine, Release, Table};

impl Table {
    /// Takes a trajectory out of sampling until it is released; it stays listed until it leaves the table.
    /// O(trajectories) where no priorities are used: it is so rare that an index by id would cost more memory than it
    /// saves time.
    pub fn quarantine(&mut self, id: TrajectoryId) -> Quarantine {
        let Some(at) = self.find(id) else { return Quarantine::Unknown };
        if self.entries[at].quarantined {
            return Quarantine::Already;
        }
        let before = self.items;
        self.mark(at, |entry| entry.quarantined = true);
        self.renumber_implicit();
        Quarantine::Quarantined { items: before - self.items }
    }

    /// Puts a trajectory back into sampling, with the priorities and counted draws that it has.
    pub fn release(&mut self, id: TrajectoryId) -> Release {
        let Some(at) = self.find(id) else { return Release::Unknown };
        if !self.entries[at].quarantined {
            return Release::NotQuarantined;
        }
        let before = self.items;
        self.mark(at, |entry| entry.quarantined = false);
        self.renumber_implicit();
        Release::Released { items: self.items - before }
    }

    /// Takes all trajectories of an actor out of sampling, and all that will come, until it is released.
    /// O(trajectories).
    pub fn quarantine_actor(&mut self, actor: u64) -> Quarantine {
        if !self.quarantined_actors.insert(actor) {
            return Quarantine::Already;
        }
        let before = self.items;
        self.mark_all_of(actor, |entry| entry.actor_quarantined = true);
        Quarantine::Quarantined { items: before - self.items }
    }

    /// Puts all trajectories of an actor back into sampling, but those that are in quarantine by their own id.
    /// O(trajectories).
    pub fn release_actor(&mut self, actor: u64) -> Release {
        if !self.quarantined_actors.remove(&actor) {
            return Release::NotQuarantined;
        }
        let before = self.items;
        self.mark_all_of(actor, |entry| entry.actor_quarantined = false);
        Release::Released { items: self.items - before }
    }

    /// The actors in quarantine, ascending.
    pub fn quarantined_actors(&self) -> impl Iterator<Item = u64> + '_ {
        self.quarantined_actors.iter().copied()
    }

    /// The trajectories held that are in quarantine by their own id, oldest first.
    pub fn quarantined_ids(&self) -> impl Iterator<Item = TrajectoryId> + '_ {
        self.entries.iter().filter(|entry| entry.quarantined).map(|entry| entry.trajectory.id())
    }

    /// Returns the position of a trajectory. O(trajectories) without an index.
    pub(super) fn find(&self, id: TrajectoryId) -> Option<usize> {
        let Some(index) = &self.index else {
            return self.entries.iter().position(|entry| entry.trajectory.id() == id);
        };
        let at = index.get(id)? - self.entries_removed;
        Some(usize::try_from(at).expect("an index into entries in memory"))
    }

    fn mark_all_of(&mut self, actor: u64, mark: fn(&mut Entry)) {
        for at in 0..self.entries.len() {
            if self.entries[at].trajectory.id().actor == actor {
                self.mark(at, mark);
            }
        }
        self.renumber_implicit();
    }

    /// Puts an entry into quarantine or out of it. Leaves the numbers of items to be brought up to date.
    fn mark(&mut self, at: usize, mark: fn(&mut Entry)) {
        let weigh = self.weigh();
        let entry = &mut self.entries[at];
        let before = entry.is_quarantined();
        mark(entry);
        if entry.is_quarantined() == before {
            return;
        }
        let (version, drawable) = (entry.last_weights_version, entry.drawable);
        entry.count_drawable(weigh);
        if let Some(tree) = &mut self.tree {
            tree.replace(entry.first, weigh.leaves(entry, entry.items()));
        }
        self.items = self.items - u64::from(drawable) + u64::from(entry.drawable);
        if before {
            self.quarantined -= 1;
            self.versions.insert(version);
        } else {
            self.quarantined += 1;
            self.versions.remove(version);
        }
    }

    fn renumber_implicit(&mut self) {
        if self.tree.is_none() {
            self.renumber();
        }
    }
}
