//! Graph of a MuZero network, unrolled from a position along the actions (Schrittwieser et al. 2020), or of an
//! AlphaZero network of returns, which has no steps.
//!
//! Head batch norms see the states of all steps as one batch; dynamics batch norms see one step. Start with
//! [`unrolled`].

mod chance;
mod consistency;

use network::{ACTION_PLANES, ConsistencyLayers, Head, LatentLayers, Transition, Trunk};
use training::{Layout, Recompute};
use weights::Architecture;

use crate::Path;
use crate::graph::{Graph, Loss, Observation, Value};

/// Share of a latent state's gradient that flows through the dynamics to the previous state.
const DYNAMICS_GRADIENT: f32 = 0.5;

/// A graph under construction, with the network.
struct Unrolled<'a> {
    graph: Graph,
    architecture: &'a Architecture,
    layers: &'a LatentLayers,
    steps: usize,
}

/// Returns the graph of a network over `steps` steps with all losses, including the consistency loss if `consistency`
/// has the heads.
///
/// # Panics
/// If `steps` is above 0 without dynamics, or 0 with dynamics.
pub(crate) fn unrolled(
    architecture: &Architecture,
    layers: &LatentLayers,
    consistency: Option<&ConsistencyLayers>,
    layout: &Layout,
    steps: usize,
    path: Path,
    recompute: Recompute,
) -> Graph {
    assert_eq!(steps > 0, layers.dynamics.is_some(), "dynamics lead from step to step");
    let graph = Graph::new(layout, architecture, path, recompute);
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
    /// Adds the latent states of the position and after each action.
    fn states(&mut self) -> Vec<Value> {
        let mut states = self.represent(&[Observation::Root]);
        for step in 0..self.steps {
            let dynamics = self.layers.dynamics.as_ref().expect("steps have dynamics");
            let choice = self.graph.act(step, self.architecture.actions);
            let state = states[step];
            states.push(self.transition(&dynamics.transition, state, choice, DYNAMICS_GRADIENT));
        }
        states
    }

    /// Adds the losses of the heads.
    fn predict(&mut self, states: &[Value]) {
        let layers = self.layers;
        for (step, logits) in self.head(&layers.policy, states).into_iter().enumerate() {
            self.graph.add_loss(Loss::Policy { step, logits });
        }
        for (step, logits) in self.head(&layers.value, states).into_iter().enumerate() {
            self.graph.add_loss(Loss::Value { step, logits });
        }
        let Some(dynamics) = &layers.dynamics else { return };
        for (step, logits) in self.head(&dynamics.reward, &states[1..]).into_iter().enumerate() {
            self.graph.add_loss(Loss::Reward { step, logits });
        }
    }

    /// Representation: observations to latent states.
    fn represent(&mut self, observations: &[Observation]) -> Vec<Value> {
        let planes = self.architecture.planes;
        let observe = |&observation: &Observation| self.graph.observe(vec![observation], planes);
        let xs: Vec<Value> = observations.iter().map(observe).collect();
        let layers = self.layers;
        let features = self.trunk(&layers.representation, &xs);
        features.into_iter().map(|features| self.graph.rescale(features)).collect()
    }

    /// Applies a transition to a latent state and a one-hot choice, and rescales the output.
    fn transition(&mut self, of: &Transition, state: Value, choice: Value, share: f32) -> Value {
        let beside = of.action.as_ref().map_or(choice, |planes| {
            debug_assert_eq!(planes.outputs % ACTION_PLANES, 0, "planes of the board");
            self.graph.linear(planes, choice)
        });
        let x = self.graph.join(state, beside, share);
        let features = self.trunk(&of.trunk, &[x]);
        self.graph.rescale(features[0])
    }

    /// Applies a trunk, without the rescaling.
    fn trunk(&mut self, trunk: &Trunk, xs: &[Value]) -> Vec<Value> {
        match trunk {
            Trunk::Residual { stem, blocks } => {
                let stem = self.graph.convolve(stem, xs);
                self.graph.blocks(blocks, stem)
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

    /// Applies a head: latent states to logits.
    fn head(&mut self, head: &Head, states: &[Value]) -> Vec<Value> {
        let features = match (&head.convolution, &head.hidden) {
            (Some(convolution), None) => self.graph.convolve(convolution, states),
            (Some(convolution), Some(hidden)) => {
                let features = self.graph.convolve(convolution, states);
                features.into_iter().map(|features| self.graph.rectified_linear(hidden, features)).collect()
            }
            (None, Some(hidden)) => states.iter().map(|&state| self.graph.dense(hidden, state)).collect(),
            (None, None) => states.to_vec(),
        };
        features.into_iter().map(|features| self.graph.linear(&head.output, features)).collect()
    }
}

#[cfg(test)]
mod tests {
    use training::{Examples, Losses, ModelLayers, Numbers, Precision, Recompute, UnrolledBatch};
    use weights::{Architecture, Model};

    use super::unrolled;
    use crate::Path;
    use crate::buffer::Store;
    use crate::graph::{Changes, Workshop};
    use crate::losses::Targets;
    use crate::reference::{assert_tensors_close, unrolled_reference};
    use crate::tests::networks::{self, complete, numbers, plain, vectors};
    use crate::threads::Threads;

    const WEIGHTS: Losses = Losses { value: 0.7, consistency: 2.0, ..Losses::WEIGHTS };

    /// A network with a number of positions and steps.
    struct Case {
        architecture: Architecture,
        has_consistency: bool,
        positions: usize,
        steps: usize,
    }

    impl Case {
        fn new(architecture: Architecture, model: Model, positions: usize, steps: usize) -> Self {
            Self { architecture: Architecture { model, ..architecture }, has_consistency: false, positions, steps }
        }

        fn layers(&self) -> ModelLayers {
            match self.has_consistency {
                true => ModelLayers::with_consistency(&self.architecture).unwrap(),
                false => ModelLayers::new(&self.architecture).unwrap(),
            }
        }

        fn batch(&self) -> UnrolledBatch {
            networks::unrolled(&self.architecture, self.positions, self.steps, 5)
        }
    }

    fn cases() -> Vec<Case> {
        let returns = Model::AlphazeroReturns { support: 3 };
        let muzero = Model::Muzero { support: 4 };
        let stochastic = Model::StochasticMuzero { support: 3, codes: 6 };
        let consistent = |case: Case| Case { has_consistency: true, ..case };
        let one_block = |architecture: Architecture| Architecture { blocks: 1, channels: 6, ..architecture };
        vec![
            Case::new(vectors(), returns, 5, 0),
            Case::new(vectors(), muzero, 7, 3),
            Case::new(Architecture { blocks: 0, ..vectors() }, muzero, 40, 1),
            Case::new(vectors(), stochastic, 5, 2),
            consistent(Case::new(vectors(), muzero, 4, 2)),
            Case::new(plain(2, 3), returns, 3, 0),
            Case::new(one_block(plain(2, 3)), muzero, 4, 2),
            Case::new(complete(), muzero, 3, 2),
            Case::new(one_block(plain(3, 2)), stochastic, 3, 2),
            consistent(Case::new(one_block(plain(2, 2)), muzero, 3, 2)),
            consistent(Case::new(one_block(plain(2, 2)), stochastic, 3, 2)),
        ]
    }

    struct Results {
        sums: Losses,
        gradient: Vec<f32>,
        statistics: Vec<f32>,
        value_errors: Vec<f32>,
    }

    fn pass(case: &Case, numbers: &Numbers, batch: &UnrolledBatch, path: Path, threads: usize) -> Results {
        let (layers, architecture) = (case.layers(), &case.architecture);
        let (latent, consistency, layout) = (layers.muzero().unwrap(), layers.consistency(), layers.layout());
        let mut workshop = Workshop { threads: Threads::new(threads).unwrap(), store: Store::default(), exact: None };
        let mut graph = unrolled(architecture, latent, consistency, &layout, case.steps, path, Recompute::None);
        graph.pack(&numbers.parameters, &mut workshop.threads);
        let examples = Examples::Unrolled(batch.clone());
        let targets = Targets::new(architecture, &examples, WEIGHTS);
        let mut results = None;
        // The second pass reuses the memory of the first.
        for _ in 0..2 {
            let mut gradient = vec![0.0; numbers.parameters.len()];
            let mut statistics = numbers.statistics.clone();
            let mut value_errors = vec![0.0; case.positions];
            let mut changes =
                Changes { statistics: &mut statistics, gradient: &mut gradient, value_errors: &mut value_errors };
            let rows = 0..case.positions;
            let largest = rows.len();
            let parameters = &numbers.parameters;
            let sums = graph.pass(&mut workshop, parameters, &targets, rows, largest, &mut changes, &mut || {});
            results = Some(Results { sums, gradient, statistics, value_errors });
        }
        results.unwrap()
    }

    #[test]
    fn losses_gradients_and_statistics_agree_with_float64() {
        for case in cases() {
            let layers = case.layers();
            let layout = layers.layout();
            let (numbers, batch) = (numbers(&layout, 3), case.batch());
            let weights = [WEIGHTS.value, WEIGHTS.consistency];
            let expected = unrolled_reference(&case.architecture, &layers, &numbers, &batch, weights);
            for path in Path::ALL.into_iter().filter(|path| path.is_available() && path.precision() == Precision::F32) {
                let Case { architecture, positions, steps, .. } = &case;
                let what = format!("{path}, {positions} positions and {steps} steps of {architecture:?}");
                let got = pass(&case, &numbers, &batch, path, 2);
                for ((_, got), expected) in got.sums.parts().into_iter().zip(expected.losses) {
                    assert!((got - expected).abs() < 1e-5 * (1.0 + expected), "{what}: {got} instead of {expected}");
                }
                for (got, expected) in got.value_errors.iter().zip(&expected.value_errors) {
                    assert!((f64::from(*got) - expected).abs() < 1e-4, "{what}: {got} instead of {expected}");
                }
                // Parameters with a gradient of zero by symmetry have the rounding errors of the terms.
                assert_tensors_close(&what, &layout.parameters, &got.gradient, &expected.gradient, [1e-4, 1e-2]);
                assert_tensors_close(&what, &layout.statistics, &got.statistics, &expected.statistics, [1e-5, 1e-2]);
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        for case in cases() {
            let case = Case { positions: 61, ..case };
            let (numbers, batch) = (numbers(&case.layers().layout(), 3), case.batch());
            let [one, two, five] = [1, 2, 5].map(|threads| pass(&case, &numbers, &batch, Path::widest(), threads));
            for other in [two, five] {
                assert_eq!(one.gradient, other.gradient, "{:?}", case.architecture);
                assert_eq!((one.sums, &one.statistics), (other.sums, &other.statistics));
                assert_eq!(one.value_errors, other.value_errors);
            }
        }
    }
}
