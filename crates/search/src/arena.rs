//! Stores the nodes and edges of a tree, and tracks the edges available to descents.
//!
//! Nodes are created on expansion, so an unvisited child costs only one edge. Children are created after the parent,
//! so node ids are in topological order. Compaction relies on this order.

use game::Action;

use crate::edges::{EdgeId, Edges, NodeId, Status, UNAVAILABLE, UNVISITED};
use crate::proven::Proven;
use crate::value_range::Bounds;

/// An expanded or terminal node of 64 bytes (one cache line). Values are from the view of the player to move at the
/// node, unless a field says otherwise.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Node {
    pub(crate) parent: NodeId,
    /// The edge from the parent to this node.
    pub(crate) edge: EdgeId,
    pub(crate) first_edge: EdgeId,
    /// The number of edges; 0 for terminal nodes.
    pub(crate) edge_count: u16,
    /// The number of open edges, through which a descent can currently reach a leaf.
    pub(crate) available: u16,
    /// The number of edges without a proven child.
    pub(crate) unproven: u16,
    pub(crate) proven: Proven,
    /// True for a chance node: the edges are outcomes, and the priors are probabilities.
    pub(crate) is_chance: bool,
    /// True if a child is a proven draw, so that the value of this node is at least 0.
    pub(crate) has_draw: bool,
    /// Completed visits, including the evaluation of this node.
    pub(crate) visits: u32,
    pub(crate) in_flight: u32,
    pub(crate) value_sum: f64,
    /// The mean of the backed-up values; NaN before the first backup.
    pub(crate) mean_value: f32,
    /// The value from the evaluator, or the result of a terminal node.
    pub(crate) network_value: f32,
    /// The reward of the action into this node, from the view of the player who took the action.
    pub(crate) reward: f32,
    /// The factor that converts a value at this node to the view of the player who moved to this node.
    pub(crate) discount: f32,
    /// The total prior of the visited children.
    visited_mass: f32,
    /// The square root of `visited_mass`, cached because every descent through this node needs the square root, and few
    /// change `visited_mass`.
    pub(crate) visited_mass_sqrt: f32,
}

impl Node {
    /// Returns true if the node is terminal or proven, so that a descent stops here.
    #[inline]
    pub(crate) fn is_terminal(&self) -> bool {
        self.edge_count == 0 || self.proven != Proven::Unknown
    }

    /// Returns the edges, in ascending order of action.
    #[inline]
    pub(crate) fn edges(&self) -> impl ExactSizeIterator<Item = EdgeId> + use<> {
        (self.first_edge.0..self.first_edge.0 + u32::from(self.edge_count)).map(EdgeId)
    }

    /// Returns the edge at index `at`, counted from 0 in ascending order of action.
    #[inline]
    pub(crate) fn edge_at(&self, at: usize) -> EdgeId {
        EdgeId(self.first_edge.0 + u32::try_from(at).expect("actions are 16-bit"))
    }

    /// Returns the value for the player to move: the exact value if proven, else the mean of the backed-up values. A
    /// proven draw among the children raises a negative mean to 0 (the lower bound of Cazenave and Saffidine 2010,
    /// "Score bounded Monte-Carlo tree search").
    #[inline]
    pub(crate) fn value(&self) -> f32 {
        match self.proven.value() {
            Some(exact) => exact,
            None if self.has_draw => self.mean_value.max(0.0),
            None => self.mean_value,
        }
    }

    /// Converts one visit in flight to a completed visit with the value `value`.
    #[inline]
    pub(crate) fn complete_visit(&mut self, value: f32) {
        self.visits += 1;
        self.in_flight -= 1;
        self.value_sum += f64::from(value);
        self.mean_value = self.value_sum as f32 / self.visits as f32;
    }

    /// Sets the prior sum of the visited children and the cached square root.
    #[inline]
    pub(crate) fn set_visited_mass(&mut self, mass: f32) {
        self.visited_mass = mass;
        self.visited_mass_sqrt = mass.sqrt();
    }

    /// Converts a value at this node to the view of the player who moved to this node, and adds the reward.
    #[inline]
    pub(crate) fn value_to_parent(&self, value: f32) -> f32 {
        self.reward + self.discount * value
    }

    /// Returns true if a proof of this node counts towards a proof of the parent: players alternate and no reward is
    /// paid.
    pub(crate) fn proves_parent(&self) -> bool {
        self.discount == -1.0 && self.reward == 0.0
    }
}

/// All nodes and edges of a tree.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Edges,
    pub(crate) bounds: Bounds,
    /// True if the tree may contain chance nodes. Otherwise descents and backups skip the checks for chance nodes.
    pub(crate) has_chance: bool,
}

