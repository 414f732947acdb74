use super::leb128;
use crate::StepKind;

/// How a step was chosen and how much there is of it in the other sections: one number, one byte up to 125 entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Opening,
    Fast,
    Full { entries: usize },
}

impl Kind {
    pub(super) fn of(kind: &StepKind) -> Self {
        match kind {
            StepKind::Opening => Self::Opening,
            StepKind::Fast { .. } => Self::Fast,
            StepKind::Full { policy, .. } => Self::Full { entries: policy.len() },
        }
    }

    pub(super) fn put(self, bytes: &mut Vec<u8>) {
        let code = match self {
            Self::Opening => 0,
            Self::Fast => 1,
            // A policy in memory is far from 2^64 entries.
            Self::Full { entries } => entries as u64 + 2,
        };
        leb128::put(bytes, code);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        match leb128::take(bytes)? {
            0 => Some(Self::Opening),
            1 => Some(Self::Fast),
            code => Some(Self::Full { entries: usize::try_from(code - 2).ok()? }),
        }
    }

    /// How many values the step has.
    pub(super) fn values(self) -> usize {
        match self {
            Self::Opening => 0,
            Self::Fast | Self::Full { .. } => 1,
        }
    }

    /// How many entries its policy has, if it has one.
    pub(super) fn entries(self) -> Option<usize> {
        match self {
            Self::Opening | Self::Fast => None,
            Self::Full { entries } => Some(entries),
        }
    }
}

/// The kinds of all steps in order.
#[derive(Debug, Clone)]
pub(super) struct Kinds<'a> {
    bytes: &'a [u8],
}

impl<'a> Kinds<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }
}

impl Iterator for Kinds<'_> {
    type Item = Kind;

    fn next(&mut self) -> Option<Kind> {
        Kind::take(&mut self.bytes)
    }
}
