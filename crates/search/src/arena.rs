//! Nodes and edges: where everything lies, and which edges a descent may take.
//!
//! A node is made when it is expanded, never before, so an unvisited child costs only its edge. The edges of a node
//! are neighbours; what the selection rules read (value, count, prior) lies in arrays of its own. Children are made
//! after their parents, which keeps ids in topological order: compaction relies on it.

use game::Action;

use crate::proven::Proven;
use crate::value_range::Bounds;

/// The place of a node. The root is always [`NodeId::ROOT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId(pub(crate) u32);

/// The place of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EdgeId(pub(crate) u32);

impl NodeId {
    pub(crate) const ROOT: Self = Self(0);
    /// No node: the parent of the root, the child of an unexpanded edge.
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl EdgeId {
    /// No edge: what leads to the root.
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// An expanded or terminal node. Values are to move here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) parent: NodeId,
    /// The edge of the parent that leads here.
    pub(crate) edge: EdgeId,
    pub(crate) first_edge: EdgeId,
    /// Zero for terminal nodes.
    pub(crate) edge_count: u16,
    /// Edges behind which a descent may find a leaf now: the open ones.
    pub(crate) available: u16,
    /// Edges whose child is not proven.
    pub(crate) unproven: u16,
    pub(crate) proven: Proven,
    /// Whether some child is a proven draw: the player to move need not be worth less.
    pub(crate) has_draw: bool,
    /// Completed visits; the node's own evaluation is the first.
    pub(crate) visits: u32,
    pub(crate) in_flight: u32,
    pub(crate) value_sum: f64,
    /// What the evaluator said, or the result of a terminal node.
    pub(crate) network_value: f32,
    /// Paid on the way here, to the player who moved.
    pub(crate) reward: f32,
    /// What a value here is multiplied by to be the mover's.
    pub(crate) discount: f32,
    /// Sum of the priors of the children visited.
    pub(crate) visited_mass: f32,
}

impl Node {
    /// Whether a descent ends here.
    #[inline]
    pub(crate) fn is_terminal(&self) -> bool {
        self.edge_count == 0 || self.proven != Proven::Unknown
    }

    /// The edges, as a range into the arrays of [`Edges`].
    #[inline]
    pub(crate) fn edges(&self) -> std::ops::Range<usize> {
        let first = self.first_edge.index();
        first..first + usize::from(self.edge_count)
    }

    /// The edge of the node's action number `at`.
    pub(crate) fn edge_at(&self, at: usize) -> EdgeId {
        EdgeId(self.first_edge.0 + u32::try_from(at).expect("actions are 16-bit"))
    }

    /// The value to move: exact if proven, else the mean of what came back, which is no less than a draw where a draw is
    /// certain (the lower bound of Cazenave and Saffidine 2010, "Score bounded Monte-Carlo tree search").
    #[inline]
    pub(crate) fn value(&self) -> f32 {
        match self.proven.value() {
            Some(exact) => exact,
            None if self.has_draw => self.mean_value().max(0.0),
            None => self.mean_value(),
        }
    }

    /// The mean of the values backed up.
    #[inline]
    pub(crate) fn mean_value(&self) -> f32 {
        self.value_sum as f32 / self.visits as f32
    }

    /// The value here as seen by the player who moved here, reward included.
    #[inline]
    pub(crate) fn value_to_parent(&self, value: f32) -> f32 {
        self.reward + self.discount * value
    }

    /// Whether a proof of this node says something about its parent.
    pub(crate) fn proves_parent(&self) -> bool {
        self.discount == -1.0 && self.reward == 0.0
    }
}

/// Whether a descent may take an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Open,
    /// Not now: everything behind it is in flight.
    Blocked,
    /// Its child is a proven draw. Descents end there, with the exact value; they find no leaf, so such an edge does not
    /// keep a node available whose other edges are blocked.
    Drawn,
    /// Never again: its child is a proven win or loss.
    Closed,
}

/// The value of an edge whose child was never visited.
pub(crate) const UNVISITED: f32 = f32::NAN;
/// The value of an edge that may not be taken; it loses every comparison.
pub(crate) const UNAVAILABLE: f32 = f32::NEG_INFINITY;

/// Edges, as parallel arrays.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    /// Action value to the player who chooses, or [`UNVISITED`], or [`UNAVAILABLE`].
    pub(crate) value: Vec<f32>,
    /// Visits completed and in flight; exact up to 2^24.
    pub(crate) count: Vec<f32>,
    pub(crate) prior: Vec<f32>,
    pub(crate) action: Vec<Action>,
    pub(crate) child: Vec<NodeId>,
    pub(crate) status: Vec<Status>,
}

/// All nodes and edges of a tree.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Edges,
    pub(crate) bounds: Bounds,
}

