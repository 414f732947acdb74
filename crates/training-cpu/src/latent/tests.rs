use training::{Examples, ModelLayers, Numbers, Precision, UnrolledBatch};
use weights::{Architecture, Model};

use super::unrolled;
use crate::Path;
use crate::buffer::Store;
use crate::graph::{Changes, Workshop};
use crate::losses::{LossWeights, Sums, Targets};
use crate::reference::{assert_tensors_close, unrolled_reference};
use crate::tests::networks::{self, complete, numbers, plain, vectors};
use crate::threads::Threads;

const WEIGHTS: LossWeights = LossWeights { value: 0.7, consistency: 2.0 };

/// A network, positions and steps.
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
    let (muzero, prefix) = (Model::muzero(4), Model::muzero_with_value_prefix(4));
    let stochastic = Model::StochasticMuzero { support: 3, codes: 6 };
    let consistent = |case: Case| Case { has_consistency: true, ..case };
    let one_block = |architecture: Architecture| Architecture { blocks: 1, channels: 6, ..architecture };
    vec![
        Case::new(vectors(), returns, 5, 0),
        Case::new(vectors(), muzero, 7, 3),
        Case::new(Architecture { blocks: 0, ..vectors() }, muzero, 40, 1),
        Case::new(vectors(), prefix, 3, 7),
        Case::new(vectors(), stochastic, 5, 2),
        consistent(Case::new(vectors(), muzero, 4, 2)),
        Case::new(plain(2, 3), returns, 3, 0),
        Case::new(one_block(plain(2, 3)), muzero, 4, 2),
        Case::new(complete(), muzero, 3, 2),
        Case::new(one_block(plain(2, 2)), prefix, 2, 6),
        Case::new(one_block(plain(3, 2)), stochastic, 3, 2),
        consistent(Case::new(one_block(plain(2, 2)), prefix, 3, 2)),
        consistent(Case::new(one_block(plain(2, 2)), stochastic, 3, 2)),
    ]
}

struct Results {
    sums: Sums,
    gradient: Vec<f32>,
    statistics: Vec<f32>,
    value_errors: Vec<f32>,
}

fn pass(case: &Case, numbers: &Numbers, batch: &UnrolledBatch, path: Path, threads: usize) -> Results {
    let (layers, architecture) = (case.layers(), &case.architecture);
    let (latent, consistency, layout) = (layers.muzero().unwrap(), layers.consistency(), layers.layout());
    let mut workshop = Workshop { threads: Threads::new(threads).unwrap(), store: Store::default() };
    let mut graph = unrolled(architecture, latent, consistency, &layout, case.steps, path);
    graph.pack(&numbers.parameters, &mut workshop.threads);
    let examples = Examples::Unrolled(batch.clone());
    let targets = Targets::new(architecture, &examples, WEIGHTS);
    let mut results = None;
    // The second pass uses the memory of the first again.
    for _ in 0..2 {
        let mut gradient = vec![0.0; numbers.parameters.len()];
        let mut statistics = numbers.statistics.clone();
        let mut value_errors = vec![0.0; case.positions];
        let mut changes =
            Changes { statistics: &mut statistics, gradient: &mut gradient, value_errors: &mut value_errors };
        let rows = 0..case.positions;
        let sums = graph.pass(&mut workshop, &numbers.parameters, &targets, rows, &mut changes, &mut || {});
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
            let Sums { policy, value, reward, consistency, chance, .. } = got.sums;
            for (got, expected) in [policy, value, reward, consistency, chance].into_iter().zip(expected.losses) {
                assert!((got - expected).abs() < 1e-5 * (1.0 + expected), "{what}: {got} instead of {expected}");
            }
            for (got, expected) in got.value_errors.iter().zip(&expected.value_errors) {
                assert!((f64::from(*got) - expected).abs() < 1e-4, "{what}: {got} instead of {expected}");
            }
            // Parameters whose gradient is zero by symmetry have the rounding errors of their terms.
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
