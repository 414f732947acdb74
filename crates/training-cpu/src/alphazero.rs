//! The graph of an AlphaZero network of wins, draws and losses: stem, residual blocks, attention blocks and two heads.

use network::Layers;
use training::{Layout, Recompute};
use weights::Architecture;

use crate::Path;
use crate::graph::{Graph, Loss, Observation};

/// The graph of a network and its losses.
pub(crate) fn graph(
    architecture: &Architecture,
    layers: &Layers,
    layout: &Layout,
    path: Path,
    recompute: Recompute,
) -> Graph {
    let mut graph = Graph::new(layout, architecture, path, recompute);
    let observation = graph.observe(vec![Observation::Root], architecture.planes);
    let stem = graph.convolve(&layers.stem, &[observation]);
    let x = graph.blocks(&layers.blocks, stem);
    let x = graph.attention(&layers.attention, x);
    let features = graph.convolve(&layers.policy, &x)[0];
    let logits = graph.linear(&layers.policy_output, features);
    graph.add_loss(Loss::Policy { step: 0, logits });
    let features = graph.convolve(&layers.value, &x)[0];
    let hidden = graph.activated_linear(&layers.value_hidden, features);
    let logits = graph.linear(&layers.value_output, hidden);
    graph.add_loss(Loss::Value { step: 0, logits });
    graph.schedule();
    graph
}

#[cfg(test)]
mod tests;