impl Arena {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { nodes: Vec::new(), edges: Edges::default(), bounds }
    }

    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.edges.truncate(0);
        self.bounds.clear();
    }

    #[inline]
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    #[inline]
    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// Adds a node with one visit in flight (the one that made it) and links it to its parent.
    pub(crate) fn push(&mut self, link: Link, network_value: f32, actions: &[Action], priors: &[f32]) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("a tree has fewer than 2^32 nodes"));
        let first_edge = EdgeId(u32::try_from(self.edges.action.len()).expect("a tree has fewer than 2^32 edges"));
        let edge_count = u16::try_from(actions.len()).expect("actions are 16-bit");
        self.edges.extend(actions, priors);
        self.nodes.push(Node {
            parent: link.parent,
            edge: link.edge,
            first_edge,
            edge_count,
            available: edge_count,
            unproven: edge_count,
            proven: Proven::Unknown,
            has_draw: false,
            visits: 0,
            in_flight: 1,
            value_sum: 0.0,
            network_value,
            reward: link.reward,
            discount: link.discount,
            visited_mass: 0.0,
        });
        if link.edge != EdgeId::NONE {
            self.edges.child[link.edge.index()] = id;
        }
        id
    }

    /// Recomputes what the selection rules see of an edge, unless it may not be taken.
    #[inline]
    pub(crate) fn refresh(&mut self, edge: EdgeId) {
        let at = edge.index();
        if matches!(self.edges.status[at], Status::Blocked | Status::Closed) {
            return;
        }
        self.edges.value[at] = match self.edges.child[at] {
            NodeId::NONE => UNVISITED,
            child => {
                let node = self.node(child);
                node.value_to_parent(node.value())
            }
        };
    }

    /// Counts a descent through `node`: as a visit, but not in the value (WU-UCT, Liu et al. 2020).
    #[inline]
    pub(crate) fn enter(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        node.in_flight += 1;
        let edge = node.edge;
        if edge != EdgeId::NONE {
            self.edges.count[edge.index()] += 1.0;
        }
    }

    /// Takes back a descent through `node` that brought nothing.
    pub(crate) fn leave(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        node.in_flight -= 1;
        let edge = node.edge;
        if edge != EdgeId::NONE {
            self.edges.count[edge.index()] -= 1.0;
        }
    }

    /// Shuts an edge while all behind it is in flight, and its ancestors if nothing else is left to them.
    pub(crate) fn block(&mut self, mut parent: NodeId, mut edge: EdgeId) {
        while self.edges.status[edge.index()] == Status::Open {
            self.edges.status[edge.index()] = Status::Blocked;
            self.edges.value[edge.index()] = UNAVAILABLE;
            let node = self.node_mut(parent);
            node.available -= 1;
            if node.available > 0 || parent == NodeId::ROOT || node.proven != Proven::Unknown {
                return;
            }
            (edge, parent) = (node.edge, node.parent);
        }
    }

    /// Opens a blocked edge again, and the ancestors that were blocked for its sake.
    pub(crate) fn unblock(&mut self, mut parent: NodeId, mut edge: EdgeId) {
        while self.edges.status[edge.index()] == Status::Blocked {
            self.edges.status[edge.index()] = Status::Open;
            self.refresh(edge);
            let node = self.node_mut(parent);
            node.available += 1;
            if node.available > 1 || parent == NodeId::ROOT {
                return;
            }
            (edge, parent) = (node.edge, node.parent);
        }
    }

    /// Shuts an edge for good: its child is a proven win or loss.
    pub(crate) fn close(&mut self, parent: NodeId, edge: EdgeId) {
        self.end_leaves(parent, edge, Status::Closed);
        self.edges.value[edge.index()] = UNAVAILABLE;
    }

    /// Gives an edge the exact value of its child for good, which is a proven draw.
    pub(crate) fn draw(&mut self, parent: NodeId, edge: EdgeId) {
        self.end_leaves(parent, edge, Status::Drawn);
        self.refresh(edge);
    }

    /// Notes that no descent through an edge finds a leaf any more.
    fn end_leaves(&mut self, parent: NodeId, edge: EdgeId, status: Status) {
        let before = std::mem::replace(&mut self.edges.status[edge.index()], status);
        if before != Status::Open {
            return;
        }
        let node = self.node_mut(parent);
        node.available -= 1;
        if node.available == 0 && parent != NodeId::ROOT && node.proven == Proven::Unknown {
            let (edge, parent) = (node.edge, node.parent);
            self.block(parent, edge);
        }
    }
}

impl Edges {
    fn extend(&mut self, actions: &[Action], priors: &[f32]) {
        let total = self.action.len() + actions.len();
        self.action.extend_from_slice(actions);
        self.prior.extend_from_slice(priors);
        self.value.resize(total, UNVISITED);
        self.count.resize(total, 0.0);
        self.child.resize(total, NodeId::NONE);
        self.status.resize(total, Status::Open);
    }

    /// Moves edges to a lower place.
    pub(crate) fn copy_within(&mut self, from: std::ops::Range<usize>, to: usize) {
        self.action.copy_within(from.clone(), to);
        self.prior.copy_within(from.clone(), to);
        self.value.copy_within(from.clone(), to);
        self.count.copy_within(from.clone(), to);
        self.child.copy_within(from.clone(), to);
        self.status.copy_within(from, to);
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.action.truncate(len);
        self.prior.truncate(len);
        self.value.truncate(len);
        self.count.truncate(len);
        self.child.truncate(len);
        self.status.truncate(len);
    }
}

/// How a new node hangs on its parent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) parent: NodeId,
    pub(crate) edge: EdgeId,
    pub(crate) reward: f32,
    pub(crate) discount: f32,
}

impl Link {
    /// What a root hangs on.
    pub(crate) const NONE: Self = Self { parent: NodeId::NONE, edge: EdgeId::NONE, reward: 0.0, discount: 1.0 };
}
