use super::leb128;

/// The way in which a step was chosen and the number of its entries in the other columns: one number, one byte up to
/// 126 entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Opening,
    Fast,
    Full { entries: usize },
}

impl Kind {
    pub(super) fn put(self, bytes: &mut Vec<u8>) {
        let code = match self {
            Self::Opening => 0,
            Self::Fast => 1,
            // A policy in memory is far from 2^64 entries.
            Self::Full { entries } => entries as u64 + 1,
        };
        leb128::put(bytes, code);
    }

    pub(super) fn take(bytes: &mut &[u8]) -> Option<Self> {
        match leb128::take(bytes)? {
            0 => Some(Self::Opening),
            1 => Some(Self::Fast),
            code => Some(Self::Full { entries: usize::try_from(code - 1).ok()? }),
        }
    }

    /// Returns the number of values of the step.
    pub(super) fn values(self) -> usize {
        match self {
            Self::Opening => 0,
            Self::Fast | Self::Full { .. } => 1,
        }
    }

    /// Returns the number of entries of its policy, if it has one.
    pub(super) fn entries(self) -> Option<usize> {
        match self {
            Self::Opening | Self::Fast => None,
            Self::Full { entries } => Some(entries),
        }
    }
}

/// The kinds of steps in order.
#[derive(Debug, Clone)]
pub(crate) struct Kinds<'a> {
    bytes: &'a [u8],
}

impl<'a> Kinds<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Those that are left.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl Iterator for Kinds<'_> {
    type Item = Kind;

    fn next(&mut self) -> Option<Kind> {
        Kind::take(&mut self.bytes)
    }
}
