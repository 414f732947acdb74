//! One descent: from the root to a leaf, choosing an edge at each node.

pub(crate) mod gumbel;
pub(crate) mod puct;

use crate::arena::{Arena, EdgeId, Node, NodeId};
use crate::backup::back_up;
use crate::completed_values::Sigma;
use crate::settings::{RootPolicy, Settings};
use puct::ExplorationFactors;

/// The rule that chooses below the root, and at the root of pUCT.
#[derive(Debug)]
pub(crate) struct Rule {
    kind: Kind,
    first_play_reduction: f32,
    factors: ExplorationFactors,
    /// Reused by every choice.
    scratch: Vec<f32>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Puct,
    Gumbel(Sigma),
}

/// Where a descent ended.
pub(crate) enum Descent {
    /// At an edge without a child.
    Leaf { parent: NodeId, edge: EdgeId },
    /// At a terminal or proven node, which has been backed up.
    Completed,
}

impl Rule {
    pub(crate) fn new(settings: &Settings) -> Self {
        let kind = match settings.root {
            RootPolicy::Puct => Kind::Puct,
            RootPolicy::Gumbel { c_visit, c_scale, .. } => Kind::Gumbel(Sigma { c_visit, c_scale }),
        };
        let factors = ExplorationFactors::new(settings.c_base, settings.c_init);
        Self { kind, first_play_reduction: settings.first_play_reduction, factors, scratch: Vec::new() }
    }

    /// The edge to take at a node that has an available one. `reduction` scales first-play reduction.
    fn choose(&mut self, arena: &Arena, node: &Node, reduction: f32) -> EdgeId {
        let edges = node.edges();
        let values = &arena.edges.value[edges.clone()];
        let counts = &arena.edges.count[edges.clone()];
        let priors = &arena.edges.prior[edges.clone()];
        let scale = arena.bounds.scale();
        let choice = match self.kind {
            Kind::Puct => {
                let reduction = reduction * self.first_play_reduction * node.visited_mass.sqrt();
                let first_play = scale.apply(node.mean_value()) - reduction;
                let factor = self.factors.at(node.visits + node.in_flight);
                puct::best(values, counts, priors, puct::Terms { factor, first_play, scale })
            }
            Kind::Gumbel(sigma) => {
                let network_value = scale.apply(node.network_value);
                gumbel::best(values, counts, priors, gumbel::Terms { sigma, network_value, scale }, &mut self.scratch)
            }
        };
        node.edge_at(choice.expect("an available edge can be chosen"))
    }
}

/// How the first step of a descent is taken.
pub(crate) enum Start {
    /// By the rule, with first-play reduction scaled by `reduction`.
    Rule { reduction: f32 },
    /// As sequential halving says.
    Edge(EdgeId),
}

/// Descends from the root, which has an available edge, and leaves a visit in flight at each node it passes.
pub(crate) fn descend(arena: &mut Arena, rule: &mut Rule, start: Start) -> Descent {
    let mut id = NodeId::ROOT;
    let mut edge = match start {
        Start::Rule { reduction } => rule.choose(arena, arena.node(id), reduction),
        Start::Edge(edge) => edge,
    };
    loop {
        arena.enter(id);
        let child = arena.edges.child[edge.index()];
        if child == NodeId::NONE {
            arena.edges.count[edge.index()] = 1.0;
            arena.block(id, edge);
            return Descent::Leaf { parent: id, edge };
        }
        let node = arena.node(child);
        if node.is_terminal() {
            let value = node.network_value;
            arena.enter(child);
            back_up(arena, child, value);
            return Descent::Completed;
        }
        id = child;
        edge = rule.choose(arena, arena.node(id), 1.0);
    }
}
