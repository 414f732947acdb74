//! Revisions: newer searches replace the searches of a stored trajectory (MuZero Reanalyze, Schrittwieser et al. 2020,
//! appendix H; Schrittwieser et al. 2021).

use std::time::Duration;

use experience::{Trajectory, TrajectoryId, WeightsVersion};
use rand::Rng;

use super::draw::Odds;
use super::{Held, Table};

impl Table {
    /// Draws window items uniformly, whatever the selector, up to `attempts` times. Returns the first trajectory that
    /// was last searched by a version before `older_than`; `None` if no draw finds one.
    ///
    /// This is no draw of [`Table::draw`]: nothing is counted, and the table is unchanged.
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

    /// Returns a trajectory by id. The first call builds an index, O(trajectories); later calls take O(1).
    pub fn lookup(&mut self, id: TrajectoryId) -> Option<Held<'_>> {
        self.keep_index();
        Some(self.entries[self.find(id)?].held())
    }

    /// Replaces a trajectory by one with the same id and items, and sets the revision of the searches to `revision`;
    /// returns false if the table does not hold the trajectory. The caller compares the revisions.
    ///
    /// The items keep priorities, counted draws, quarantine and order, and the trajectory keeps the time of insertion.
    /// It counts as searched by the weights version of the new last step, by which
    /// [`Selector::StalenessAware`](crate::Selector::StalenessAware) weighs it and [`Retention`](crate::Retention)
    /// bounds the lag. Items drawn before hold the earlier searches.
    ///
    /// O(items of the trajectory · log items).
    pub fn revise(&mut self, trajectory: &Trajectory, revision: u64, now: Duration) -> bool {
        self.keep_index();
        let Some(at) = self.find(trajectory.id()) else { return false };
        let weigh = self.weigh();
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
            tree.replace(entry.first, weigh.leaves(entry, entry.items()));
        }
        true
    }
}
