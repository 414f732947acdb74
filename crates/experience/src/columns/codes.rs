//! Encodings of single fields: numbers in LEB128, kinds of steps, actions, and actions in policies.
//!
//! LEB128 encodes an integer in groups of seven bits, the lowest first; the shortest form has no redundant group.

use game::Action;

use crate::ActionProbability;

/// Appends a number in LEB128: one byte if it is below 128, at most ten.
pub(super) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        // The lowest seven bits, and the flag that more follow.
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number in LEB128 from the front; `None` if there is none, or if it is not in the shortest form.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u64::from(byte & 0x7f);
        number |= group << shift;
        if byte < 0x80 {
            // A highest group of zeros is redundant, and the tenth group has a single bit.
            let is_shortest = (shift == 0 || byte > 0) && (group << shift) >> shift == group;
            return is_shortest.then_some(number);
        }
    }
    None
}

/// The kind of a step, with the number of policy entries: encoded as one number, in one byte up to 126 entries.
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
            // A policy in memory has far fewer than 2^64 entries.
            Self::Full { entries } => entries as u64 + 1,
        };
        put_number(bytes, code);
    }

    pub(super) fn take(bytes: &mut &[u8]) -> Option<Self> {
        match take_number(bytes)? {
            0 => Some(Self::Opening),
            1 => Some(Self::Fast),
            code => Some(Self::Full { entries: usize::try_from(code - 1).ok()? }),
        }
    }

    /// Returns the name of the kind.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Fast => "fast",
            Self::Full { .. } => "full",
        }
    }

    /// Returns the number of values of the step.
    pub(super) fn values(self) -> usize {
        usize::from(self != Self::Opening)
    }

    /// Returns the number of entries in the step's policy, if it has one.
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

    /// Returns the unread bytes.
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

/// The size of an action, the same in the whole trajectory: most games have at most 256 actions and need one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActionWidth {
    One,
    Two,
}

impl ActionWidth {
    /// Returns the smallest width that fits all actions.
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

/// The encoding of actions in policies: the shorter one, used for all policies of a trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyActions {
    /// A list of actions.
    List(ActionWidth),
    /// One bit for each action up to the highest of the trajectory; only for policies in ascending order, as valid
    /// policies are.
    BitSet { bytes: u16 },
}

impl PolicyActions {
    pub(super) fn of<'a>(
        policies: impl Iterator<Item = &'a [ActionProbability]> + Clone,
        action_width: ActionWidth,
    ) -> Self {
        let highest = policies.clone().flatten().map(|entry| entry.action.0).max().unwrap_or(0);
        let entries = policies.clone().map(<[_]>::len).sum();
        // A policy that does not ascend cannot be a set: a list keeps the order, and validation rejects it.
        let ascend = policies.clone().all(|policy| policy.is_sorted_by(|before, after| before.action < after.action));
        let shortest = Self::shortest(policies.count(), entries, Action(highest), action_width);
        if ascend { shortest } else { Self::List(action_width) }
    }

    /// Returns the shorter encoding for a number of policies with `entries` entries in total, up to the highest action.
    pub(super) fn shortest(policies: usize, entries: usize, highest: Action, action_width: ActionWidth) -> Self {
        let bytes = highest.0 / 8 + 1;
        let is_shorter = policies * usize::from(bytes) < entries * action_width.bytes();
        if is_shorter { Self::BitSet { bytes } } else { Self::List(action_width) }
    }

    /// Returns the number of bytes for the actions of a policy.
    pub(super) fn bytes(self, entries: usize) -> usize {
        match self {
            Self::List(action_width) => entries.saturating_mul(action_width.bytes()),
            Self::BitSet { bytes } => usize::from(bytes),
        }
    }

    pub(super) fn put(self, content: &mut Vec<u8>, policy: &[ActionProbability]) {
        match self {
            Self::List(action_width) => policy.iter().for_each(|entry| action_width.put(content, entry.action)),
            Self::BitSet { bytes } => {
                let at = content.len();
                content.resize(at + usize::from(bytes), 0);
                for ActionProbability { action, .. } in policy {
                    content[at + action.index() / 8] |= 1 << (action.index() % 8);
                }
            }
        }
    }

    /// Decodes the actions of one policy in order.
    pub(super) fn unpack(self, mut bytes: &[u8]) -> impl Iterator<Item = Action> {
        let mut bit = 0..bytes.len() * 8;
        let set = bytes;
        std::iter::from_fn(move || match self {
            Self::List(action_width) => action_width.take(&mut bytes),
            Self::BitSet { .. } => {
                // A set has at most 2^16 bits.
                bit.find(|bit| set[bit / 8] >> (bit % 8) & 1 == 1).map(|bit| Action(bit as u16))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_number(&mut bytes, number);
        bytes
    }

    #[test]
    fn numbers_take_a_byte_for_every_seven_bits() {
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(127), [0x7f]);
        assert_eq!(bytes(128), [0x80, 1]);
        // An example of the DWARF standard.
        assert_eq!(bytes(12857), [0xb9, 0x64]);
        assert_eq!(bytes(u64::MAX).len(), 10);
    }

    #[test]
    fn a_truncated_or_unterminated_number_is_refused() {
        assert_eq!(take_number(&mut [].as_slice()), None);
        assert_eq!(take_number(&mut [0x80].as_slice()), None);
        assert_eq!(take_number(&mut [0x80; 11].as_slice()), None);
    }

    #[test]
    fn a_number_in_more_bytes_than_it_needs_or_than_there_are_bits_is_refused() {
        assert_eq!(take_number(&mut [0x80, 0].as_slice()), None);
        assert_eq!(take_number(&mut [0xff, 0x80, 0].as_slice()), None);
        let mut greatest = bytes(u64::MAX);
        *greatest.last_mut().unwrap() = 2;
        assert_eq!(take_number(&mut greatest.as_slice()), None);
    }

    proptest! {
        #[test]
        fn written_numbers_are_read_back_in_order(numbers in prop::collection::vec(any::<u64>(), 0..9), shift in 0..64_u32) {
            let numbers: Vec<u64> = numbers.iter().map(|number| number >> shift).collect();
            let bytes: Vec<u8> = numbers.iter().flat_map(|&number| bytes(number)).collect();
            let mut rest = bytes.as_slice();
            let back: Vec<u64> = std::iter::from_fn(|| take_number(&mut rest)).collect();
            prop_assert_eq!(back, numbers);
        }
    }
}
