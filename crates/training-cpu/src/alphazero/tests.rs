use network::Layers;
use training::{Examples, Layout, Losses, Numbers, Precision, Recompute, TrainingBatch};
use weights::{Activation, Architecture};

use super::graph;
use crate::Path;
use crate::buffer::Store;
use crate::graph::{Changes, Workshop};
use crate::losses::Targets;
use crate::reference::{assert_tensors_close, reference};
use crate::tests::networks::{
    activated, batch, bottleneck, complete, numbers, of_positions, plain, pooled, pooled_heads, tiled,
};
use crate::threads::Threads;

const VALUE_LOSS_WEIGHT: f64 = 0.7;

struct Results {
    sums: Losses,
    gradient: Vec<f32>,
    statistics: Vec<f32>,
    /// Bytes in the buffers of two passes.
    bytes: usize,
    /// Planned bytes.
    planned: usize,
}

fn layout(architecture: &Architecture) -> (Layers, Layout) {
    let layers = Layers::new(architecture).unwrap();
    let layout = Layout::new(layers.tensors(), std::iter::empty());
    (layers, layout)
}

fn pass(
    architecture: &Architecture,
    numbers: &Numbers,
    batch: &TrainingBatch,
    path: Path,
    threads: usize,
    recompute: Recompute,
) -> Results {
    let (layers, layout) = layout(architecture);
    let mut workshop = Workshop { threads: Threads::new(threads).unwrap(), store: Store::default(), exact: None };
    let mut graph = graph(architecture, &layers, &layout, path, recompute);
    graph.pack(&numbers.parameters, &mut workshop.threads);
    let (positions, examples) = (batch.policy_weights.len(), Examples::Positions(batch.clone()));
    let weights = Losses { value: VALUE_LOSS_WEIGHT, ..Losses::WEIGHTS };
    let targets = Targets::new(architecture, &examples, weights);
    let planned = graph.activation_bytes(positions, false);
    let mut results = None;
    // The second pass reuses the memory of the first.
    for _ in 0..2 {
        let mut gradient = vec![0.0; numbers.parameters.len()];
        let mut statistics = numbers.statistics.clone();
        let mut value_errors = vec![0.0; positions];
        let mut changes =
            Changes { statistics: &mut statistics, gradient: &mut gradient, value_errors: &mut value_errors };
        let parameters = &numbers.parameters;
        let sums = graph.pass(&mut workshop, parameters, &targets, 0..positions, positions, &mut changes, &mut || {});
        let bytes = workshop.store.bytes();
        results = Some(Results { sums, gradient, statistics, bytes, planned });
    }
    results.unwrap()
}

fn cases() -> Vec<(Architecture, usize)> {
    [
        (complete(), 7),
        (complete(), 13),
        (plain(1, 1), 6),
        (plain(6, 7), 3),
        (plain(1, 5), 1),
        // Enough channels for minimal filtering.
        (Architecture { blocks: 1, channels: 43, ..plain(6, 7) }, 3),
        (Architecture { blocks: 0, actions: 1, planes: 1, ..plain(2, 2) }, 9),
        (Architecture { blocks: 1, channels: 3, actions: 26, ..plain(5, 5) }, 4),
        (Architecture { blocks: 1, channels: 4, actions: 362, planes: 2, ..plain(19, 19) }, 2),
    ]
    .into_iter()
    .chain(Activation::ALL.into_iter().map(|activation| (activated(activation), 7)))
    .chain([Activation::Relu, Activation::Mish].map(|activation| (bottleneck(activation), 6)))
    .chain(of_positions().into_iter().chain(pooled_heads()).map(|architecture| (architecture, 5)))
    .collect()
}

#[test]
fn losses_gradients_and_statistics_agree_with_float64() {
    for (architecture, positions) in cases() {
        let (_, layout) = layout(&architecture);
        let numbers = numbers(&layout, 3);
        let mut batch = batch(&architecture, positions, 5);
        batch.importance = (0..positions).map(|row| 1.0 / (1 + row % 3) as f32).collect();
        let expected = reference(&architecture, &layout, &numbers, &batch, VALUE_LOSS_WEIGHT);
        for path in Path::ALL.into_iter().filter(|path| path.is_available() && path.precision() == Precision::F32) {
            let what = format!("{path}, {positions} positions of {architecture:?}");
            let got = pass(&architecture, &numbers, &batch, path, 2, Recompute::None);
            let losses = [(got.sums.policy, expected.policy), (got.sums.value, expected.value)];
            assert!(
                losses.iter().all(|(got, expected)| (got - expected).abs() < 1e-5 * (1.0 + expected)),
                "{what}: {losses:?}"
            );
            // Parameters with a gradient of zero by symmetry have the rounding errors of the terms.
            assert_tensors_close(&what, &layout.parameters, &got.gradient, &expected.gradient, [1e-4, 1e-2]);
            assert_tensors_close(&what, &layout.statistics, &got.statistics, &expected.statistics, [1e-5, 1e-2]);
        }
    }
}

