//! The graph of a MuZero network, unrolled from a position along its actions (Schrittwieser et al. 2020), or of an
//! AlphaZero network of returns, which has no steps.
//!
//! Batch norms of heads see the states of all steps as one batch; those of the dynamics see one step. Start with
//! [`unrolled`].

mod chance;
mod consistency;

use network::{ACTION_PLANES, ConsistencyLayers, Head, LatentLayers, Layer, MEMORY_UNITS, PREFIX_HORIZON, Trunk};
use training::Layout;
use weights::Architecture;

use crate::Path;
use crate::graph::{Graph, Loss, Observation, Value};

/// Share of the gradient of a latent state that flows through the dynamics to the state before it.
const DYNAMICS_GRADIENT: f32 = 0.5;

/// A graph to which parts of a network are added.
struct Unrolled<'a> {
    graph: Graph,
    architecture: &'a Architecture,
    layers: &'a LatentLayers,
    steps: usize,
}

/// The graph of a network and its losses over `steps` steps, with the consistency loss if it has the heads.
///
/// # Panics
/// If there are steps and the network has no dynamics, or none and it has.
pub(crate) fn unrolled(
    architecture: &Architecture,
    layers: &LatentLayers,
    consistency: Option<&ConsistencyLayers>,
    layout: &Layout,
    steps: usize,
    path: Path,
) -> Graph {
    assert_eq!(steps > 0, layers.dynamics.is_some(), "dynamics lead from step to step");
    let graph = Graph::new(layout, [architecture.height, architecture.width], path);
    let mut unrolled = Unrolled { graph, architecture, layers, steps };
    let states = match &layers.chance {
        Some(chance) => unrolled.states_with_chance(chance),
        None => unrolled.states(),
    };
    unrolled.predict(&states);
    if let Some(heads) = consistency {
        unrolled.compare(heads, &states[1..]);
    }
    unrolled.graph.schedule();
    unrolled.graph
}

impl Unrolled<'_> {
    /// The latent states of the position and after each action.
    fn states(&mut self) -> Vec<Value> {
        let mut states = self.represent(&[Observation::Root]);
        for step in 0..self.steps {
            let dynamics = self.layers.dynamics.as_ref().expect("steps have dynamics");
            let choice = self.graph.act(step, self.architecture.actions);
            let state = states[step];
            states.push(self.transition(&dynamics.trunk, dynamics.action.as_ref(), state, choice, DYNAMICS_GRADIENT));
        }
        states
    }

    /// The losses of the heads.
    fn predict(&mut self, states: &[Value]) {
        let layers = self.layers;
        for (step, logits) in self.head(&layers.policy, states).into_iter().enumerate() {
            self.graph.add_loss(Loss::Policy { step, logits });
        }
        for (step, logits) in self.head(&layers.value, states).into_iter().enumerate() {
            self.graph.add_loss(Loss::Value { step, logits });
        }
        let Some(dynamics) = &layers.dynamics else { return };
        let rewards = match &dynamics.memory {
            None => self.head(&dynamics.reward, &states[1..]),
            Some(memory) => self.prefixes(&dynamics.reward, memory, &states[1..]),
        };
        for (step, logits) in rewards.into_iter().enumerate() {
            self.graph.add_loss(Loss::Reward { step, logits });
        }
    }

    /// Observations to latent states.
    fn represent(&mut self, observations: &[Observation]) -> Vec<Value> {
        let planes = self.architecture.planes;
        let observe = |&observation: &Observation| self.graph.observe(vec![observation], planes);
        let xs: Vec<Value> = observations.iter().map(observe).collect();
        let layers = self.layers;
        let features = self.trunk(&layers.representation, &xs);
        features.into_iter().map(|features| self.graph.rescale(features)).collect()
    }

    /// A latent state and a choice, one-hot, to the rescaled output of a trunk; `planes` maps choices to planes.
    fn transition(&mut self, trunk: &Trunk, planes: Option<&Layer>, state: Value, choice: Value, share: f32) -> Value {
        let beside = planes.map_or(choice, |planes| {
            debug_assert_eq!(planes.outputs % ACTION_PLANES, 0, "planes of the board");
            self.graph.linear(planes, choice)
        });
        let x = self.graph.join(state, beside, share);
        let features = self.trunk(trunk, &[x]);
        self.graph.rescale(features[0])
    }

    /// The outputs of a trunk, before they are rescaled.
    fn trunk(&mut self, trunk: &Trunk, xs: &[Value]) -> Vec<Value> {
        match trunk {
            Trunk::Residual { stem, blocks } => {
                let stem = self.graph.convolve(stem, xs);
                blocks.iter().fold(stem, |xs, block| self.graph.block(block, &xs))
            }
            Trunk::Dense { input, blocks } => {
                let mut of_x = |&x: &Value| {
                    let input = self.graph.dense(input, x);
                    blocks.iter().fold(input, |x, [first, second]| {
                        let y = self.graph.dense(first, x);
                        self.graph.dense_beside(second, y, x)
                    })
                };
                xs.iter().map(&mut of_x).collect()
            }
        }
    }

    /// Latent states to the logits of a head.
    fn head(&mut self, head: &Head, states: &[Value]) -> Vec<Value> {
        let features = self.hidden(head, states);
        features.into_iter().map(|features| self.graph.linear(&head.output, features)).collect()
    }

    /// Latent states to what the output of a head reads.
    fn hidden(&mut self, head: &Head, states: &[Value]) -> Vec<Value> {
        match (&head.convolution, &head.hidden) {
            (Some(convolution), None) => self.graph.convolve(convolution, states),
            (Some(convolution), Some(hidden)) => {
                let features = self.graph.convolve(convolution, states);
                features.into_iter().map(|features| self.graph.rectified_linear(hidden, features)).collect()
            }
            (None, Some(hidden)) => states.iter().map(|&state| self.graph.dense(hidden, state)).collect(),
            (None, None) => states.to_vec(),
        }
    }

    /// The states after each action to the logits of their value prefixes (Ye et al. 2021, section 4.2).
    fn prefixes(&mut self, reward: &Head, gates: &Layer, states: &[Value]) -> Vec<Value> {
        let hidden = self.hidden(reward, states);
        let mut memory = None;
        let mut logits = Vec::new();
        for (step, hidden) in hidden.into_iter().enumerate() {
            let before = memory.filter(|_| step % PREFIX_HORIZON > 0);
            let output = before.map_or_else(|| self.graph.zeros(MEMORY_UNITS), |[_, output]: [Value; 2]| output);
            let x = self.graph.concatenate(hidden, output);
            let sums = self.graph.linear(gates, x);
            let [cell, output] = self.graph.remember(sums, before.map(|[cell, _]| cell));
            logits.push(self.graph.linear(&reward.output, output));
            memory = Some([cell, output]);
        }
        logits
    }
}

#[cfg(test)]
mod tests;
