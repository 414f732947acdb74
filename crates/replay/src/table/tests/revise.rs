use super::*;

fn revised(sequence: u64, steps: &str, version: u64) -> Trajectory {
    trajectory_by(id(sequence), steps, version)
}

fn versions_drawn(table: &mut Table, items: usize) -> Vec<u64> {
    let mut drawn = Vec::new();
    table.draw(items, &mut rng(), &mut drawn);
    // A draw reports the weights version of the drawn trajectory.
    for item in &drawn {
        assert!(item.trajectory.steps().all(|step| step.weights_version == item.weights_version));
    }
    drawn.iter().map(|drawn| drawn.weights_version.0).collect()
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(3)
}

#[test]
fn items_drawn_before_a_revision_hold_the_earlier_searches_and_those_drawn_after_it_the_new_ones() {
    for settings in [by(Selector::Uniform), prioritised(0.5)] {
        let mut table = table(settings, &["FoF", "FF"]);
        let mut before = Vec::new();
        table.draw(20, &mut rng(), &mut before);
        for sequence in [0, 1] {
            let steps = ["FoF", "FF"][sequence as usize];
            assert!(table.revise(&revised(sequence, steps, 5), 1, Duration::from_secs(9)));
        }
        assert!(before.iter().all(|drawn| drawn.trajectory.last_weights_version() == WeightsVersion(1)));
        assert_eq!(versions_drawn(&mut table, 20), [5; 20]);
        let held = table.lookup(id(0)).unwrap();
        assert_eq!((held.revision, held.revised, held.items), (1, Some(Duration::from_secs(9)), 2));
    }
}

#[test]
fn a_revision_changes_no_total_no_window_and_not_the_next_draws() {
    for settings in [by(Selector::Uniform), prioritised(1.0), by(Selector::MaxHeap)] {
        let steps = ["FF", "FFF", "F"];
        let (mut plain, mut table) = (table(settings, &steps), table(settings, &steps));
        let counts = |table: &Table| (table.totals(), table.items(), table.held_items(), table.window_items());
        for (sequence, steps) in (0..).zip(steps) {
            assert!(table.revise(&revised(sequence, steps, 1), 1, Duration::ZERO));
        }
        assert_eq!(counts(&plain), counts(&table));
        let draw = |table: &mut Table| {
            let mut drawn = Vec::new();
            table.draw(30, &mut rng(), &mut drawn);
            drawn.iter().map(|drawn| (drawn.trajectory.id(), drawn.item, drawn.probability)).collect::<Vec<_>>()
        };
        assert_eq!(draw(&mut plain), draw(&mut table));
        assert_eq!(plain.trajectory_bytes(), table.trajectory_bytes());
    }
}

#[test]
fn items_keep_priorities_and_quarantine() {
    let mut table = table(prioritised(1.0), &["FF", "FF", "FF"]);
    let key = |sequence, ply| ItemKey { trajectory: id(sequence), ply };
    table.update_priorities(&[(key(0, 0), 0.0), (key(0, 1), 7.0), (key(1, 0), 0.0), (key(1, 1), 0.0)]).unwrap();
    let _ = table.quarantine(id(2));
    for sequence in 0..3 {
        assert!(table.revise(&revised(sequence, "FF", 4 + sequence), 1, Duration::ZERO));
    }
    // The only item outside quarantine with a priority above zero.
    assert_eq!(versions_drawn(&mut table, 5), [4; 5]);
    assert_eq!((table.items(), table.quarantined()), (4, 1));
    assert_eq!(table.newest_weights_version(), Some(WeightsVersion(5)));
    let _ = table.release(id(2));
    table.update_priorities(&[(key(0, 1), 0.0)]).unwrap();
    assert_eq!(versions_drawn(&mut table, 2), [6; 2]);
}

#[test]
fn a_trajectory_that_was_evicted_is_not_revised_and_nothing_changes() {
    let settings = TableSettings::uniform(window(2, 4));
    let mut table = table(settings, &["FF", "FF"]);
    assert!(table.lookup(id(0)).is_some());
    let _ = table.insert(trajectory(2, "FF"), Duration::ZERO);
    let bytes = table.bytes();
    assert!(!table.revise(&revised(0, "FF", 9), 1, Duration::ZERO));
    assert!(table.lookup(id(0)).is_none());
    assert_eq!((table.trajectories(), table.bytes()), (2, bytes));
    assert!(table.revise(&revised(1, "FF", 9), 1, Duration::ZERO));
    assert_eq!(table.oldest().map(Trajectory::last_weights_version), Some(WeightsVersion(9)));
}

#[test]
fn a_revised_trajectory_counts_as_searched_by_its_new_version() {
    let mut settings = by(Selector::Uniform);
    settings.retention.lag_versions_max = Some(2);
    let mut table = table(settings, &["F", "F", "F"]);
    assert!(table.revise(&revised(0, "F", 11), 1, Duration::ZERO));
    assert_eq!(table.newest_weights_version(), Some(WeightsVersion(11)));
    table.hold_to_newest(WeightsVersion(12));
    assert_eq!(table.expire(Duration::ZERO), [], "the oldest is not too far behind any more");
    assert!(table.revise(&revised(0, "F", 2), 2, Duration::ZERO));
    assert_eq!(table.expire(Duration::ZERO).len(), 2);
}

#[test]
fn a_choice_is_uniform_over_the_items_of_the_window_whatever_the_selector_and_changes_nothing() {
    for settings in [by(Selector::Uniform), prioritised(1.0), by(Selector::MaxHeap)] {
        let settings = TableSettings { window: Window { slope: 1e-9, ..window(6, 1000) }, ..settings };
        // The window holds the last six items, from the trajectories 1 to 3; trajectory 4 is in quarantine.
        let mut table = table(settings, &["FFF", "Fo", "FFF", "FF", "FFFF"]);
        let _ = table.quarantine(id(4));
        assert_eq!(table.window_items(), 6);
        let (mut counts, mut rng) = ([0_u32; 5], rng());
        for _ in 0..6000 {
            let chosen = table.choose(WeightsVersion(2), 1, &mut rng).unwrap();
            counts[chosen.trajectory.id().sequence as usize] += 1;
        }
        // 6000 draws with shares 1/6, 1/2, 1/3: four standard deviations are below 160.
        let expected: [u32; 5] = [0, 1000, 3000, 2000, 0];
        assert!(counts.iter().zip(expected).all(|(&count, expected)| count.abs_diff(expected) < 160), "{counts:?}");
        assert_eq!((table.items(), table.window_items()), (9, 6));
    }
}

#[test]
fn only_trajectories_of_earlier_versions_are_chosen() {
    let mut table = table(by(Selector::Uniform), &["F", "F"]);
    assert!(table.choose(WeightsVersion(1), 100, &mut rng()).is_none());
    assert!(table.revise(&revised(1, "F", 2), 1, Duration::ZERO));
    let chosen = table.choose(WeightsVersion(2), 100, &mut rng()).map(|held| held.trajectory.id());
    assert_eq!(chosen, Some(id(0)));
    assert!(Table::new(by(Selector::Uniform)).choose(WeightsVersion(2), 100, &mut rng()).is_none());
}
