//! Subtree reuse: the child after the played action becomes the root, and the rest of the tree is dropped.

use crate::arena::Arena;
use crate::edges::{EdgeId, NodeId};

/// The new index of a node, and the distance by which the edges of the node move down.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    to: NodeId,
    edges_down: u32,
}

const DROPPED: Move = Move { to: NodeId::NONE, edges_down: 0 };

/// Moves the subtree of `new_root` to the front of the arena and drops all other nodes, edges and states.
///
/// Parents come before children, so a single pass determines the kept nodes and the new indices. No node or edge moves
/// to a higher index. `moves` is scratch memory.
pub(crate) fn keep_subtree<S>(arena: &mut Arena, states: &mut Vec<S>, new_root: NodeId, moves: &mut Vec<Move>) {
    moves.clear();
    moves.resize(arena.nodes.len(), DROPPED);
    let (mut nodes_kept, mut edges_kept) = (0_u32, EdgeId(0));
    for index in new_root.index()..arena.nodes.len() {
        let mut node = arena.nodes[index];
        if index == new_root.index() {
            (node.parent, node.edge, node.reward, node.discount) = (NodeId::NONE, EdgeId::NONE, 0.0, 1.0);
        } else {
            let parent = moves[node.parent.index()];
            if parent.to == NodeId::NONE {
                continue;
            }
            (node.parent, node.edge) = (parent.to, EdgeId(node.edge.0 - parent.edges_down));
            *arena.edges.child_mut(node.edge) = NodeId(nodes_kept);
        }
        moves[index] = Move { to: NodeId(nodes_kept), edges_down: node.first_edge.0 - edges_kept.0 };
        let end = arena.edges.move_down(node.first_edge, node.edge_count, edges_kept);
        (node.first_edge, edges_kept) = (edges_kept, end);
        arena.nodes[nodes_kept as usize] = node;
        nodes_kept += 1;
    }
    arena.nodes.truncate(nodes_kept as usize);
    arena.edges.truncate(edges_kept);
    let mut index = 0;
    states.retain(|_| {
        index += 1;
        moves[index - 1].to != NodeId::NONE
    });
}
