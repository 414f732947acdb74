//! Results of a search at the root: scores, the search policy, the action to play.
//!
//! Proven results take precedence everywhere: a winning child gets the whole policy, a losing one gets nothing unless
//! all lose, and no action valued below a proven draw is preferred to it.

use game::Action;

use crate::arena::{Arena, Node};
use crate::completed_values::{MixedValue, Sigma, logit, softmax};
use crate::edges::{EdgeId, NodeId};
use crate::proven::Proven;
use crate::settings::ValueSpan;
use crate::value_range::{Rescale, Scale};

/// The proven result of an edge, as seen by the player who chooses it.
pub(crate) fn edge_proven(arena: &Arena, edge: EdgeId) -> Proven {
    match arena.edges.child(edge) {
        NodeId::NONE => Proven::Unknown,
        child => {
            let node = arena.node(child);
            if node.proves_parent() { node.proven.reversed() } else { Proven::Unknown }
        }
    }
}

/// The completed visits of an edge.
pub(crate) fn edge_visits(arena: &Arena, edge: EdgeId) -> u32 {
    match arena.edges.child(edge) {
        NodeId::NONE => 0,
        child => arena.node(child).visits,
    }
}

/// The action value of a visited edge: exact if the child is proven.
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

/// The value assigned to the unvisited actions of `node`. Refuted moves do not count, as in the rule below the root.
fn mixed_value(arena: &Arena, node: &Node) -> f32 {
    let mut mixed = MixedValue::default();
    for edge in node.edges().filter(|&edge| edge_proven(arena, edge) != Proven::Loss) {
        if let Some(value) = edge_value(arena, edge) {
            mixed.add(arena.edges.prior(edge), edge_visits(arena, edge) as f32, value);
        }
    }
    mixed.mix(node.network_value)
}

/// Replaces `values` with the completed action values of `node`, not rescaled.
pub(crate) fn completed_values(arena: &Arena, node: &Node, values: &mut Vec<f32>) {
    let unvisited = mixed_value(arena, node);
    values.clear();
    values.extend(node.edges().map(|edge| edge_value(arena, edge).unwrap_or(unvisited)));
}

/// Replaces `scores` with `logits + σ(completed Q)`, the logits of the improved policy. Values other than a board's are
/// rescaled as below the root.
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

/// The rescaling of `values` to `[0, 1]`.
fn spanning(values: &[f32]) -> Scale {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let greatest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    Scale::spanning(least, greatest)
}

/// Selects the candidate edges of `node` that the search may choose: the winning edges; else every edge that neither
/// loses nor is valued below a proven draw; else all.
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

/// Replaces `policy` with the visit shares over the candidates, or with normalised priors while no candidate has a
/// visit.
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

/// The candidate with the most visits; ties go to the greater prior, then to the lowest action. `None` at a terminal
/// node.
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

/// True if the most visited candidate of `node` stays the most visited even if `left` more visits all go to the second.
pub(crate) fn is_decided(arena: &Arena, node: &Node, left: u32) -> bool {
    // With a proven draw, values decide which edges are candidates, and they may change with every visit.
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

/// One action of a variation, with the completed visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariationStep {
    /// Action taken at this step.
    pub action: Action,
    /// Completed visits of the child that the action leads to.
    pub visits: u32,
}

/// A view of the search result at an expanded root. Per-action results are in the order of [`actions`](Self::actions).
#[derive(Debug, Clone, Copy)]
pub struct RootView<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) actions: &'a [Action],
    pub(crate) priors: &'a [f32],
}

impl<'a> RootView<'a> {
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

    /// The value of each action to the player to move: exact if proven, the mean of the backed-up values, or the mixed
    /// value without visits (completed Q, Danihelka et al. 2022).
    #[must_use]
    pub fn action_values(&self) -> Vec<f32> {
        let mut values = Vec::new();
        completed_values(self.arena, self.node(), &mut values);
        values
    }

    /// The proven result of each action, as seen by the player to move at the root.
    #[must_use]
    pub fn action_proofs(&self) -> Vec<Proven> {
        self.node().edges().map(|edge| edge_proven(self.arena, edge)).collect()
    }

    /// The value to move of a policy over the actions: exact if proven, else `Σ π(a) · q(a)` with the completed action
    /// values (what policy improvement raises; Danihelka et al. 2022, section 2).
    ///
    /// Under the search policy it is the expected result of the search. The mean over all visits is not: sequential
    /// halving spends many visits on actions that it then rejects, which would make every position look worse than
    /// under best play.
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

    /// The proven result of the root, as seen by the player to move.
    #[must_use]
    pub fn proven(&self) -> Proven {
        self.node().proven
    }

    /// The completed visits of all actions together, visits kept by reuse included.
    #[must_use]
    pub fn simulations(&self) -> u32 {
        self.node().visits - 1
    }

    fn node(&self) -> &'a Node {
        self.arena.node(NodeId::ROOT)
    }
}
