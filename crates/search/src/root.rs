//! A view of the root, for the driver that plays the move.

use game::Action;

use crate::arena::{Arena, Node};
use crate::edges::NodeId;
use crate::proven::Proven;
use crate::root_policy::{completed_values, edge_proven, edge_visits};

/// A look at an expanded root. Everything per action is in the order of [`actions`](Self::actions).
#[derive(Debug, Clone, Copy)]
pub struct RootView<'a> {
    arena: &'a Arena,
    actions: &'a [Action],
    priors: &'a [f32],
}

impl<'a> RootView<'a> {
    pub(crate) fn new(arena: &'a Arena, actions: &'a [Action], priors: &'a [f32]) -> Self {
        Self { arena, actions, priors }
    }

    /// The legal actions, ascending.
    #[must_use]
    pub fn actions(&self) -> &'a [Action] {
        self.actions
    }

    /// The network's priors, without noise.
    #[must_use]
    pub fn priors(&self) -> &'a [f32] {
        self.priors
    }

    /// Completed visits of each action.
    #[must_use]
    pub fn visit_counts(&self) -> Vec<u32> {
        self.node().edges().map(|edge| edge_visits(self.arena, edge)).collect()
    }

    /// The value of each action to the player to move: exact if proven, the mean of its visits, or the mixed value if
    /// it has none (completed Q, Danihelka et al. 2022).
    #[must_use]
    pub fn action_values(&self) -> Vec<f32> {
        let mut values = Vec::new();
        completed_values(self.arena, self.node(), &mut values);
        values
    }

    /// The proof of each action, as seen by the player to move at the root.
    #[must_use]
    pub fn action_proofs(&self) -> Vec<Proven> {
        self.node().edges().map(|edge| edge_proven(self.arena, edge)).collect()
    }

    /// The value to move of a policy over the actions: exact if proven, else `Σ π(a) · q(a)` with the completed action
    /// values (what policy improvement raises; Danihelka et al. 2022, section 2).
    ///
    /// With the search policy it is what the search expects. The mean over all visits is not: sequential halving spends
    /// many of them on actions that it then rejects, which would make every position look worse than its best play.
    #[must_use]
    pub fn value_under(&self, policy: &[f32]) -> f32 {
        let expected = || {
            let terms = policy.iter().zip(self.action_values()).map(|(&share, q)| f64::from(share) * f64::from(q));
            terms.sum::<f64>() as f32
        };
        self.node().proven.value().unwrap_or_else(expected)
    }

    /// The network's value to move.
    #[must_use]
    pub fn network_value(&self) -> f32 {
        self.node().network_value
    }

    /// The proof of the root.
    #[must_use]
    pub fn proven(&self) -> Proven {
        self.node().proven
    }

    /// Completed visits of all actions together.
    #[must_use]
    pub fn simulations(&self) -> u32 {
        self.node().visits - 1
    }

    fn node(&self) -> &'a Node {
        self.arena.node(NodeId::ROOT)
    }
}
