//! Descends from the root to a leaf, choosing one edge at each node.

pub(crate) mod chance;
pub(crate) mod gumbel;
mod lanes;
pub(crate) mod puct;

use crate::arena::{Arena, Node};
use crate::backup::back_up;
use crate::completed_values::Sigma;
use crate::edges::{EdgeId, LANES, NodeId, Octet};
use crate::settings::{SearchAlgorithm, Settings, ValueSpan};
use crate::value_range::{Rescale, Unscaled};
use gumbel::{RescaleNode, Spanning};
use lanes::Choice;
use puct::ExplorationFactors;

/// The selection rule below the root. pUCT also applies at the root.
#[derive(Debug)]
pub(crate) enum Rule {
    Puct(Puct),
    Gumbel(Gumbel),
}

/// The pUCT rule with precomputed constants.
#[derive(Debug)]
pub(crate) struct Puct {
    fpu_reduction: f32,
    factors: ExplorationFactors,
}

/// The Gumbel rule for nodes below the root.
#[derive(Debug)]
pub(crate) struct Gumbel {
    sigma: Sigma,
    /// Scratch memory, reused by every choice.
    scratch: Vec<[f32; LANES]>,
}

impl Rule {
    pub(crate) fn new(settings: &Settings) -> Self {
        match settings.algorithm {
            SearchAlgorithm::Puct => Self::Puct(Puct {
                fpu_reduction: settings.fpu_reduction,
                factors: ExplorationFactors::new(settings.c_base, settings.c_init),
            }),
            SearchAlgorithm::Gumbel { c_visit, c_scale, span, .. } => {
                Self::Gumbel(Gumbel { sigma: Sigma { c_visit, c_scale, span }, scratch: Vec::new() })
            }
        }
    }
}

/// A rule that chooses among the edges of a node. `R` rescales the action values.
trait Choose<R> {
    /// Chooses an edge of a node with an available edge. `reduction` scales the first-play reduction.
    fn choose(&mut self, node: &Node, octets: &[Octet], scale: R, reduction: f32) -> Option<Choice>;
}

impl<R: Rescale> Choose<R> for Puct {
    #[inline(always)]
    fn choose(&mut self, node: &Node, octets: &[Octet], scale: R, reduction: f32) -> Option<Choice> {
        let reduction = reduction * self.fpu_reduction * node.visited_mass_sqrt;
        let first_play = scale.apply(node.mean_value) - reduction;
        let factor = self.factors.at(node.visits + node.in_flight);
        puct::best(octets, puct::Terms { factor, first_play, scale })
    }
}

impl<R: RescaleNode> Choose<R> for Gumbel {
    #[inline(always)]
    fn choose(&mut self, node: &Node, octets: &[Octet], scale: R, _: f32) -> Option<Choice> {
        let Node { network_value, .. } = *node;
        gumbel::best(octets, gumbel::Terms { sigma: self.sigma, network_value, scale }, &mut self.scratch)
    }
}

/// The outcome of a descent.
pub(crate) enum Descent {
    /// The descent reached an edge without a child.
    Leaf { parent: NodeId, edge: EdgeId },
    /// The descent reached a terminal or proven node, and the value of the node was backed up.
    Completed,
}

/// Descends from the root and adds a visit in flight at each node on the path. The root must have an available edge.
/// The first step takes the edge `first` assigned by sequential halving, if any. Otherwise it follows the rule, with
/// the first-play reduction scaled by `reduction`.
#[inline]
pub(crate) fn descend(arena: &mut Arena, rule: &mut Rule, first: Option<EdgeId>, reduction: f32) -> Descent {
    // The rescaling by the value range of the tree is the same for all steps, so it is computed once.
    let scale = arena.bounds.scale();
    match (rule, arena.bounds.is_board()) {
        (Rule::Puct(puct), true) => descend_by(arena, puct, Unscaled, first, reduction),
        (Rule::Puct(puct), false) => descend_by(arena, puct, scale, first, reduction),
        (Rule::Gumbel(gumbel), true) => descend_by(arena, gumbel, Unscaled, first, reduction),
        (Rule::Gumbel(gumbel), false) => match gumbel.sigma.span {
            ValueSpan::Node => descend_by(arena, gumbel, Spanning, first, reduction),
            ValueSpan::Tree => {
                let scale = arena.bounds.scale_or_flat();
                descend_by(arena, gumbel, scale, first, reduction)
            }
        },
    }
}

#[inline]
fn descend_by<R: Copy>(
    arena: &mut Arena,
    rule: &mut impl Choose<R>,
    scale: R,
    first: Option<EdgeId>,
    reduction: f32,
) -> Descent {
    if arena.has_chance {
        return descend_in::<R, true>(arena, rule, scale, first, reduction);
    }
    descend_in::<R, false>(arena, rule, scale, first, reduction)
}

/// Descends to a leaf. `CHANCE` must be true if the tree contains chance nodes.
fn descend_in<R: Copy, const CHANCE: bool>(
    arena: &mut Arena,
    rule: &mut impl Choose<R>,
    scale: R,
    mut first: Option<EdgeId>,
    mut reduction: f32,
) -> Descent {
    let mut id = NodeId::ROOT;
    loop {
        let (octet, lane) = first.take().map_or_else(
            || {
                let node = arena.node(id);
                let octets = arena.edges.octets(node.first_edge, node.edge_count);
                let choice = match CHANCE && node.is_chance {
                    true => chance::next(octets),
                    false => rule.choose(node, octets, scale, reduction),
                };
                let Choice { octet, lane } = choice.expect("an available edge can be chosen");
                (node.first_edge.octet() + octet, lane)
            },
            |edge| (edge.octet(), edge.lane()),
        );
        reduction = 1.0;
        arena.node_mut(id).in_flight += 1;
        let child = arena.edges.enter(octet, lane);
        if child == NodeId::NONE {
            let edge = EdgeId::new(octet, lane);
            arena.block(id, edge);
            return Descent::Leaf { parent: id, edge };
        }
        let node = arena.node_mut(child);
        if node.is_terminal() {
            node.in_flight += 1;
            let value = node.network_value;
            back_up(arena, child, value);
            return Descent::Completed;
        }
        id = child;
    }
}
