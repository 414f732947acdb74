//! Turning an answer into a node.

use game::Action;

use crate::arena::{Arena, Link};
use crate::edges::NodeId;
use crate::proven::Proven;

/// A child or a root, as the driver describes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expansion<'a> {
    /// The episode goes on, and an evaluator has looked at it.
    Evaluated {
        /// The legal actions, ascending; at least one.
        actions: &'a [Action],
        /// The prior of each action, in the same order; they sum to one.
        priors: &'a [f32],
        /// The value to the player to move.
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
            Expansion::Evaluated { value, .. } | Expansion::Terminal { value } => value,
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
        Expansion::Terminal { .. } => (arena.push(link, value, &[], &[]), Proven::from_value(value)),
    }
}
