//! Graph of an AlphaZero network for win, draw and loss: stem, residual blocks, attention blocks and two heads.

use network::{HeadKind, Layers};
use training::{Layout, Recompute};
use weights::Architecture;

use crate::Path;
use crate::graph::{Graph, Loss, Observation, Value};

/// Returns the graph of a network with all losses.
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
    let heads = architecture.design.heads;
    let logits = match heads {
        HeadKind::Flattened => graph.linear(&layers.policy_output, features),
        HeadKind::Pooled => pooled_policy(&mut graph, layers, features),
    };
    graph.add_loss(Loss::Policy { step: 0, logits });
    let features = graph.convolve(&layers.value, &x)[0];
    let features = match heads {
        HeadKind::Flattened => features,
        HeadKind::Pooled => graph.pool(features),
    };
    let hidden = graph.activated_linear(&layers.value_hidden, features);
    let logits = graph.linear(&layers.value_output, hidden);
    graph.add_loss(Loss::Value { step: 0, logits });
    graph.schedule();
    graph
}

/// Returns the logits of a pooled policy head: per-cell logits first, then all other actions.
fn pooled_policy(graph: &mut Graph, layers: &Layers, features: Value) -> Value {
    let of_cells = graph.pointwise(&layers.policy_output, features);
    let Some(rest) = &layers.policy_rest else { return of_cells };
    let pooled = graph.pool(features);
    let others = graph.linear(rest, pooled);
    graph.concatenate(of_cells, others)
}

#[cfg(test)]
mod tests;
