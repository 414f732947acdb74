//! Sets of the cells of a board as bits, for boards that do not fit one word.

/// The number of cells of the largest board, of 20 cells a side.
pub(crate) const CELLS_MAX: usize = 20 * 20;
const WORDS: usize = CELLS_MAX.div_ceil(64);

/// Holds a set of cells, numbered row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cells([u64; WORDS]);

impl Cells {
    /// The set without a cell.
    pub(crate) const EMPTY: Self = Self([0; WORDS]);

    pub(crate) fn contains(&self, cell: usize) -> bool {
        self.0[cell / 64] >> (cell % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, cell: usize) {
        self.0[cell / 64] |= 1 << (cell % 64);
    }

    pub(crate) fn remove(&mut self, cell: usize) {
        self.0[cell / 64] &= !(1 << (cell % 64));
    }

    /// Returns the lowest cell of the set.
    pub(crate) fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// Iterates over the cells of the set in ascending order.
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
}

impl FromIterator<usize> for Cells {
    fn from_iter<I: IntoIterator<Item = usize>>(cells: I) -> Self {
        let mut set = Self::EMPTY;
        cells.into_iter().for_each(|cell| set.insert(cell));
        set
    }
}
