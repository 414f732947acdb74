//! Requests of the tree to its driver.

use game::Action;

use crate::edges::{EdgeId, NodeId};

/// The result of one descent.
#[derive(Debug)]
pub enum Selection {
    /// A leaf to expand: answer or cancel the request.
    Leaf(Request),
    /// A terminal or proven node was reached and backed up; the simulation is complete.
    Completed,
    /// Nothing can be selected now: the search is finished, the simulations that remain are all in flight, or every
    /// descent would meet a leaf in flight.
    Busy,
}

/// One leaf in flight: take [`action`](Self::action) in [`Tree::parent_state`](crate::Tree::parent_state).
///
/// It holds a visit in the tree until it is given back to [`Tree::answer`](crate::Tree::answer) or
/// [`Tree::cancel`](crate::Tree::cancel), so it can be neither copied nor forgotten for good.
#[derive(Debug)]
#[must_use = "a request holds a visit in the tree until it is answered or cancelled"]
pub struct Request {
    /// The action that leads from the parent to the leaf.
    pub action: Action,
    pub(crate) parent: NodeId,
    pub(crate) edge: EdgeId,
    /// The number of its root: a request does not outlive a reset or an advance.
    pub(crate) generation: u64,
}
