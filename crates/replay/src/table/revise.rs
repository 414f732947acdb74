//! Revisions: new searches replace the stored searches of a trajectory (MuZero Reanalyze, Schrittwieser et al. 2020,
//! appendix H; Schrittwieser et al. 2021).

use std::time::Duration;

use experience::{Trajectory, TrajectoryId, WeightsVersion};
use rand::Rng;

use super::draw::Odds;
use super::{Held, Table};

impl Table {
    /// Draws up to `attempts` items uniformly from the window, regardless of the selector. Returns the first trajectory
    /// with a weights version below `older_than` in the last step. `None` if no attempt finds such a trajectory.
    ///
    /// Unlike [`Table::draw`], this counts no draws and does not change the table.
    pub fn choose(
        &self,
        older_than: WeightsVersion,
        attempts: usize,
        rng: &mut (impl Rng + ?Sized),
    ) -> Option<Held<'_>> {
        let items = self.window_items();
        if items == 0 {
            return None;
        }
        let mut choose = || {
            let mut picks = [self.pick(Odds::Even { items }, rng)];
            self.locate(&mut picks);
            &self.entries[picks[0].at]
        };
        let mut chosen = std::iter::repeat_with(&mut choose).take(attempts);
        chosen.find(|entry| entry.last_weights_version < older_than).map(super::Entry::held)
    }

    /// Returns a trajectory by id. `None` if the table does not hold the trajectory. The first call builds an index in
    /// O(trajectories); later calls are O(1).
    pub fn lookup(&mut self, id: TrajectoryId) -> Option<Held<'_>> {
        self.keep_index();
        Some(self.entries[self.find(id)?].held())
    }

    /// Replaces the trajectory with the same id by `trajectory`, which must have the same items, and sets the revision
    /// number to `revision`. Returns false if the table does not hold the trajectory. The caller must check that
    /// `revision` is higher than the stored revision.
    ///
    /// The items keep priorities, quarantine and order, and the trajectory keeps the time of the insert.
    /// [`Retention`](crate::Retention) uses the weights version in the last step of the new trajectory. Earlier draws
    /// keep the earlier searches.
    ///
    /// O(items of the trajectory · log items).
    pub fn revise(&mut self, trajectory: &Trajectory, revision: u64, now: Duration) -> bool {
        self.keep_index();
        let Some(at) = self.find(trajectory.id()) else { return false };
        let selector = self.settings.selector;
        let entry = &mut self.entries[at];
        let (bytes, version) = (entry.trajectory_bytes(), entry.last_weights_version);
        if let Some(positions) = &mut self.positions {
            positions.remove(&entry.trajectory);
            positions.insert(trajectory);
        }
        entry.revise(trajectory.clone(), revision, now);
        self.trajectory_bytes = self.trajectory_bytes - bytes + entry.trajectory_bytes();
        if !entry.is_quarantined() {
            let newer = entry.last_weights_version;
            self.versions.remove(version);
            self.versions.insert(newer);
        }
        if let Some(tree) = &mut self.tree {
            let entry = &self.entries[at];
            tree.replace(entry.first, selector.leaves(entry, entry.items()));
        }
        true
    }
}
