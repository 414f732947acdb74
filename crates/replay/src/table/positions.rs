use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use experience::Trajectory;

use super::memory;

/// Number of items held for each position, which draws that merge equal positions need. The map is never iterated, so
/// unseeded hashes cannot affect any order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PositionCounts(HashMap<u64, u32, BuildHasherDefault<DefaultHasher>>);

impl PositionCounts {
    /// Bytes of one bucket, including the control byte.
    const BUCKET_BYTES: u64 = (size_of::<(u64, u32)>() + 1) as u64;

    pub(super) fn of<'a>(trajectories: impl Iterator<Item = &'a Trajectory>) -> Self {
        let mut counts = Self::default();
        trajectories.for_each(|trajectory| counts.insert(trajectory));
        counts
    }

    pub(super) fn insert(&mut self, trajectory: &Trajectory) {
        trajectory.positions().for_each(|position| *self.0.entry(position).or_default() += 1);
    }

    pub(super) fn remove(&mut self, trajectory: &Trajectory) {
        for position in trajectory.positions() {
            let count = self.0.get_mut(&position).expect("what leaves was counted");
            *count -= 1;
            if *count == 0 {
                self.0.remove(&position);
            }
        }
    }

    /// Returns the weight of each item if n items share the position: `(log2 n + 1) / n`, as AlphaZero.jl weighs merged
    /// samples.
    pub(super) fn weight(&self, position: u64) -> f64 {
        let count = f64::from(self.0.get(&position).copied().unwrap_or(1));
        (libm::log2(count) + 1.0) / count
    }

    /// Returns the size of the map, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        memory::buckets(self.0.capacity()) * Self::BUCKET_BYTES
    }

    /// Returns the maximum size of the map in bytes with this number of items, all at different positions.
    pub(super) fn bytes_of(&self, items: u64) -> u64 {
        memory::grown_buckets(self.0.capacity(), items) * Self::BUCKET_BYTES
    }
}