/// Returns the fastest path of this CPU for each precision.
fn paths() -> impl Iterator<Item = Path> {
    [Precision::F32, Precision::Bf16].into_iter().filter_map(Path::fastest)
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let wide = Architecture { channels: 40, ..plain(6, 7) };
    // Three threads divide the positions unevenly; the first four networks also run with other numbers of threads.
    let few = of_positions().into_iter().chain(pooled_heads()).map(|architecture| (architecture, 40, &[1, 3][..]));
    let plain = [(complete(), 61), (wide, 40), (activated(Activation::Mish), 30), (tiled(), 150)];
    let many = plain.map(|(architecture, positions)| (architecture, positions, &[1, 2, 3, 7][..]));
    let cases: Vec<_> = many.into_iter().chain(few).collect();
    for (path, (architecture, positions, threads)) in
        paths().flat_map(|path| cases.clone().into_iter().map(move |case| (path, case)))
    {
        let (_, layout) = layout(&architecture);
        let (numbers, batch) = (numbers(&layout, 3), batch(&architecture, positions, 5));
        let pass = |&threads: &usize| pass(&architecture, &numbers, &batch, path, threads, Recompute::None);
        let results: Vec<_> = threads.iter().map(pass).collect();
        for other in &results[1..] {
            assert_eq!(results[0].gradient, other.gradient, "{architecture:?}, {path}");
            assert_eq!((results[0].sums, &results[0].statistics), (other.sums, &other.statistics));
        }
    }
}

#[test]
fn recomputed_activations_change_no_bit_and_the_plan_counts_every_byte() {
    let cases: Vec<_> = cases().into_iter().chain([(tiled(), 70)]).collect();
    for (path, (mut architecture, positions)) in
        paths().flat_map(|path| cases.clone().into_iter().map(move |case| (path, case)))
    {
        architecture.blocks += 4;
        if architecture.design.attention > 0 {
            architecture.design.attention += 4;
        }
        let (_, layout) = layout(&architecture);
        let (numbers, batch) = (numbers(&layout, 3), batch(&architecture, positions, 5));
        let [kept, recomputed] = [Recompute::None, Recompute::Blocks]
            .map(|recompute| pass(&architecture, &numbers, &batch, path, 2, recompute));
        assert_eq!(kept.gradient, recomputed.gradient, "{architecture:?}, {path}");
        assert_eq!((kept.sums, &kept.statistics), (recomputed.sums, &recomputed.statistics));
        for results in [&kept, &recomputed] {
            assert_eq!(results.bytes, results.planned, "{architecture:?}, {path}");
        }
    }
}

#[test]
fn gradients_of_bfloat16_point_where_those_of_float64_do() {
    let simple = Architecture { channels: 32, ..plain(3, 4) };
    let pooled = Architecture { channels: 32, ..pooled([4, 3], 1, 1) };
    for architecture in [tiled(), simple, complete(), pooled] {
        let (_, layout) = layout(&architecture);
        let (numbers, batch) = (numbers(&layout, 3), batch(&architecture, 35, 5));
        let expected = reference(&architecture, &layout, &numbers, &batch, VALUE_LOSS_WEIGHT);
        for path in Path::ALL.into_iter().filter(|path| path.is_available() && path.precision() == Precision::Bf16) {
            let got = pass(&architecture, &numbers, &batch, path, 2, Recompute::None);
            for entry in &layout.parameters {
                let pairs = || entry.range().map(|index| (f64::from(got.gradient[index]), expected.gradient[index]));
                let product = |of: fn((f64, f64)) -> f64| pairs().map(of).sum::<f64>();
                let [both, first, second] = [product(|(a, b)| a * b), product(|(a, _)| a * a), product(|(_, b)| b * b)];
                let cosine = both / (first * second).sqrt();
                // Parameters with a gradient of zero by symmetry have the rounding errors of the terms.
                let is_close = cosine > 0.9 || second < 1e-10;
                assert!(is_close, "{cosine} in {} of {architecture:?}, {path}", entry.tensor.name);
            }
        }
    }
}

#[test]
fn recomputation_needs_less_than_a_third_of_the_activations_of_34_blocks() {
    let architecture = Architecture { blocks: 34, channels: 64, ..plain(9, 9) };
    let (layers, layout) = layout(&architecture);
    let [kept, recomputed] = [Recompute::None, Recompute::Blocks]
        .map(|recompute| graph(&architecture, &layers, &layout, Path::widest(), recompute).activation_bytes(64, false));
    assert!(10 * recomputed < 3 * kept, "{recomputed} of {kept} bytes");
}
