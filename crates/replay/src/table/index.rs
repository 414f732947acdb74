use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use experience::TrajectoryId;

/// The position of each trajectory, by the number of its entry. Never iterated, so that no order can come from its
/// hashes, which have no seed.
#[derive(Debug, Default)]
pub(super) struct Index {
    numbers: HashMap<TrajectoryId, u64, BuildHasherDefault<DefaultHasher>>,
}

impl Index {
    pub(super) fn insert(&mut self, id: TrajectoryId, number: u64) {
        self.numbers.insert(id, number);
    }

    pub(super) fn remove(&mut self, id: TrajectoryId) {
        self.numbers.remove(&id);
    }

    pub(super) fn get(&self, id: TrajectoryId) -> Option<u64> {
        self.numbers.get(&id).copied()
    }

    /// Bytes of memory that it points to: a map fills seven eighths of its buckets, and keeps a byte beside each.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.capacity() * 8 / 7 * (size_of::<(TrajectoryId, u64)>() + 1)
    }
}
