//! Requests of the tree to its driver, and answers that become nodes.

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

/// Requests the evaluation of one leaf in flight: take [`action`](Self::action) in
/// [`Tree::parent_state`](crate::Tree::parent_state).
///
/// It holds a visit in the tree until it is returned to [`Tree::answer`](crate::Tree::answer) or
/// [`Tree::cancel`](crate::Tree::cancel), so it cannot be copied and must not be dropped.
#[derive(Debug)]
#[must_use = "a request holds a visit in the tree until it is answered or cancelled"]
pub struct Request {
    /// The action that leads from the parent to the leaf; where the parent is a chance node, the action that led to it.
    pub action: Action,
    /// The outcome that chance has at a parent that is a chance node.
    pub outcome: Option<Action>,
    pub(crate) parent: NodeId,
    pub(crate) edge: EdgeId,
    /// The generation of its root: a request is invalid after a reset or an advance.
    pub(crate) generation: u64,
}

/// The answer to a request: the child or root that the driver expanded, with its state, priors and value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expansion<'a> {
    /// The episode continues, and an evaluator has evaluated the position.
    Evaluated {
        /// The legal actions, ascending; at least one.
        actions: &'a [Action],
        /// The prior of each action, in the same order; they sum to one.
        priors: &'a [f32],
        /// The value to the player to move.
        value: f32,
    },
    /// Chance chooses what follows, and a model has evaluated the afterstate. No root is one. See
    /// [`Tree::branch`](crate::Tree::branch) for an afterstate without an evaluation.
    Chance {
        /// The outcomes, ascending; at least one. They are the actions of chance.
        outcomes: &'a [Action],
        /// The probability of each outcome, in the same order; they sum to one.
        probabilities: &'a [f32],
        /// The value of the afterstate, to the player whose action led to it.
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

/// Adds the node an expansion describes; returns it with the result it proves by itself.
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
