//! Search results at the root: scores, the search policy, and the action to play.
//!
//! Proven results always take precedence. Proven wins get the whole policy. Proven losses get probability 0 unless all
//! actions lose. If an action is a proven draw, actions with negative values get probability 0.

use game::Action;

use crate::arena::{Arena, Node};
use crate::completed_values::{MixedValue, Sigma, logit, softmax};
use crate::edges::{EdgeId, NodeId};
use crate::proven::Proven;
use crate::settings::ValueSpan;
use crate::value_range::{Rescale, Scale};

/// Returns the proven result of an edge, from the view of the player who chooses the edge.
pub(crate) fn edge_proven(arena: &Arena, edge: EdgeId) -> Proven {
    match arena.edges.child(edge) {
        NodeId::NONE => Proven::Unknown,
        child => {
            let node = arena.node(child);
            if node.proves_parent() { node.proven.reversed() } else { Proven::Unknown }
        }
    }
}

/// Returns the completed visits of an edge.
pub(crate) fn edge_visits(arena: &Arena, edge: EdgeId) -> u32 {
    match arena.edges.child(edge) {
        NodeId::NONE => 0,
        child => arena.node(child).visits,
    }
}

/// Returns the action value of an edge: exact if the child is proven, `None` before the first completed visit.
pub(crate) fn edge_value(arena: &Arena, edge: EdgeId) -> Option<f32> {
    match arena.edges.child(edge) {
        NodeId::NONE => None,
        child => {
            let node = arena.node(child);
            // A chance node has no value before the first outcome.
            (node.visits > 0).then(|| node.value_to_parent(node.value()))
        }
    }
}

/// Returns the value assigned to the unvisited actions of `node`. Proven losses do not count, as in the selection below
/// the root.
fn mixed_value(arena: &Arena, node: &Node) -> f32 {
    let mut mixed = MixedValue::default();
    for edge in node.edges().filter(|&edge| edge_proven(arena, edge) != Proven::Loss) {
        if let Some(value) = edge_value(arena, edge) {
            mixed.add(arena.edges.prior(edge), edge_visits(arena, edge) as f32, value);
        }
    }
    mixed.mix(node.network_value)
}

/// Replaces `values` with the completed action values of `node`, without rescaling.
pub(crate) fn completed_values(arena: &Arena, node: &Node, values: &mut Vec<f32>) {
    let unvisited = mixed_value(arena, node);
    values.clear();
    values.extend(node.edges().map(|edge| edge_value(arena, edge).unwrap_or(unvisited)));
}

/// Replaces `scores` with `logits + σ(completed Q)`, the logits of the improved policy. Values are rescaled as below
/// the root; board values are not rescaled.
pub(crate) fn improved_logits(arena: &Arena, node: &Node, sigma: Sigma, scores: &mut Vec<f32>) {
    completed_values(arena, node, scores);
    let scale = match sigma.span {
        _ if arena.bounds.is_board() => Scale::IDENTITY,
        ValueSpan::Node => spanning(scores),
        ValueSpan::Tree => arena.bounds.scale_or_flat(),
    };
    let visits_max = node.edges().map(|edge| edge_visits(arena, edge)).max().unwrap_or(0);
    let factor = sigma.factor(visits_max as f32);
    for (score, edge) in scores.iter_mut().zip(node.edges()) {
        *score = logit(arena.edges.prior(edge)) + factor * scale.apply(*score);
    }
}

/// Returns the scale that maps the least of `values` to 0 and the greatest to 1.
fn spanning(values: &[f32]) -> Scale {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let greatest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    Scale::spanning(least, greatest)
}

/// Returns a filter for the edges of `node` that the search may choose: only winning edges at a proven win, and all
/// edges at a proven loss. Elsewhere losing edges are excluded, and also edges of negative value next to a proven draw.
pub(crate) fn candidates(arena: &Arena, node: &Node) -> impl Fn(EdgeId) -> bool {
    let unvisited = mixed_value(arena, node);
    move |edge| match (node.proven, edge_proven(arena, edge)) {
        // Every action loses.
        (Proven::Loss, _) => true,
        (Proven::Win, proven) => proven == Proven::Win,
        (_, Proven::Loss) => false,
        _ => !node.has_draw || edge_value(arena, edge).unwrap_or(unvisited) >= 0.0,
    }
}

/// Replaces `policy` with the visit shares over the candidates, or with the normalised priors if no candidate is
/// visited.
pub(crate) fn visit_shares(arena: &Arena, node: &Node, policy: &mut Vec<f32>) {
    let is_candidate = candidates(arena, node);
    policy.clear();
    policy.extend(node.edges().map(|edge| if is_candidate(edge) { edge_visits(arena, edge) as f32 } else { 0.0 }));
    if policy.iter().all(|&visits| visits == 0.0) {
        for (share, edge) in policy.iter_mut().zip(node.edges()) {
            *share = if is_candidate(edge) { arena.edges.prior(edge).max(f32::MIN_POSITIVE) } else { 0.0 };
        }
    }
    let total: f64 = policy.iter().map(|&share| f64::from(share)).sum();
    for share in policy.iter_mut() {
        *share = (f64::from(*share) / total) as f32;
    }
}

