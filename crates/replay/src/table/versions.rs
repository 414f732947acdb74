use std::collections::BTreeMap;

use experience::WeightsVersion;

/// The number of trajectories of each weights version: a few hundred versions, whatever the trajectories.
#[derive(Debug, Default)]
pub(super) struct Versions {
    trajectories: BTreeMap<WeightsVersion, u64>,
}

impl Versions {
    /// Counts a trajectory.
    pub(super) fn insert(&mut self, version: WeightsVersion) {
        *self.trajectories.entry(version).or_default() += 1;
    }

    /// Forgets a trajectory that was counted.
    pub(super) fn remove(&mut self, version: WeightsVersion) {
        let trajectories = self.trajectories.get_mut(&version).expect("what leaves was counted");
        *trajectories -= 1;
        if *trajectories == 0 {
            self.trajectories.remove(&version);
        }
    }

    pub(super) fn newest(&self) -> Option<WeightsVersion> {
        self.trajectories.last_key_value().map(|(&version, _)| version)
    }
}
