use game::Action;

use super::action_width::ActionWidth;
use crate::ActionProbability;

/// The encoding of the actions of policies in one trajectory: the same for all of its policies, the one that takes
/// fewer bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyActions {
    /// Action after action.
    List(ActionWidth),
    /// A bit for each action up to the highest of the trajectory; for policies that ascend, as all valid ones do.
    BitSet { bytes: u16 },
}

impl PolicyActions {
    pub(super) fn of<'a>(
        policies: impl Iterator<Item = &'a [ActionProbability]> + Clone,
        action_width: ActionWidth,
    ) -> Self {
        let highest = policies.clone().flatten().map(|entry| entry.action.0).max().unwrap_or(0);
        let entries = policies.clone().map(<[_]>::len).sum();
        // What does not ascend is no set: it is left for the check to find.
        let ascend = policies.clone().all(|policy| policy.is_sorted_by(|before, after| before.action < after.action));
        let shortest = Self::shortest(policies.count(), entries, Action(highest), action_width);
        if ascend { shortest } else { Self::List(action_width) }
    }

    /// The form that takes fewer bytes for so many policies with so many entries in all, up to the highest action.
    pub(super) fn shortest(policies: usize, entries: usize, highest: Action, action_width: ActionWidth) -> Self {
        let bytes = highest.0 / 8 + 1;
        let is_shorter = policies * usize::from(bytes) < entries * action_width.bytes();
        if is_shorter { Self::BitSet { bytes } } else { Self::List(action_width) }
    }

    /// Returns the number of bytes of the actions of a policy.
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

    /// The actions of one policy in order.
    pub(super) fn unpack(self, mut bytes: &[u8]) -> impl Iterator<Item = Action> {
        let mut bit = 0..bytes.len() * 8;
        let set = bytes;
        std::iter::from_fn(move || match self {
            Self::List(action_width) => action_width.take(&mut bytes),
            Self::BitSet { .. } => {
                // A set has 2^16 bits at most.
                bit.find(|bit| set[bit / 8] >> (bit % 8) & 1 == 1).map(|bit| Action(bit as u16))
            }
        })
    }
}