/// Replaces `policy` with `softmax(logits + σ(completed Q))` over the candidates.
pub(crate) fn improved_policy(arena: &Arena, node: &Node, sigma: Sigma, policy: &mut Vec<f32>) {
    let is_candidate = candidates(arena, node);
    improved_logits(arena, node, sigma, policy);
    for (logit, edge) in policy.iter_mut().zip(node.edges()) {
        if !is_candidate(edge) {
            *logit = f32::NEG_INFINITY;
        }
    }
    softmax(policy);
}

/// Returns the candidate with the most completed visits. Ties go to the greater prior, then to the lowest action.
/// `None` at a terminal node.
pub(crate) fn most_visited(arena: &Arena, node: &Node) -> Option<EdgeId> {
    let is_candidate = candidates(arena, node);
    let rank = |edge: EdgeId| (edge_visits(arena, edge), arena.edges.prior(edge));
    let mut best: Option<EdgeId> = None;
    for edge in node.edges().filter(|&edge| is_candidate(edge)) {
        if best.is_none_or(|best| rank(edge) > rank(best)) {
            best = Some(edge);
        }
    }
    best
}

/// Returns true if the most visited candidate of `node` keeps a lead even if the second candidate receives all `left`
/// remaining visits.
pub(crate) fn is_decided(arena: &Arena, node: &Node, left: u32) -> bool {
    // With a proven draw, the candidates depend on the values, and the values may change with every visit.
    if node.has_draw {
        return false;
    }
    let is_candidate = candidates(arena, node);
    let (mut most, mut second) = (0, 0);
    for edge in node.edges().filter(|&edge| is_candidate(edge)) {
        let visits = edge_visits(arena, edge);
        second = second.max(visits.min(most));
        most = most.max(visits);
    }
    most > second + left
}

/// One action of a variation, with the number of visits to the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariationStep {
    /// Action taken at this step.
    pub action: Action,
    /// Completed visits of the child after the action.
    pub visits: u32,
}

/// A view of the search results at an expanded root. Results per action are in the order of [`actions`](Self::actions).
#[derive(Debug, Clone, Copy)]
pub struct RootView<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) actions: &'a [Action],
    pub(crate) priors: &'a [f32],
}

impl<'a> RootView<'a> {
    /// Returns the legal actions in ascending order.
    #[must_use]
    pub fn actions(&self) -> &'a [Action] {
        self.actions
    }

    /// Returns the priors of the network, without noise.
    #[must_use]
    pub fn priors(&self) -> &'a [f32] {
        self.priors
    }

    /// Returns the completed visits of each action.
    #[must_use]
    pub fn visit_counts(&self) -> Vec<u32> {
        self.node().edges().map(|edge| edge_visits(self.arena, edge)).collect()
    }

    /// Returns the value of each action for the player to move: exact if proven, the mean of the backed-up values if
    /// visited, otherwise the mixed value (completed Q, Danihelka et al. 2022).
    #[must_use]
    pub fn action_values(&self) -> Vec<f32> {
        let mut values = Vec::new();
        completed_values(self.arena, self.node(), &mut values);
        values
    }

    /// Returns the proven result of each action, from the view of the player to move at the root.
    #[cfg(test)]
    pub(crate) fn action_proofs(&self) -> Vec<Proven> {
        self.node().edges().map(|edge| edge_proven(self.arena, edge)).collect()
    }

    /// Returns the value of a policy for the player to move: the exact value if the root is proven, else
    /// `Σ π(a) · q(a)` over the completed action values. Policy improvement raises this value (Danihelka et al. 2022,
    /// section 2).
    ///
    /// With the search policy, the value is the expected result of the search. The mean over all visits would be too
    /// low: sequential halving spends many visits on actions that it rejects later.
    #[must_use]
    pub fn value_under(&self, policy: &[f32]) -> f32 {
        let expected = || {
            let terms = policy.iter().zip(self.action_values()).map(|(&share, q)| f64::from(share) * f64::from(q));
            terms.sum::<f64>() as f32
        };
        self.node().proven.value().unwrap_or_else(expected)
    }

    /// Returns the network value of the root for the player to move.
    #[must_use]
    pub fn network_value(&self) -> f32 {
        self.node().network_value
    }

    /// Returns the proven result of the root, from the view of the player to move.
    #[must_use]
    pub fn proven(&self) -> Proven {
        self.node().proven
    }

    /// Returns the number of completed visits to all actions together, including visits from a reused subtree.
    #[must_use]
    pub fn simulations(&self) -> u32 {
        self.node().visits - 1
    }

    fn node(&self) -> &'a Node {
        self.arena.node(NodeId::ROOT)
    }
}