impl Arena {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { nodes: Vec::new(), edges: Edges::default(), bounds, has_chance: false }
    }

    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.edges.truncate(EdgeId(0));
        self.bounds.clear();
        self.has_chance = false;
    }

    #[inline]
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    #[inline]
    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// Adds a node, links the node to the parent, and counts the visit that creates the node as in flight.
    #[inline]
    pub(crate) fn push(&mut self, link: Link, network_value: f32, actions: &[Action], priors: &[f32]) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("a tree has fewer than 2^32 nodes"));
        let first_edge = self.edges.next();
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
            is_chance: false,
            has_draw: false,
            visits: 0,
            in_flight: 1,
            value_sum: 0.0,
            mean_value: f32::NAN,
            network_value,
            reward: link.reward,
            discount: link.discount,
            visited_mass: 0.0,
            visited_mass_sqrt: 0.0,
        });
        if link.edge != EdgeId::NONE {
            *self.edges.child_mut(link.edge) = id;
            let mass = self.node(link.parent).visited_mass + self.edges.prior(link.edge);
            self.node_mut(link.parent).set_visited_mass(mass);
        }
        id
    }

    /// Adds a chance node, with the outcomes as actions. `value` is NaN for an unevaluated chance node.
    pub(crate) fn push_chance(&mut self, link: Link, value: f32, outcomes: &[Action], probabilities: &[f32]) -> NodeId {
        assert_ne!(link.edge, EdgeId::NONE, "the root is not a chance node");
        assert!(!outcomes.is_empty(), "a chance node has an outcome");
        assert_eq!(outcomes.len(), probabilities.len(), "each outcome has a probability");
        let id = self.push(link, value, outcomes, probabilities);
        self.node_mut(id).is_chance = true;
        self.has_chance = true;
        id
    }

    /// Copies the value of the child to the edge, where the selection rules read the value. Does nothing for blocked
    /// and closed edges.
    #[inline]
    pub(crate) fn refresh(&mut self, edge: EdgeId) {
        let value = match self.edges.child(edge) {
            NodeId::NONE => UNVISITED,
            child => {
                let node = self.node(child);
                node.value_to_parent(node.value())
            }
        };
        self.edges.show(edge, value);
    }

    /// Reverts the in-flight visit of a cancelled descent at the node `id` and on the edge into the node.
    pub(crate) fn leave(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        node.in_flight -= 1;
        let edge = node.edge;
        if edge != EdgeId::NONE {
            self.edges.leave(edge);
        }
    }

    /// Blocks an edge because every leaf below it is in flight. Also blocks each ancestor edge into a node without an
    /// available edge. At a chance node one blocked outcome blocks the whole node. Otherwise the remaining outcomes
    /// would receive the visits, and the visit shares would not follow the probabilities.
    #[inline]
    pub(crate) fn block(&mut self, mut parent: NodeId, mut edge: EdgeId) {
        while self.edges.status(edge) == Status::Open {
            *self.edges.status_mut(edge) = Status::Blocked;
            *self.edges.value_mut(edge) = UNAVAILABLE;
            let node = self.node_mut(parent);
            node.available -= 1;
            if (node.available > 0 && !node.is_chance) || parent == NodeId::ROOT || node.proven != Proven::Unknown {
                return;
            }
            (edge, parent) = (node.edge, node.parent);
        }
    }

    /// Reopens a blocked edge and the ancestor edges blocked as a consequence.
    pub(crate) fn unblock(&mut self, mut parent: NodeId, mut edge: EdgeId) {
        while self.open(parent, edge) {
            let node = self.node(parent);
            (edge, parent) = (node.edge, node.parent);
        }
    }

    /// Reopens the edge into a leaf and the ancestor edges blocked as a consequence.
    #[inline]
    pub(crate) fn unblock_leaf(&mut self, parent: NodeId, edge: EdgeId) {
        if self.open(parent, edge) {
            let node = self.node(parent);
            self.unblock(node.parent, node.edge);
        }
    }

    /// Reopens one blocked edge. Returns true if this makes the parent available and the parent is not the root.
    #[inline]
    fn open(&mut self, parent: NodeId, edge: EdgeId) -> bool {
        if self.edges.status(edge) != Status::Blocked {
            return false;
        }
        *self.edges.status_mut(edge) = Status::Open;
        self.refresh(edge);
        let node = self.node_mut(parent);
        node.available += 1;
        let available = if node.is_chance { node.edge_count } else { 1 };
        node.available == available && parent != NodeId::ROOT
    }

    /// Closes an edge permanently, because the child is a proven win or loss.
    pub(crate) fn close(&mut self, parent: NodeId, edge: EdgeId) {
        self.end_leaves(parent, edge, Status::Closed);
        *self.edges.value_mut(edge) = UNAVAILABLE;
    }

    /// Marks an edge as drawn and copies the exact value of the child, a proven draw.
    pub(crate) fn draw(&mut self, parent: NodeId, edge: EdgeId) {
        self.end_leaves(parent, edge, Status::Drawn);
        self.refresh(edge);
    }

    /// Sets the status of an edge below which no leaf is left, and blocks the ancestor edges into nodes without an
    /// available edge.
    fn end_leaves(&mut self, parent: NodeId, edge: EdgeId, status: Status) {
        let before = std::mem::replace(self.edges.status_mut(edge), status);
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

/// The link from a new node to the parent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) parent: NodeId,
    pub(crate) edge: EdgeId,
    pub(crate) reward: f32,
    pub(crate) discount: f32,
}

impl Link {
    /// The link of a root, which has no parent.
    pub(crate) const NONE: Self = Self { parent: NodeId::NONE, edge: EdgeId::NONE, reward: 0.0, discount: 1.0 };
}
