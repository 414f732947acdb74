//! Sets of board cells as bits, for boards that do not fit one word.

use std::ops::{BitAnd, BitOr, Shl, Shr};

use game::{Player, mix};

/// Number of cells on the largest board, of 20 cells a side.
pub(crate) const CELLS_MAX: usize = 20 * 20;
const WORDS: usize = CELLS_MAX.div_ceil(64);

/// Returns the player who owns a cell.
pub(crate) fn owner(of_players: &[Cells; 2], cell: usize) -> Option<Player> {
    [Player::First, Player::Second].into_iter().find(|player| of_players[player.index()].contains(cell))
}

/// Returns the hash key of a stone (Zobrist 1970, with computed instead of stored keys).
pub(crate) const fn stone_key(player: Player, cell: usize) -> u64 {
    mix((cell as u64) << 1 | player.index() as u64)
}

/// A set of cells, numbered row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cells([u64; WORDS]);

impl Cells {
    /// The empty set.
    pub(crate) const EMPTY: Self = Self([0; WORDS]);
    /// Number of [words](Self::words).
    pub(crate) const WORDS: usize = WORDS;

    pub(crate) fn contains(&self, cell: usize) -> bool {
        self.0[cell / 64] >> (cell % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, cell: usize) {
        self.0[cell / 64] |= 1 << (cell % 64);
    }

    pub(crate) fn remove(&mut self, cell: usize) {
        self.0[cell / 64] &= !(1 << (cell % 64));
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Without branches, since there are few words.
        self.0.iter().fold(0, |bits, word| bits | word) == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the lowest cell in the set.
    pub(crate) fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// Iterates over the cells in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            std::iter::successors(Some(bits), |rest| Some(rest & rest.wrapping_sub(1)))
                .take_while(|&rest| rest != 0)
                .map(move |rest| word * 64 + rest.trailing_zeros() as usize)
        })
    }

    /// Returns the cells of this set that are not in `other`.
    pub(crate) fn without(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Returns the words of the set; cell 0 is the lowest bit of the first word.
    pub(crate) fn words(&self) -> &[u64; WORDS] {
        &self.0
    }
}

impl FromIterator<usize> for Cells {
    fn from_iter<I: IntoIterator<Item = usize>>(cells: I) -> Self {
        let mut set = Self::EMPTY;
        cells.into_iter().for_each(|cell| set.insert(cell));
        set
    }
}

impl BitAnd for Cells {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl BitOr for Cells {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

/// Adds 1 to 63 to the number of every cell. Numbers beyond the last word leave the set.
impl Shl<usize> for Cells {
    type Output = Self;

    fn shl(self, cells: usize) -> Self {
        let carried = |i: usize| if i > 0 { self.0[i - 1] >> (64 - cells) } else { 0 };
        Self(std::array::from_fn(|i| self.0[i] << cells | carried(i)))
    }
}

/// Subtracts 1 to 63 from the number of every cell. Numbers below 0 leave the set.
impl Shr<usize> for Cells {
    type Output = Self;

    fn shr(self, cells: usize) -> Self {
        let carried = |i: usize| if i + 1 < WORDS { self.0[i + 1] << (64 - cells) } else { 0 };
        Self(std::array::from_fn(|i| self.0[i] >> cells | carried(i)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_moves_every_cell_across_the_words() {
        for cell in 0..CELLS_MAX {
            for shift in [1, 19, 63] {
                let set = Cells::from_iter([cell]);
                let (up, down) = (set << shift, set >> shift);
                assert_eq!(up.first(), Some(cell + shift).filter(|&cell| cell < 64 * WORDS), "{cell} << {shift}");
                assert_eq!(down.first(), cell.checked_sub(shift), "{cell} >> {shift}");
                assert!(up.len() <= 1 && down.len() <= 1);
            }
        }
    }

    #[test]
    fn a_set_holds_the_cells_that_were_inserted_and_not_removed() {
        let mut set = Cells::from_iter([0, 63, 64, 127, 360]);
        set.remove(64);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 127, 360]);
        assert_eq!(set.without(Cells::from_iter([63, 5])), Cells::from_iter([0, 127, 360]));
        assert!(set.contains(127) && !set.contains(64) && !set.is_empty() && Cells::EMPTY.is_empty());
    }
}
