use game::mix;

use super::board::Cells;

/// Number of entries, of at most 16 bytes each.
const ENTRIES: usize = 1 << 20;

/// A position of a search: the stones of both players, and the player to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    /// Returns the key of a position with the attacker to move.
    pub(super) fn attack(attacker: Cells, defender: Cells) -> Self {
        // The highest bit distinguishes a key from an empty entry.
        Self(1 << 63 | u64::from(attacker) << 25 | u64::from(defender))
    }

    /// Returns the key of a position with the defender to move.
    pub(super) fn defence(attacker: Cells, defender: Cells) -> Self {
        Self(Self::attack(attacker, defender).0 | 1 << 62)
    }

    fn entry(self) -> usize {
        (mix(self.0) >> 32) as usize % ENTRIES
    }
}

/// Stores search results of positions in a fixed number of entries; a new position replaces the old one.
#[derive(Debug)]
pub(super) struct Table<T>(Vec<(Key, T)>);

impl<T: Copy + Default> Table<T> {
    pub(super) fn new() -> Self {
        Self(vec![(Key(0), T::default()); ENTRIES])
    }

    /// Returns the stored result for a position, if there is one.
    pub(super) fn get(&self, key: Key) -> Option<T> {
        let (other, found) = self.0[key.entry()];
        (other == key).then_some(found)
    }

    pub(super) fn put(&mut self, key: Key, found: T) {
        self.0[key.entry()] = (key, found);
    }
}
