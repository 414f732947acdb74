//! Propagation of proven results: one lost child makes the parent a win, and a parent with only won children is a loss
//! (each result from the view of the player to move there).
//!
//! Winands, Björnsson and Saito 2008, extended to draws: a proven draw stays open to descents, with the exact value,
//! because the value of the parent is still unknown. A proof propagates only where players alternate and no reward is
//! paid, and never through a chance node, because one outcome proves nothing about the rest.

use crate::arena::Arena;
use crate::edges::NodeId;
use crate::proven::Proven;

/// Marks the node `id` as proven and propagates the proof to the ancestors proven as a consequence.
#[inline]
pub(crate) fn prove(arena: &mut Arena, mut id: NodeId, mut proven: Proven) {
    while proven != Proven::Unknown {
        arena.node_mut(id).proven = proven;
        if id == NodeId::ROOT {
            return;
        }
        let node = *arena.node(id);
        if !node.proves_parent() || arena.node(node.parent).is_chance {
            // Descents may still stop at this node, so requests in flight below the node must not block the edge.
            arena.unblock(node.parent, node.edge);
            return;
        }
        if proven == Proven::Draw {
            arena.draw(node.parent, node.edge);
        } else {
            arena.close(node.parent, node.edge);
        }
        proven = conclude(arena, node.parent, proven);
        id = node.parent;
    }
}

/// Counts one more proven child of `parent` and returns the proven result of the parent, or [`Proven::Unknown`] if the
/// child proves nothing new.
fn conclude(arena: &mut Arena, parent: NodeId, child: Proven) -> Proven {
    let node = arena.node_mut(parent);
    node.unproven -= 1;
    node.has_draw |= child == Proven::Draw;
    if node.proven != Proven::Unknown {
        return Proven::Unknown;
    }
    match (child, node.unproven, node.has_draw) {
        (Proven::Loss, _, _) => Proven::Win,
        (_, 0, true) => Proven::Draw,
        (_, 0, false) => Proven::Loss,
        _ => Proven::Unknown,
    }
}
