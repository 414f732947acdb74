//! Stores the statistics of node edges (actions) in groups of eight, called octets.
//!
//! The edges of a node occupy consecutive octets; unused lanes of the last octet are closed. An octet stores each
//! quantity in a separate array, so a selection rule scores eight actions with a few vector instructions. All data of
//! eight actions fits in three cache lines.

use std::ops::Range;

use game::Action;

/// The index of a node in the arena. The root is always [`NodeId::ROOT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId(pub(crate) u32);

impl NodeId {
    pub(crate) const ROOT: Self = Self(0);
    /// No node: the parent of the root, or the child of an unexpanded edge.
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of edges in an octet.
pub(crate) const LANES: usize = 8;

/// The index of an edge: [`LANES`] times the index of the octet, plus the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EdgeId(pub(crate) u32);

impl EdgeId {
    /// No edge: the root has no incoming edge.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// Returns the first edge of an octet.
    #[inline]
    fn of_octet(octet: usize) -> Self {
        Self(u32::try_from(octet * LANES).expect("a tree has fewer than 2^32 edges"))
    }

    /// Returns the edge at the lane `lane` of the octet `octet`.
    #[inline]
    pub(crate) fn new(octet: usize, lane: usize) -> Self {
        Self(Self::of_octet(octet).0 + lane as u32)
    }

    #[inline]
    pub(crate) fn octet(self) -> usize {
        self.0 as usize / LANES
    }

    #[inline]
    pub(crate) fn lane(self) -> usize {
        self.0 as usize % LANES
    }
}

/// The status of an edge: whether a descent may take the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Open,
    /// Temporarily unavailable: every leaf below the edge is in flight.
    Blocked,
    /// The child is a proven draw. Descents stop at the child and back up the exact value. No leaf is reached, so a
    /// drawn edge alone does not make the node available.
    Drawn,
    /// Permanently unavailable: the child is a proven win or loss.
    Closed,
}

/// The stored value of an edge without a visited child.
pub(crate) const UNVISITED: f32 = f32::NAN;
/// The stored value of a blocked or closed edge: negative infinity, so that no selection rule ever picks the edge.
pub(crate) const UNAVAILABLE: f32 = f32::NEG_INFINITY;

/// Eight edges of one node in three cache lines, 24 bytes for each edge. pUCT reads only the first cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Octet {
    /// Action value for the player to move at the node, [`UNVISITED`] or [`UNAVAILABLE`].
    pub(crate) value: [f32; LANES],
    /// `P / (1 + n)` with prior `P` and visit count `n`, cached so that the division runs once per change, not once per
    /// read.
    pub(crate) share: [f32; LANES],
    /// Visit count `n`: completed visits plus visits in flight; exact up to 2^24.
    pub(crate) count: [f32; LANES],
    pub(crate) prior: [f32; LANES],
    pub(crate) child: [NodeId; LANES],
    pub(crate) action: [Action; LANES],
    pub(crate) status: [Status; LANES],
}

impl Octet {
    /// An octet of eight unused lanes, all closed.
    const PADDING: Self = Self {
        value: [UNAVAILABLE; LANES],
        share: [0.0; LANES],
        count: [0.0; LANES],
        prior: [0.0; LANES],
        child: [NodeId::NONE; LANES],
        action: [Action(0); LANES],
        status: [Status::Closed; LANES],
    };

    #[inline]
    fn set_count(&mut self, lane: usize, count: f32) {
        self.count[lane] = count;
        self.share[lane] = self.prior[lane] / (1.0 + count);
    }

    /// Template octets of unvisited edges without actions and priors, indexed by the number of edges.
    const UNVISITED: [Self; LANES + 1] = {
        let mut octets = [Self::PADDING; LANES + 1];
        let mut len = 0;
        while len <= LANES {
            let mut lane = 0;
            while lane < len {
                octets[len].value[lane] = UNVISITED;
                octets[len].status[lane] = Status::Open;
                lane += 1;
            }
            len += 1;
        }
        octets
    };
}

/// All edges of a tree.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    octets: Vec<Octet>,
}

impl Edges {
    /// Builds the edges of one node, for tests of the selection rules.
    #[cfg(test)]
    pub(crate) fn of(values: &[f32], counts: &[f32], priors: &[f32]) -> Self {
        let mut edges = Self::default();
        edges.extend(&vec![Action(0); values.len()], priors);
        for ((edge, &value), &count) in (0..).map(EdgeId).zip(values).zip(counts) {
            let (octet, lane) = (&mut edges.octets[edge.octet()], edge.lane());
            octet.value[lane] = value;
            octet.set_count(lane, count);
        }
        edges
    }

    /// Returns every octet of the tree.
    #[cfg(test)]
    pub(crate) fn all(&self) -> &[Octet] {
        &self.octets
    }

    #[inline]
    pub(crate) fn value_mut(&mut self, edge: EdgeId) -> &mut f32 {
        &mut self.octets[edge.octet()].value[edge.lane()]
    }

