use game::Action;

use super::action_width::ActionWidth;
use super::policy;
use crate::{ActionProbability, Trajectory};

/// How one trajectory writes which actions a policy has: for all of its policies in the same way, the one that takes
/// fewer bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyActions {
    /// Action after action.
    List(ActionWidth),
    /// A bit for each action up to the highest of the trajectory; for policies that ascend, as all valid ones do.
    BitSet { bytes: u16 },
}

impl PolicyActions {
    pub(super) fn of(trajectory: &Trajectory, action_width: ActionWidth) -> Self {
        let policies = || trajectory.steps.iter().filter_map(|step| policy(&step.kind));
        let list_bytes: usize = policies().map(|policy| policy.len() * action_width.bytes()).sum();
        let highest = policies().flatten().map(|entry| entry.action.0).max().unwrap_or(0);
        let bytes = highest / 8 + 1;
        let ascend = policies().all(|policy| policy.is_sorted_by(|before, after| before.action < after.action));
        if ascend && policies().count() * usize::from(bytes) < list_bytes {
            Self::BitSet { bytes }
        } else {
            Self::List(action_width)
        }
    }

    /// How many bytes the actions of a policy take.
    pub(super) fn bytes(self, entries: usize) -> usize {
        match self {
            Self::List(action_width) => entries * action_width.bytes(),
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
