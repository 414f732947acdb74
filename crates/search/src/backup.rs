//! Backs up the value of a completed visit to the root.

use crate::arena::Arena;
use crate::edges::{EdgeId, NodeId};

/// Backs up `value` (for the player to move at `leaf`) to the root, and completes the visit in flight at each node.
///
/// Each step converts the value to the view of the parent: `reward + discount · value`. A proven node backs up the
/// exact value in place of the value from below.
///
/// The value of a chance node is also the mean over visits. Outcomes are not actions, so outcome values do not extend
/// the range for rescaling.
#[inline]
pub(crate) fn back_up(arena: &mut Arena, leaf: NodeId, value: f32) {
    if arena.has_chance { back_up_by::<true>(arena, leaf, value) } else { back_up_by::<false>(arena, leaf, value) }
}

fn back_up_by<const CHANCE: bool>(arena: &mut Arena, leaf: NodeId, mut value: f32) {
    let mut id = leaf;
    loop {
        let node = arena.node_mut(id);
        if let Some(exact) = node.proven.value() {
            value = exact;
        }
        node.complete_visit(value);
        let (edge, parent) = (node.edge, node.parent);
        if edge == EdgeId::NONE {
            return;
        }
        let action_value = node.value_to_parent(node.value());
        value = node.value_to_parent(value);
        if !CHANCE || !arena.node(parent).is_chance {
            arena.bounds.include(action_value);
        }
        arena.edges.show(edge, action_value);
        id = parent;
    }
}

/// Reverts the visit in flight at the node `id` and at every ancestor.
pub(crate) fn withdraw(arena: &mut Arena, mut id: NodeId) {
    while id != NodeId::NONE {
        arena.leave(id);
        id = arena.node(id).parent;
    }
}
