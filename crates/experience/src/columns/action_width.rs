use game::Action;

/// The number of bytes of every action of one trajectory: most games have at most 256 actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActionWidth {
    One,
    Two,
}

impl ActionWidth {
    /// The least that all actions fit in.
    pub(super) fn of(mut actions: impl Iterator<Item = Action>) -> Self {
        if actions.all(|action| u8::try_from(action.0).is_ok()) { Self::One } else { Self::Two }
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    pub(super) fn put(self, bytes: &mut Vec<u8>, action: Action) {
        bytes.extend_from_slice(&action.0.to_le_bytes()[..self.bytes()]);
    }

    /// Takes an action from the front; `None` at the end.
    pub(super) fn take(self, bytes: &mut &[u8]) -> Option<Action> {
        let (action, rest) = match self {
            Self::One => bytes.split_first().map(|(&byte, rest)| (u16::from(byte), rest))?,
            Self::Two => bytes.split_first_chunk().map(|(&pair, rest)| (u16::from_le_bytes(pair), rest))?,
        };
        *bytes = rest;
        Some(Action(action))
    }
}
