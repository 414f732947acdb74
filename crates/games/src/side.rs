use crate::entry::Sizes;

/// Size of a game, `MIN` to `MAX`: cells along a side, or what the module of the game documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Side<const MIN: u8, const MAX: u8>(pub(crate) u8);

impl<const MIN: u8, const MAX: u8> Side<MIN, MAX> {
    /// Minimum size.
    pub const MIN: Self = Self(MIN);
    /// Maximum size.
    pub const MAX: Self = Self(MAX);

    /// Returns the size; `None` out of range.
    #[must_use]
    pub fn new(size: u8) -> Option<Self> {
        (MIN..=MAX).contains(&size).then_some(Self(size))
    }

    /// Returns the size as a number.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    /// Returns the sizes of a game with the usual size `usual`.
    pub(crate) const fn sizes(usual: u8) -> Sizes {
        Sizes { min: MIN, usual, max: MAX }
    }
}
