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
    for max_times_sampled in [None, times(u32::MAX)] {
        let mut table = hundred_items(TableSettings { max_times_sampled, ..by(Selector::Uniform) });
        assert!(counts(&mut table, 1).values().all(|&(_, probability)| probability == 0.01));
        check_chi_square(&mut table, 7);
    }
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

#[test]
fn staleness_aware_draws_come_up_in_proportion_to_two_to_the_versions_in_half_lives() {
    let mut table = hundred_items(by(Selector::StalenessAware { half_life_versions: 3.0 }));
    check_chi_square(&mut table, 10);
    let weight = |sequence: u64| (-(6.0 - sequence as f64) / 3.0).exp2();
    let total: f64 = (0..).zip(LENGTHS).map(|(sequence, length)| weight(sequence) * length as f64).sum();
    for ((sequence, _), (_, probability)) in counts(&mut table, 11) {
        assert!((probability * total / weight(sequence) - 1.0).abs() < 1e-12, "{sequence}");
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
fn fifo_draws_the_oldest_item_first_and_lifo_the_newest() {
    assert_eq!(draw(&mut table(by(Selector::Fifo), &["oFF", "F"]), 2), [(0, 1), (0, 1)]);
    assert_eq!(draw(&mut table(by(Selector::Lifo), &["oFF", "FFf"]), 2), [(1, 1), (1, 1)]);
    let once = |selector| TableSettings { max_times_sampled: times(1), ..by(selector) };
    assert_eq!(draw(&mut table(once(Selector::Fifo), &["FF", "", "F"]), 9), [(0, 0), (0, 1), (2, 0)]);
    assert_eq!(draw(&mut table(once(Selector::Lifo), &["FF", "", "F"]), 9), [(2, 0), (0, 1), (0, 0)]);
}

#[test]
fn heaps_draw_the_extreme_priority_and_the_oldest_of_equals() {
    for (selector, order) in
        [(Selector::MinHeap, [(1, 1), (0, 1), (1, 0), (0, 0)]), (Selector::MaxHeap, [(0, 0), (0, 1), (1, 0), (1, 1)])]
    {
        let mut table = table(TableSettings { max_times_sampled: times(1), ..by(selector) }, &["FF", "FF"]);
        let key = |sequence, ply| ItemKey { trajectory: id(sequence), ply };
        table.update_priorities(&[(key(0, 0), 3.0), (key(0, 1), 2.0), (key(1, 0), 2.0), (key(1, 1), 0.0)]).unwrap();
        assert_eq!(draw(&mut table, 9), order, "{selector:?}");
    }
}

#[test]
fn a_deterministic_selector_draws_with_probability_one() {
    for selector in [Selector::Fifo, Selector::Lifo, Selector::MinHeap, Selector::MaxHeap] {
        let drawn = table(by(selector), &["FF", "F"]).sample(&mut rng()).unwrap();
        assert_eq!((drawn.probability, drawn.table_items, drawn.exhausted), (1.0, 3, false));
    }
}

#[test]
fn an_item_is_drawn_up_to_its_limit_and_its_last_draw_is_marked_exhausted() {
    for selector in SELECTORS {
        let mut table = table(TableSettings { max_times_sampled: times(3), ..by(selector) }, &["FfF", "F"]);
        let mut rng = rng();
        let mut draws: HashMap<(u64, usize), u32> = HashMap::new();
        for left in (0..9).rev() {
            let drawn = table.sample(&mut rng).unwrap();
            let times = draws.entry((drawn.trajectory.id().sequence, drawn.ply())).or_default();
            *times += 1;
            assert_eq!(drawn.exhausted, *times == 3, "{selector:?} with {left} draws left");
        }
        assert!(table.sample(&mut rng).is_none() && table.items() == 0, "{selector:?}");
    }
}

#[test]
fn the_window_reaches_further_back_past_items_that_had_their_last_draw() {
    let settings = TableSettings { max_times_sampled: times(1), ..TableSettings::uniform(window(2, 100)) };
    let settings = TableSettings { selector: Selector::Lifo, ..settings };
    let mut table = table(settings, &["FFFF"]);
    assert_eq!(table.window_items(), 2);
    assert_eq!(draw(&mut table, 9), [(0, 3), (0, 2), (0, 1), (0, 0)]);
}

/// The version distances exceed the exponent range of f64, and some versions are outside the window.
#[test]
fn staleness_survives_any_distance_between_versions() {
    // The window has two items at any number of inserts.
    let window = Window { items_min: 2, exponent: 0.01, slope: 0.01, capacity_items: 1000 };
    let selector = Selector::StalenessAware { half_life_versions: 1.0 };
    let mut table = Table::new(TableSettings { selector, ..TableSettings::uniform(window) });
    let versions = [u64::MAX - 3, u64::MAX, 5, 6, 1_000_000, 1_000_001, 7, 8, u64::MAX];
    for (sequence, pair) in (1..).zip(versions.windows(2)) {
        if sequence == 1 {
            let _ = table.insert(trajectory_by(id(0), "F", pair[0]), Duration::ZERO);
        }
        let _ = table.insert(trajectory_by(id(sequence), "F", pair[1]), Duration::ZERO);
        let newest = pair[0].max(pair[1]);
        let weights = [pair[0], pair[1]].map(|version| (-((newest - version) as f64)).exp2());
        let mut rng = rng();
        for _ in 0..20 {
            let drawn = table.sample(&mut rng).unwrap();
            let index = drawn.trajectory.id().sequence + 1 - sequence;
            let expected = weights[usize::try_from(index).unwrap()] / (weights[0] + weights[1]);
            assert!(expected > 0.0 && (drawn.probability / expected - 1.0).abs() < 1e-12, "{pair:?}: {drawn:?}");
        }
    }
}

#[test]
fn items_of_older_versions_are_drawn_again_once_the_newest_version_is_quarantined() {
    let mut table = Table::new(by(Selector::StalenessAware { half_life_versions: 1.0 }));
    for (sequence, version) in [(0, 5), (1, 5), (2, u64::MAX)] {
        let _ = table.insert(trajectory_by(id(sequence), "F", version), Duration::ZERO);
    }
    assert_eq!(drawable(&mut table), [(2, 0)]);
    assert_eq!(table.quarantine(id(2)), QuarantineChange::Changed { items: 1 });
    assert_eq!(drawable(&mut table), [(0, 0), (1, 0)]);
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
    for (selector, max_times_sampled) in
        SELECTORS.into_iter().flat_map(|selector| [(selector, None), (selector, times(2))])
    {
        let settings = TableSettings { selector, max_times_sampled, ..TableSettings::uniform(window(700, 5000)) };
        let filled = || {
            let mut table = table(settings, &steps);
            assert!(matches!(table.quarantine(id(150)), QuarantineChange::Changed { .. }));
            table
        };
        let shown = |drawn: &Drawn| {
            (drawn.trajectory.id(), drawn.ply(), drawn.probability, drawn.table_items, drawn.exhausted, drawn.inserted)
        };
        let (mut single, mut batched) = (filled(), filled());
        let (mut single_rng, mut batched_rng) = (rng(), rng());
        let singles: Vec<Drawn> = (0..333).map(|_| single.sample(&mut single_rng).unwrap()).collect();
        let mut batch = Vec::new();
        batched.draw(300, &mut batched_rng, &mut batch);
        batched.draw(33, &mut batched_rng, &mut batch);
        let (singles, batch): (Vec<_>, Vec<_>) =
            (singles.iter().map(shown).collect(), batch.iter().map(shown).collect());
        assert_eq!(singles, batch, "{selector:?}, at most {max_times_sampled:?} times");
    }
}

#[test]
fn a_batch_ends_where_nothing_is_left_to_draw() {
    let mut table = table(TableSettings { max_times_sampled: times(1), ..by(Selector::Uniform) }, &["FF", "", "F"]);
    let mut batch = Vec::new();
    table.draw(9, &mut rng(), &mut batch);
    assert_eq!((batch.len(), table.items()), (3, 0));
}
