use super::*;
use crate::table::positions::PositionCounts;

fn merging() -> TableSettings {
    TableSettings { merge_positions: true, ..by(Selector::Uniform) }
}

fn merging_by_surprise() -> TableSettings {
    TableSettings { surprise_share: 0.5, ..merging() }
}

/// Returns a trajectory with one full step for each position.
fn positioned(sequence: u64, positions: &[u64], surprises: &[f32]) -> Trajectory {
    trajectory(sequence, &"F".repeat(positions.len())).with_positions(positions, surprises).unwrap()
}

fn filled(settings: TableSettings, trajectories: &[Trajectory]) -> Table {
    let mut table = Table::new(settings.check().unwrap());
    for trajectory in trajectories {
        let _ = table.insert(trajectory.clone(), Duration::ZERO);
    }
    table
}

/// Checks that each item is drawn in proportion to the `weights`, `[trajectories][items]`, within five standard errors
/// over 60,000 draws.
fn check_frequencies(table: &mut Table, weights: &[Vec<f64>]) {
    const DRAWS: usize = 60_000;
    let total: f64 = weights.iter().flatten().sum();
    let mut counts: Vec<Vec<u32>> = weights.iter().map(|weights| vec![0; weights.len()]).collect();
    let mut drawn = Vec::new();
    table.draw(DRAWS, &mut rng(), &mut drawn);
    for drawn in drawn {
        counts[usize::try_from(drawn.trajectory.id().sequence).unwrap()][drawn.item] += 1;
    }
    for (trajectory, weights) in weights.iter().enumerate() {
        for (item, weight) in weights.iter().enumerate() {
            let (expected, count) = (weight / total, f64::from(counts[trajectory][item]));
            let error = (DRAWS as f64 * expected * (1.0 - expected)).sqrt();
            let deviation = (count - DRAWS as f64 * expected).abs();
            assert!(deviation <= 5.0 * error, "{trajectory}:{item}: {count} of {}", DRAWS as f64 * expected);
        }
    }
}

#[test]
fn n_items_of_a_position_are_drawn_with_weight_log2_of_n_plus_1_together() {
    let trajectories = [
        positioned(0, &[1; 16], &[]),
        positioned(1, &[1, 2, 2, 2, 2, 3], &[]),
        trajectory(2, "FFF"),
        trajectory(3, "f"),
    ];
    let [seventeen, four] = [17.0_f64, 4.0].map(|n| (n.log2() + 1.0) / n);
    let weights = [vec![seventeen; 16], vec![seventeen, four, four, four, four, 1.0], vec![1.0; 3], vec![]];
    check_frequencies(&mut filled(merging(), &trajectories), &weights);
}

