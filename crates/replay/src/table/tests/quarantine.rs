use super::*;

fn listed(table: &Table) -> Vec<(u64, u64, bool)> {
    table.held().map(|held| (held.trajectory.id().sequence, held.items, held.quarantined)).collect()
}

#[test]
fn a_quarantined_trajectory_is_never_drawn_and_stays_listed() {
    for selector in SELECTORS {
        let mut table = table(by(selector), &["FFF", "FFF", "FFF"]);
        assert_eq!(table.quarantine(id(1)), QuarantineChange::Changed { items: 3 });
        assert_eq!(table.quarantine(id(1)), QuarantineChange::Unchanged);
        assert_eq!(table.quarantine(id(9)), QuarantineChange::Unknown);
        assert!(drawable(&mut table).iter().all(|&(sequence, _)| sequence != 1), "{selector:?}");
        assert_eq!(listed(&table), [(2, 3, false), (1, 0, true), (0, 3, false)]);
    }
}

#[test]
fn a_released_trajectory_is_drawn_as_if_never_quarantined() {
    for selector in SELECTORS {
        let mut table = table(by(selector), &["F", "FF", "FF"]);
        let mut untouched = self::table(by(selector), &["F", "FF", "FF"]);
        let _ = table.quarantine(id(1));
        assert_eq!(table.release(id(1)), QuarantineChange::Changed { items: 2 });
        assert_eq!(table.release(id(1)), QuarantineChange::Unchanged);
        assert_eq!(table.release(id(9)), QuarantineChange::Unknown);
        assert_eq!(draw(&mut table, 5), draw(&mut untouched, 5), "{selector:?}");
    }
}

#[test]
fn a_released_trajectory_has_the_priorities_set_during_its_quarantine() {
    let mut table = table(by(Selector::MaxHeap), &["FF", "F"]);
    let key = |sequence, ply| ItemKey { trajectory: id(sequence), ply };
    table.update_priorities(&[(key(0, 1), 3.0), (key(1, 0), 2.0)]).unwrap();
    let _ = table.quarantine(id(0));
    assert_eq!(draw(&mut table, 1), [(1, 0)]);
    assert_eq!(table.update_priorities(&[(key(0, 0), 4.0)]).unwrap().updated, 1);
    assert_eq!(draw(&mut table, 1), [(1, 0)]);
    let _ = table.release(id(0));
    assert_eq!(draw(&mut table, 1), [(0, 0)]);
}

fn by_actor(actor: u64, sequence: u64) -> TrajectoryId {
    TrajectoryId { actor, epoch: 1, sequence }
}

#[test]
fn the_quarantine_of_an_actor_covers_its_earlier_and_later_trajectories() {
    let mut table = table(by(Selector::Uniform), &["FF"]);
    let _ = table.insert(trajectory_by(by_actor(2, 1), "FFF", 1), Duration::ZERO);
    assert_eq!(table.quarantine_actor(2), QuarantineChange::Changed { items: 3 });
    assert_eq!(table.quarantine_actor(2), QuarantineChange::Unchanged);
    let insertion = table.insert(trajectory_by(by_actor(2, 2), "F", 1), Duration::ZERO);
    assert_eq!(insertion, Insertion { items: 1, quarantined_items: 1, removed: Vec::new() });
    assert_eq!((table.items(), table.quarantined(), table.held_items()), (2, 2, 6));
    assert_eq!(drawable(&mut table), [(0, 0), (0, 1)]);
    assert_eq!(table.quarantined_actors().collect::<Vec<_>>(), [2]);
    assert_eq!(table.release_actor(2), QuarantineChange::Changed { items: 4 });
    assert_eq!(table.release_actor(2), QuarantineChange::Unchanged);
    assert_eq!((table.items(), table.quarantined()), (6, 0));
}

#[test]
fn a_trajectory_quarantined_by_id_and_by_actor_returns_with_the_second_release() {
    let mut table = table(prioritised(1.0), &["FF"]);
    assert_eq!(table.quarantine_actor(1), QuarantineChange::Changed { items: 2 });
    assert_eq!(table.quarantine(id(0)), QuarantineChange::Changed { items: 0 });
    assert_eq!(table.quarantined_ids().collect::<Vec<_>>(), [id(0)]);
    assert_eq!(table.release_actor(1), QuarantineChange::Changed { items: 0 });
    assert_eq!(table.release(id(0)), QuarantineChange::Changed { items: 2 });
    assert_eq!(table.items(), 2);
}

#[test]
fn trajectories_of_a_quarantined_actor_count_for_the_capacity_but_not_for_the_newest_version() {
    let retention = Retention { lag_versions_max: Some(3), ..Retention::default() };
    let mut table = table(TableSettings { retention, window: window(4, 4), ..by(Selector::MaxHeap) }, &["F"]);
    let _ = table.quarantine_actor(2);
    let insertion = table.insert(trajectory_by(by_actor(2, 0), "FF", 1000), Duration::ZERO);
    assert_eq!((insertion.removed, table.newest_weights_version()), (vec![], Some(WeightsVersion(1))));
    for sequence in 1..50 {
        let _ = table.insert(trajectory_by(by_actor(2, sequence), "FF", 1000), Duration::ZERO);
    }
    assert_eq!((table.trajectories(), table.held_items()), (2, 4));
}
