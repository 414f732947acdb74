//! Evaluation requests that a tree makes to a driver, and the responses, which become nodes.

use game::Action;

use crate::arena::{Arena, Link};
use crate::edges::{EdgeId, NodeId};
use crate::proven::Proven;

/// The result of one descent.
#[derive(Debug)]
pub enum Selection {
    /// A leaf to expand. The driver must answer or cancel the request.
    Leaf(Request),
    /// The descent reached a terminal or proven node and backed up the value. The simulation is complete.
    Completed,
    /// Nothing can be selected now: the search is finished, the remaining simulations are all in flight, or every
    /// reachable leaf is in flight.
    Busy,
}

/// A request to evaluate one leaf: take [`action`](Self::action) in [`Tree::parent_state`](crate::Tree::parent_state).
///
/// The request holds a visit in the tree until passed to [`Tree::answer`](crate::Tree::answer) or
/// [`Tree::cancel`](crate::Tree::cancel). It cannot be copied and must not be dropped.
#[derive(Debug)]
#[must_use = "a request holds a visit in the tree until it is answered or cancelled"]
pub struct Request {
    /// The action from the parent to the leaf. If the parent is a chance node, the action that led to the chance node.
    pub action: Action,
    /// The chance outcome if the parent is a chance node; otherwise `None`.
    pub outcome: Option<Action>,
    pub(crate) parent: NodeId,
    pub(crate) edge: EdgeId,
    /// The root generation of the tree at selection. A reset or advance invalidates the request.
    pub(crate) generation: u64,
}

/// The response to a request, or a new root: the actions, priors and value of the expanded node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expansion<'a> {
    /// A non-terminal position with an evaluation.
    Evaluated {
        /// The legal actions, at least one, in ascending order.
        actions: &'a [Action],
        /// The prior of each action, in the same order. The priors sum to 1.
        priors: &'a [f32],
        /// The value from the evaluator, for the player to move.
        value: f32,
    },
    /// A chance node: an afterstate evaluated by a model. A root is never a chance node. See
    /// [`Tree::branch`](crate::Tree::branch) for an afterstate without an evaluation.
    Chance {
        /// The chance outcomes, at least one, in ascending order.
        outcomes: &'a [Action],
        /// The probability of each outcome, in the same order. The probabilities sum to 1.
        probabilities: &'a [f32],
        /// The value of the afterstate, for the player who took the action into the afterstate.
        value: f32,
    },
    /// A terminal position, where the episode ends.
    Terminal {
        /// The result for the player to move.
        value: f32,
    },
}

impl Expansion<'_> {
    #[inline]
    fn value(&self) -> f32 {
        match *self {
            Expansion::Evaluated { value, .. } | Expansion::Chance { value, .. } | Expansion::Terminal { value } => {
                value
            }
        }
    }
}

/// Adds a node for an expansion. Returns the node id and, for a terminal expansion, the proven result.
#[inline]
pub(crate) fn expand(arena: &mut Arena, link: Link, expansion: Expansion<'_>) -> (NodeId, Proven) {
    let value = expansion.value();
    debug_assert!(value.is_finite(), "an evaluator returned the value {value}, which must be finite");
    match expansion {
        Expansion::Evaluated { actions, priors, .. } => {
            assert!(!actions.is_empty(), "a non-terminal node has a legal action");
            assert_eq!(actions.len(), priors.len(), "each action has a prior");
            debug_assert!(actions.is_sorted(), "actions are in ascending order");
            (arena.push(link, value, actions, priors), Proven::Unknown)
        }
        Expansion::Chance { outcomes, probabilities, .. } => {
            (arena.push_chance(link, value, outcomes, probabilities), Proven::Unknown)
        }
        Expansion::Terminal { .. } => (arena.push(link, value, &[], &[]), Proven::from_value(value)),
    }
}