#[test]
fn weighted_draws_keep_to_window_and_quarantine() {
    let settings = TableSettings { window: window(8, 100), ..merging_by_surprise() };
    let surprises = [0.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    let mut table = filled(settings, &[positioned(0, &[1; 7], &surprises), positioned(1, &[1, 2, 3], &[])]);
    assert!(matches!(table.quarantine(id(1)), QuarantineChange::Changed { items: 3 }));
    assert!(drawable(&mut table).iter().all(|&(sequence, _)| sequence == 0));
}

#[test]
fn a_batch_of_weighted_draws_equals_as_many_single_ones() {
    let settings = merging_by_surprise();
    let games = [positioned(0, &[1; 30], &[0.5; 30]), positioned(1, &[1, 2, 3], &[1.0, 2.0, 3.0]), trajectory(2, "FF")];
    let (mut single, mut batched) = (filled(settings, &games), filled(settings, &games));
    let (mut single_rng, mut batched_rng) = (rng(), rng());
    let shown = |drawn: &Drawn| (drawn.trajectory.id(), drawn.item);
    let singles: Vec<_> = (0..100).map(|_| shown(&single.sample(&mut single_rng).unwrap())).collect();
    let mut batch = Vec::new();
    batched.draw(100, &mut batched_rng, &mut batch);
    assert_eq!(singles, batch.iter().map(shown).collect::<Vec<_>>());
}

#[test]
fn positions_are_counted_while_they_are_held_and_only_where_they_are_merged() {
    let is_exact = |table: &Table| {
        let held = PositionCounts::of(table.entries.iter().map(|entry| &entry.trajectory));
        table.positions.as_ref() == Some(&held)
    };
    let mut rng = rng();
    let mut table = Table::new(TableSettings { window: window(10, 60), ..merging() });
    for sequence in 0..100 {
        let positions: Vec<u64> = (0..rng.random_range(1..9)).map(|_| rng.random_range(0..20)).collect();
        let surprises = vec![0.5; positions.len()];
        let searched = positioned(sequence, &positions, &surprises);
        let _ = table.insert(searched.clone(), Duration::ZERO);
        assert!(is_exact(&table));
        assert!(table.revise(&searched.with_positions(&positions, &[]).unwrap(), 1, Duration::ZERO));
        assert!(is_exact(&table));
    }
    assert!(table.trajectories() < 50);
    table.change(by(Selector::Uniform));
    assert_eq!(table.positions, None);
    table.change(merging());
    assert!(is_exact(&table));
}

#[test]
fn weights_of_positions_and_surprises_need_uniform_draws() {
    let refused = |settings: TableSettings| settings.check().unwrap_err().to_string();
    let merging = TableSettings { merge_positions: true, ..prioritised(0.5) };
    assert_eq!(refused(merging), "merge_positions: requires the selector uniform");
    let surprising = TableSettings { surprise_share: 0.5, ..by(Selector::MaxHeap) };
    assert_eq!(refused(surprising), "surprise_share: requires the selector uniform");
}

fn surprised(surprise_share: f64) -> TableSettings {
    TableSettings { surprise_share, ..by(Selector::Uniform) }
}

/// Returns the item weights of a trajectory with the given surprises.
fn by_surprise(share: f64, surprises: &[f32]) -> Vec<f64> {
    let mean = surprises.iter().map(|&it| f64::from(it)).sum::<f64>() / surprises.len() as f64;
    surprises.iter().map(|&it| 1.0 - share + share * f64::from(it) / mean).collect()
}

#[test]
fn surprising_items_are_drawn_more_often_and_each_trajectory_as_often_as_before() {
    let (calm, sharp) = ([0.1, 0.2, 0.1], [4.0, 0.0, 1.0, 3.0]);
    let trajectories = [
        positioned(0, &[1, 2, 3], &calm),
        positioned(1, &[4, 5, 6, 7], &sharp),
        positioned(2, &[8, 9], &[]),
        positioned(3, &[8, 9], &[0.0, 0.0]),
    ];
    for share in [0.5, 1.0] {
        let weights = [by_surprise(share, &calm), by_surprise(share, &sharp), vec![1.0; 2], vec![1.0; 2]];
        check_frequencies(&mut filled(surprised(share), &trajectories), &weights);
    }
}

#[test]
fn an_item_has_at_most_eight_times_the_weight_of_the_mean_surprise() {
    let mut surprises = vec![0.01; 40];
    surprises[17] = 100.0;
    let positions: Vec<u64> = (0..40).collect();
    let mut weights = by_surprise(0.5, &surprises);
    weights[17] = 8.0;
    check_frequencies(&mut filled(surprised(0.5), &[positioned(0, &positions, &surprises)]), &[weights]);
}

#[test]
fn the_weights_of_positions_and_surprises_multiply() {
    let surprises = [1.0, 3.0, 2.0, 2.0];
    let trajectories = [positioned(0, &[1, 1, 2, 3], &surprises), positioned(1, &[1, 1, 4], &[])];
    let merged = (4.0_f64.log2() + 1.0) / 4.0;
    let surprised_weights = by_surprise(0.5, &surprises);
    let first = surprised_weights.iter().zip([merged, merged, 1.0, 1.0]).map(|(a, b)| a * b).collect();
    let settings = TableSettings { merge_positions: true, ..surprised(0.5) };
    check_frequencies(&mut filled(settings, &trajectories), &[first, vec![merged, merged, 1.0]]);
}

#[test]
fn surprising_items_outside_the_window_are_not_drawn() {
    let mut surprises = [0.1; 13];
    surprises[2] = 50.0;
    let positions: Vec<u64> = (0..13).collect();
    // As in the test of the window above: 4 of 16 items.
    let settings = TableSettings { window: window(1, 100), ..surprised(0.9) };
    let mut table = filled(settings, &[positioned(0, &positions, &surprises), positioned(1, &[1, 2, 3], &[])]);
    assert_eq!(drawable(&mut table), [(0, 12), (1, 0), (1, 1), (1, 2)]);
}