    #[inline]
    pub(crate) fn child(&self, edge: EdgeId) -> NodeId {
        self.octets[edge.octet()].child[edge.lane()]
    }

    #[inline]
    pub(crate) fn child_mut(&mut self, edge: EdgeId) -> &mut NodeId {
        &mut self.octets[edge.octet()].child[edge.lane()]
    }

    #[inline]
    pub(crate) fn status(&self, edge: EdgeId) -> Status {
        self.octets[edge.octet()].status[edge.lane()]
    }

    #[inline]
    pub(crate) fn status_mut(&mut self, edge: EdgeId) -> &mut Status {
        &mut self.octets[edge.octet()].status[edge.lane()]
    }

    #[inline]
    pub(crate) fn count(&self, edge: EdgeId) -> f32 {
        self.octets[edge.octet()].count[edge.lane()]
    }

    #[cfg(test)]
    pub(crate) fn value(&self, edge: EdgeId) -> f32 {
        self.octets[edge.octet()].value[edge.lane()]
    }

    #[cfg(test)]
    pub(crate) fn share(&self, edge: EdgeId) -> f32 {
        self.octets[edge.octet()].share[edge.lane()]
    }

    #[inline]
    pub(crate) fn prior(&self, edge: EdgeId) -> f32 {
        self.octets[edge.octet()].prior[edge.lane()]
    }

    pub(crate) fn set_prior(&mut self, edge: EdgeId, prior: f32) {
        let (octet, lane) = (&mut self.octets[edge.octet()], edge.lane());
        octet.prior[lane] = prior;
        octet.set_count(lane, octet.count[lane]);
    }

    /// Decrements the visit count of an edge, to revert a descent.
    pub(crate) fn leave(&mut self, edge: EdgeId) {
        let (octet, lane) = (&mut self.octets[edge.octet()], edge.lane());
        octet.set_count(lane, octet.count[lane] - 1.0);
    }

    #[inline]
    pub(crate) fn action(&self, edge: EdgeId) -> Action {
        self.octets[edge.octet()].action[edge.lane()]
    }

    /// Increments the visit count of an edge for a descent and leaves the value unchanged (WU-UCT, Liu et al. 2020).
    /// Returns the child.
    #[inline]
    pub(crate) fn enter(&mut self, octet: usize, lane: usize) -> NodeId {
        let octet = &mut self.octets[octet];
        octet.set_count(lane, octet.count[lane] + 1.0);
        octet.child[lane]
    }

    /// Sets the value that the selection rules read for an edge. Does nothing for blocked and closed edges.
    #[inline]
    pub(crate) fn show(&mut self, edge: EdgeId, value: f32) {
        let octet = &mut self.octets[edge.octet()];
        if !matches!(octet.status[edge.lane()], Status::Blocked | Status::Closed) {
            octet.value[edge.lane()] = value;
        }
    }

    /// Returns the octets of the node whose `count` edges start at `first`. Unused lanes of the last octet are closed.
    #[inline]
    pub(crate) fn octets(&self, first: EdgeId, count: u16) -> &[Octet] {
        &self.octets[octets(first, count)]
    }

    /// Returns the id of the first edge that the next call to [`extend`](Self::extend) adds.
    #[inline]
    pub(crate) fn next(&self) -> EdgeId {
        EdgeId::of_octet(self.octets.len())
    }

    /// Adds the edges of one node, all unvisited.
    #[inline]
    pub(crate) fn extend(&mut self, actions: &[Action], priors: &[f32]) {
        for (actions, priors) in actions.chunks(LANES).zip(priors.chunks(LANES)) {
            self.octets.push(Octet::UNVISITED[actions.len()]);
            let octet = self.octets.last_mut().expect("an octet was pushed");
            for (slot, &action) in octet.action.iter_mut().zip(actions) {
                *slot = action;
            }
            for ((prior, share), &given) in octet.prior.iter_mut().zip(&mut octet.share).zip(priors) {
                (*prior, *share) = (given, given);
            }
        }
    }

    /// Returns the size of the edges in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.octets[..])
    }

    /// Moves the `count` edges of a node from `first` on to the lower index `to`. Both `first` and `to` must be the
    /// first edge of an octet. Returns the first edge of the octet after the moved edges.
    pub(crate) fn move_down(&mut self, first: EdgeId, count: u16, to: EdgeId) -> EdgeId {
        let from = octets(first, count);
        let end = to.octet() + from.len();
        self.octets.copy_within(from, to.octet());
        EdgeId::of_octet(end)
    }

    /// Drops `edge` and all later edges. `edge` must be the first of an octet.
    pub(crate) fn truncate(&mut self, edge: EdgeId) {
        self.octets.truncate(edge.octet());
    }
}

#[inline]
fn octets(first: EdgeId, count: u16) -> Range<usize> {
    first.octet()..first.octet() + usize::from(count).div_ceil(LANES)
}
