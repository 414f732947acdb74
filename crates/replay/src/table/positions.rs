use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use experience::Trajectory;

use super::memory;

/// Number of held items for each position hash, for merging equal positions. The map is never iterated, so the
/// unseeded hashes cannot affect any order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PositionCounts(HashMap<u64, u32, BuildHasherDefault<DefaultHasher>>);

impl PositionCounts {
    /// Bytes of one hash map bucket, including the control byte.
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
            let count = self.0.get_mut(&position).expect("a removed position was counted");
            *count -= 1;
            if *count == 0 {
                self.0.remove(&position);
            }
        }
    }

    /// Returns the weight `(log2 n + 1) / n` of each of n items with the position `position`, as in AlphaZero.jl.
    pub(super) fn weight(&self, position: u64) -> f64 {
        let count = f64::from(self.0.get(&position).copied().unwrap_or(1));
        (libm::log2(count) + 1.0) / count
    }

    /// Returns the memory of the map in bytes.
    pub(super) fn bytes(&self) -> u64 {
        memory::buckets(self.0.capacity()) * Self::BUCKET_BYTES
    }

    /// Returns the memory of the map in bytes after growth to `items` items, all at different positions.
    pub(super) fn bytes_of(&self, items: u64) -> u64 {
        memory::grown_buckets(self.0.capacity(), items) * Self::BUCKET_BYTES
    }
}
