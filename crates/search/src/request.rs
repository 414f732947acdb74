//! Requests of the tree to a driver, and answers that become nodes.

use game::Action;

use crate::arena::{Arena, Link};
use crate::edges::{EdgeId, NodeId};
use crate::proven::Proven;

/// The result of one descent.
#[derive(Debug)]
pub enum Selection {
    /// A leaf to expand: answer or cancel the request.
    Leaf(Request),
    /// A terminal or proven node was reached and backed up; the simulation is complete.
    Completed,
    /// Nothing can be selected now: the search is finished, the remaining simulations are all in flight, or every
    /// descent would meet a leaf in flight.
    Busy,
}

/// A request to evaluate one leaf: take [`action`](Self::action) in [`Tree::parent_state`](crate::Tree::parent_state).
///
/// It holds a visit in the tree until it is returned to [`Tree::answer`](crate::Tree::answer) or
/// [`Tree::cancel`](crate::Tree::cancel), so it cannot be copied and must not be dropped.
#[derive(Debug)]
#[must_use = "a request holds a visit in the tree until it is answered or cancelled"]
pub struct Request {
    /// The action from the parent to the leaf; at a chance node, the action that led to the chance node.
    pub action: Action,
    /// The outcome that chance has if the parent is a chance node; `None` elsewhere.
    pub outcome: Option<Action>,
    pub(crate) parent: NodeId,
    pub(crate) edge: EdgeId,
    /// The generation of the root: a request is invalid after a reset or an advance.
    pub(crate) generation: u64,
}

/// The answer to a request, or a new root: actions, priors and value of the node that the driver expanded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expansion<'a> {
    /// The episode continues, and an evaluator has evaluated the position.
    Evaluated {
        /// The legal actions, ascending; at least one.
        actions: &'a [Action],
        /// The prior of each action, in the same order; they sum to one.
        priors: &'a [f32],
        /// The evaluator's value, to the player to move.
        value: f32,
    },
    /// Chance chooses the next step, and a model has evaluated the afterstate. A root is never a chance node. See
    /// [`Tree::branch`](crate::Tree::branch) for an afterstate without an evaluation.
    Chance {
        /// The outcomes, ascending; at least one. They are the actions of chance.
        outcomes: &'a [Action],
        /// The probability of each outcome, in the same order; they sum to one.
        probabilities: &'a [f32],
        /// The value of the afterstate, to the player who took the action before it.
        value: f32,
    },
    /// The episode ends here.
    Terminal {
        /// The result to the player to move.
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

/// Adds the node that an expansion describes; returns the node id and the result that the expansion alone proves.
#[inline]
pub(crate) fn expand(arena: &mut Arena, link: Link, expansion: Expansion<'_>) -> (NodeId, Proven) {
    let value = expansion.value();
    debug_assert!(value.is_finite(), "the evaluator's border refuses {value}");
    match expansion {
        Expansion::Evaluated { actions, priors, .. } => {
            assert!(!actions.is_empty(), "a node that goes on has a legal action");
            assert_eq!(actions.len(), priors.len(), "each action has a prior");
            debug_assert!(actions.is_sorted(), "actions ascend, so that ties go to the lowest");
            (arena.push(link, value, actions, priors), Proven::Unknown)
        }
        Expansion::Chance { outcomes, probabilities, .. } => {
            (arena.push_chance(link, value, outcomes, probabilities), Proven::Unknown)
        }
        Expansion::Terminal { .. } => (arena.push(link, value, &[], &[]), Proven::from_value(value)),
    }
}
