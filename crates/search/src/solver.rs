//! Propagation of proven results: a child lost for the player to move there wins for the parent; a parent is lost if
//! every child is won for the opponent.
//!
//! Winands, Björnsson and Saito 2008, extended by draws: a child that is a proven draw stays open to descents, with the
//! exact value, because the parent may be worth more or less. A proof propagates only where players alternate and no
//! reward is paid, and not through a chance node: one outcome proves nothing about the rest.

use crate::arena::Arena;
use crate::edges::NodeId;
use crate::proven::Proven;

/// Records that `id` is proven and propagates the proof to all ancestors that it proves.
#[inline]
pub(crate) fn prove(arena: &mut Arena, mut id: NodeId, mut proven: Proven) {
    while proven != Proven::Unknown {
        arena.node_mut(id).proven = proven;
        if id == NodeId::ROOT {
            return;
        }
        let node = *arena.node(id);
        if !node.proves_parent() || arena.node(node.parent).is_chance {
            // Descents may still stop at this node, so requests in flight below it must not block the edge to it.
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

/// Returns the result that one more proven child proves for the parent; [`Proven::Unknown`] if it proves nothing new.
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
