use bytes::{BufMut as _, Bytes, BytesMut};
use experience::ActionProbability;
use game::Action;

use super::{Invalid, count, invalid, length, wire_count};
use crate::replay::v1;

/// Bytes of an action on the wire.
const ACTION_BYTES: usize = size_of::<u16>();

pub(super) fn actions_to_wire(actions: impl ExactSizeIterator<Item = Action>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(actions.len() * ACTION_BYTES);
    actions.for_each(|action| bytes.put_u16_le(action.0));
    bytes.freeze()
}

/// The actions, at most `max` of them.
pub(super) fn actions_from_wire(bytes: &[u8], max: usize) -> Result<Vec<Action>, Invalid> {
    let (actions, []) = bytes.as_chunks::<ACTION_BYTES>() else {
        return Err(invalid("actions", format!("has {} bytes, an action has {ACTION_BYTES}", bytes.len())));
    };
    if actions.len() > max {
        return Err(invalid("actions", format!("has {} entries, the limit is {max}", actions.len())));
    }
    Ok(actions.iter().map(|&action| Action(u16::from_le_bytes(action))).collect())
}

pub(super) fn to_wire<'a>(policies: impl Iterator<Item = &'a [ActionProbability]>) -> v1::Policies {
    let (mut sizes, mut actions, mut probabilities) = (Vec::new(), Vec::new(), Vec::new());
    for policy in policies {
        sizes.push(wire_count(policy.len()));
        actions.extend(policy.iter().map(|entry| entry.action));
        probabilities.extend(policy.iter().map(|entry| entry.probability));
    }
    v1::Policies { sizes, actions: actions_to_wire(actions.into_iter()), probabilities }
}

/// Exactly `expected` policies, each a distribution or, where `may_be_empty`, nothing.
pub(super) fn from_wire(
    policies: Option<v1::Policies>,
    expected: usize,
    empty: Empty,
) -> Result<Vec<Vec<ActionProbability>>, Invalid> {
    let v1::Policies { sizes, actions, probabilities } = policies.unwrap_or_default();
    length("policies.sizes", sizes.len(), expected)?;
    length("policies.actions", actions.len(), probabilities.len().saturating_mul(ACTION_BYTES)).map_err(|_| {
        let reason = format!("has {} bytes for {} probabilities", actions.len(), probabilities.len());
        invalid("policies.actions", reason)
    })?;
    let mut rest = probabilities.as_slice();
    let (mut actions, _) = actions.as_chunks::<ACTION_BYTES>();
    let mut result = Vec::with_capacity(expected);
    for (index, &size) in sizes.iter().enumerate() {
        let size = count("policies.sizes", size)?;
        let short =
            || invalid(format!("policies.sizes[{index}]"), format!("{size} is more than the entries that are left"));
        let (of_this, after) = rest.split_at_checked(size).ok_or_else(short)?;
        let (actions_of_this, actions_after) = actions.split_at_checked(size).ok_or_else(short)?;
        let policy = actions_of_this
            .iter()
            .zip(of_this)
            .map(|(&action, &probability)| ActionProbability {
                action: Action(u16::from_le_bytes(action)),
                probability,
            })
            .collect::<Vec<_>>();
        check(index, &policy, empty)?;
        result.push(policy);
        (rest, actions) = (after, actions_after);
    }
    if rest.is_empty() { Ok(result) } else { Err(invalid("policies.sizes", "sum to less than the entries")) }
}

/// Whether a policy without entries is legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Empty {
    /// Nothing was recorded there.
    Legal,
    /// A full search has a policy.
    Illegal,
}

fn check(index: usize, policy: &[ActionProbability], empty: Empty) -> Result<(), Invalid> {
    if policy.is_empty() && empty == Empty::Legal {
        return Ok(());
    }
    ActionProbability::check(policy).map_err(|reason| invalid(format!("policies[{index}]"), reason))
}
