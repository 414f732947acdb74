use network::Layers;
use training::{Layout, Numbers, TrainingBatch};
use weights::Architecture;

use super::{Changes, MicroBatch, Tower, Workshop};
use crate::Path;
use crate::buffer::Store;
use crate::losses::{Sums, Targets};
use crate::reference::{assert_tensors_close, reference};
use crate::tests::networks::{batch, complete, plain};
use crate::threads::Threads;

const VALUE_LOSS_WEIGHT: f64 = 0.7;

struct Results {
    sums: Sums,
    gradient: Vec<f32>,
    statistics: Vec<f32>,
}

fn layout(architecture: &Architecture) -> (Layers, Layout) {
    let layers = Layers::new(architecture).unwrap();
    let layout = Layout::new(layers.tensors(), std::iter::empty());
    (layers, layout)
}

fn pass(architecture: &Architecture, numbers: &Numbers, batch: &TrainingBatch, path: Path, threads: usize) -> Results {
    let (layers, layout) = layout(architecture);
    let mut workshop = Workshop { path, threads: Threads::new(threads).unwrap(), store: Store::default() };
    let mut tower = Tower::new(architecture, &layers, &layout, path);
    tower.pack(&numbers.parameters, &mut workshop.threads);
    let positions = batch.policy_weights.len();
    let micro_batch = MicroBatch { batch, targets: Targets::new(batch, VALUE_LOSS_WEIGHT), rows: 0..positions };
    let mut results = None;
    // The second pass uses the memory of the first again.
    for _ in 0..2 {
        let mut gradient = vec![0.0; numbers.parameters.len()];
        let mut statistics = numbers.statistics.clone();
        let mut value_errors = vec![0.0; positions];
        let mut changes =
            Changes { statistics: &mut statistics, gradient: &mut gradient, value_errors: &mut value_errors };
        let sums = tower.pass(&mut workshop, &numbers.parameters, &micro_batch, &mut changes, &mut || {});
        results = Some(Results { sums, gradient, statistics });
    }
    results.unwrap()
}

/// Numbers with norms that differ from those of a new network, whose outputs of pooling and excitation are large.
fn numbers(layout: &Layout, seed: u64) -> Numbers {
    let mut numbers = Numbers::initial(layout, seed);
    let weights = layout.decayed();
    for (index, parameter) in numbers.parameters.iter_mut().enumerate() {
        let small = ((index * 37 % 101) as f32 / 101.0 - 0.4) / 2.0;
        *parameter += if index < weights { small / 5.0 } else { small };
    }
    numbers
}

fn cases() -> Vec<(Architecture, usize)> {
    vec![
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
}

#[test]
fn losses_gradients_and_statistics_agree_with_float64() {
    for (architecture, positions) in cases() {
        let (_, layout) = layout(&architecture);
        let numbers = numbers(&layout, 3);
        let mut batch = batch(&architecture, positions, 5);
        batch.importance = (0..positions).map(|row| 1.0 / (1 + row % 3) as f32).collect();
        let expected = reference(&architecture, &layout, &numbers, &batch, VALUE_LOSS_WEIGHT);
        let running = numbers.statistics.iter().zip(&expected.statistics);
        let running: Vec<f64> = running.map(|(old, new)| 0.9 * f64::from(*old) + 0.1 * new).collect();
        for path in Path::ALL.into_iter().filter(|path| path.is_available()) {
            let what = format!("{path}, {positions} positions of {architecture:?}");
            let got = pass(&architecture, &numbers, &batch, path, 2);
            let losses = [(got.sums.policy, expected.policy), (got.sums.value, expected.value)];
            assert!(
                losses.iter().all(|(got, expected)| (got - expected).abs() < 1e-5 * (1.0 + expected)),
                "{what}: {losses:?}"
            );
            // Parameters whose gradient is zero by symmetry have the rounding errors of their terms.
            assert_tensors_close(&what, &layout.parameters, &got.gradient, &expected.gradient, [1e-4, 1e-2]);
            assert_tensors_close(&what, &layout.statistics, &got.statistics, &running, [1e-5, 1e-2]);
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let wide = Architecture { channels: 40, ..plain(6, 7) };
    for (architecture, positions) in [(complete(), 61), (wide, 40)] {
        let (_, layout) = layout(&architecture);
        let (numbers, batch) = (numbers(&layout, 3), batch(&architecture, positions, 5));
        let results = [1, 2, 3, 7].map(|threads| pass(&architecture, &numbers, &batch, Path::widest(), threads));
        for other in &results[1..] {
            assert_eq!(results[0].gradient, other.gradient, "{architecture:?}");
            assert_eq!((results[0].sums, &results[0].statistics), (other.sums, &other.statistics));
        }
    }
}
