use crate::entry::Sizes;

/// Number of cells along a side of a square board, `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Side<const MIN: u8, const MAX: u8>(pub(crate) u8);

impl<const MIN: u8, const MAX: u8> Side<MIN, MAX> {
    /// Minimum number of cells along a side.
    pub const MIN: Self = Self(MIN);
    /// Maximum number of cells along a side.
    pub const MAX: Self = Self(MAX);

    /// Returns the size with `cells` cells along a side; `None` out of range.
    #[must_use]
    pub fn new(cells: u8) -> Option<Self> {
        (MIN..=MAX).contains(&cells).then_some(Self(cells))
    }

    /// Returns the number of cells along a side.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    /// Returns the sizes of a game with the usual size `usual`.
    pub(crate) const fn sizes(usual: u8) -> Sizes {
        Sizes { min: MIN, usual, max: MAX }
    }
}
