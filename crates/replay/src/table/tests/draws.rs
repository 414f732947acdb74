use std::collections::HashMap;

use super::*;

/// Returns the count and probability of each item over 100 000 draws.
fn counts(table: &mut Table, seed: u64) -> HashMap<(u64, usize), (f64, f64)> {
    let mut counts: HashMap<_, (f64, f64)> = HashMap::new();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..100_000 {
        let drawn = table.sample(&mut rng).unwrap();
        let (count, probability) = counts.entry((drawn.trajectory.id().sequence, drawn.ply())).or_default();
        *count += 1.0;
        *probability = drawn.probability;
    }
    counts
}

/// Checks the chi-square statistic of 100 000 draws, with every item drawn at least once. The bound is the quantile at
/// 1 − 10⁻⁶ for 99 degrees of freedom (about 178). The seed is fixed, so the result is deterministic.
fn check_chi_square(table: &mut Table, seed: u64) {
    let counts = counts(table, seed);
    assert_eq!(counts.len(), 100);
    let total: f64 = counts.values().map(|(_, probability)| probability).sum();
    assert!((total - 1.0).abs() < 1e-12, "the probabilities of all items sum to {total}");
    let terms = counts.values().map(|&(count, probability)| {
        let expected = probability * 1e5;
        (count - expected).powi(2) / expected
    });
    let chi_square: f64 = terms.sum();
    assert!(chi_square < 178.0, "seed {seed}: chi-square {chi_square} with 99 degrees of freedom");
}

const LENGTHS: [usize; 7] = [1, 2, 3, 4, 5, 35, 50];

fn hundred_items(settings: TableSettings) -> Table {
    let mut table = Table::new(settings);
    for (sequence, length) in (0..).zip(LENGTHS) {
        let _ = table.insert(trajectory_by(id(sequence), &"Ff".repeat(length), sequence), Duration::ZERO);
    }
    table
}

/// A bias of 5 % on half of the items would add 250 to the statistic.
#[test]
fn sampling_is_uniform_over_items_whatever_the_lengths_of_trajectories() {
    let mut table = hundred_items(by(Selector::Uniform));
    assert!(counts(&mut table, 1).values().all(|&(_, probability)| probability == 0.01));
    check_chi_square(&mut table, 7);
}

#[test]
fn prioritised_draws_come_up_in_proportion_to_a_power_of_their_priority() {
    let mut table = hundred_items(prioritised(0.6));
    let items: Vec<ItemKey> = items(&table);
    let priorities: Vec<(ItemKey, f64)> = items.into_iter().zip((1..).map(f64::from)).collect();
    assert_eq!(table.update_priorities(&priorities).unwrap().updated, 100);
    check_chi_square(&mut table, 8);
    let total: f64 = (1..=100).map(|priority| f64::from(priority).powf(0.6)).sum();
    for ((sequence, ply), (_, probability)) in counts(&mut table, 9) {
        let key = ItemKey { trajectory: id(sequence), ply };
        let (_, priority) = priorities.iter().find(|(other, _)| *other == key).unwrap();
        assert!((probability * total / priority.powf(0.6) - 1.0).abs() < 1e-12, "{key}");
    }
}

/// Returns all items, oldest first.
fn items(table: &Table) -> Vec<ItemKey> {
    let entries = table.entries.iter().map(|entry| &entry.trajectory);
    let keys = |entry: &Trajectory| {
        let trajectory = entry.id();
        entry.full_plies().map(|ply| ItemKey { trajectory, ply }).collect::<Vec<_>>()
    };
    entries.flat_map(keys).collect()
}

#[test]
fn a_heap_draws_the_highest_priority_and_the_oldest_of_equals_with_probability_one() {
    let mut table = table(by(Selector::MaxHeap), &["FF", "FF"]);
    let key = |sequence, ply| ItemKey { trajectory: id(sequence), ply };
    table.update_priorities(&[(key(0, 0), 3.0), (key(0, 1), 2.0), (key(1, 0), 2.0), (key(1, 1), 0.0)]).unwrap();
    for next in [(0, 0), (0, 1), (1, 0), (0, 0)] {
        let drawn = table.sample(&mut rng()).unwrap();
        assert_eq!((drawn.trajectory.id(), drawn.ply()), (id(next.0), next.1));
        assert_eq!((drawn.probability, drawn.table_items), (1.0, 4));
        table.update_priorities(&[(key(next.0, next.1), 0.0)]).unwrap();
    }
}

#[test]
fn an_item_of_priority_zero_is_never_drawn_and_one_above_always_can_be() {
    let mut table = table(prioritised(2.0), &["FFF"]);
    let key = |ply| ItemKey { trajectory: id(0), ply };
    table.update_priorities(&[(key(0), 0.0), (key(1), 1e-300), (key(2), -0.0)]).unwrap();
    assert_eq!(drawable(&mut table), [(0, 1)]);
    table.update_priorities(&[(key(1), 0.0)]).unwrap();
    assert!(table.sample(&mut rng()).is_none());
    assert_eq!(table.window_items(), 3);
    table.update_priorities(&[(key(0), f64::MAX), (key(1), f64::MAX)]).unwrap();
    assert_eq!(drawable(&mut table), [(0, 0), (0, 1)]);
}

/// The batch is larger than a lookup group. Draws after the batch must agree too.
#[test]
fn a_batch_equals_as_many_single_draws() {
    let steps: Vec<String> = (0..200).map(|sequence| "Ffo".repeat(sequence * 7 % 12)).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    for selector in SELECTORS {
        let settings = TableSettings { selector, ..TableSettings::uniform(window(700, 5000)) };
        let filled = || {
            let mut table = table(settings, &steps);
            assert!(matches!(table.quarantine(id(150)), QuarantineChange::Changed { .. }));
            table
        };
        let shown =
            |drawn: &Drawn| (drawn.trajectory.id(), drawn.ply(), drawn.probability, drawn.table_items, drawn.inserted);
        let (mut single, mut batched) = (filled(), filled());
        let (mut single_rng, mut batched_rng) = (rng(), rng());
        let singles: Vec<Drawn> = (0..333).map(|_| single.sample(&mut single_rng).unwrap()).collect();
        let mut batch = Vec::new();
        batched.draw(300, &mut batched_rng, &mut batch);
        batched.draw(33, &mut batched_rng, &mut batch);
        let (singles, batch): (Vec<_>, Vec<_>) =
            (singles.iter().map(shown).collect(), batch.iter().map(shown).collect());
        assert_eq!(singles, batch, "{selector:?}");
    }
}
