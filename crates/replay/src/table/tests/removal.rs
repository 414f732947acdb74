use super::*;

/// Inserts a trajectory with the given steps. Returns the sequence numbers of removed trajectories.
fn left(table: &mut Table, sequence: u64, steps: &str, now: u64) -> Vec<u64> {
    ids(&table.insert(trajectory(sequence, steps), Duration::from_secs(now)).removed)
}

fn bounded(retention: Retention) -> Table {
    Table::new(TableSettings { retention, ..by(Selector::Prioritised { exponent: 1.0 }) })
}

#[test]
fn a_trajectory_leaves_once_none_of_its_items_is_among_the_newest() {
    for selector in SELECTORS {
        let mut table = Table::new(TableSettings { window: window(4, 4), ..by(selector) });
        assert_eq!(left(&mut table, 0, "FFF", 0), []);
        assert_eq!(left(&mut table, 1, "FFF", 0), []);
        assert_eq!(left(&mut table, 2, "F", 0), [0]);
        assert_eq!((table.trajectories(), table.items()), (2, 4));
        assert_eq!(left(&mut table, 3, "FFFFFFF", 0), [1, 2]);
        assert_eq!(table.window_items(), 4);
    }
}

#[test]
fn a_trajectory_leaves_once_it_is_too_old_but_the_newest_stays() {
    let mut table = bounded(Retention { age_max: Some(Duration::from_secs(10)), ..Retention::default() });
    assert_eq!(left(&mut table, 0, "F", 100), []);
    assert_eq!(left(&mut table, 1, "F", 105), []);
    assert_eq!(ids(&table.expire(Duration::from_secs(110))), []);
    assert_eq!(table.expire(Duration::from_secs(111)), [Removed { id: id(0), items: 1 }]);
    assert_eq!(ids(&table.expire(Duration::from_secs(999))), []);
    assert_eq!(left(&mut table, 2, "F", 999), [1]);
}

#[test]
fn a_clock_that_goes_back_removes_no_trajectory() {
    let mut table = bounded(Retention { age_max: Some(Duration::ZERO), ..Retention::default() });
    left(&mut table, 0, "F", 100);
    assert_eq!(left(&mut table, 1, "F", 90), []);
}

#[test]
fn trajectories_leave_until_their_bytes_fit_but_the_newest_stays() {
    let bytes = table(by(Selector::Uniform), &["FFF"]).trajectory_bytes();
    let mut table = bounded(Retention { trajectory_bytes_max: Some(2 * bytes), ..Retention::default() });
    assert_eq!(left(&mut table, 0, "FFF", 0), []);
    assert_eq!(left(&mut table, 1, "FFF", 0), []);
    assert_eq!(left(&mut table, 2, "FFF", 0), [0]);
    assert_eq!(left(&mut table, 3, &"F".repeat(500), 0), [1, 2]);
    assert!(table.trajectory_bytes() > 2 * bytes);
}

#[test]
fn a_trajectory_leaves_once_its_last_version_lags_too_far_behind() {
    let mut table = bounded(Retention { lag_versions_max: Some(3), ..Retention::default() });
    let mut left = |newest, sequence, version| {
        table.hold_to_newest(WeightsVersion(newest));
        ids(&table.insert(trajectory_by(id(sequence), "F", version), Duration::ZERO).removed)
    };
    assert_eq!(left(5, 0, 5), []);
    assert_eq!(left(8, 1, 8), []);
    assert_eq!(left(9, 2, 9), [0]);
    // A late inserted, stale trajectory stays while older entries are within the bound.
    assert_eq!(left(9, 3, 1), []);
    assert_eq!(left(12, 4, 12), [1]);
    assert_eq!(left(13, 5, 13), [2, 3]);
    // A learner that resumed from an older checkpoint.
    assert_eq!(left(4, 6, 4), []);
}

#[test]
fn the_weights_version_of_a_trajectory_removes_no_other_trajectory() {
    let mut table = bounded(Retention { lag_versions_max: Some(3), ..Retention::default() });
    let mut left =
        |sequence, version| ids(&table.insert(trajectory_by(id(sequence), "F", version), Duration::ZERO).removed);
    assert_eq!(left(0, 5), []);
    assert_eq!(left(1, u64::MAX), [], "before a newest version is announced");
    table.hold_to_newest(WeightsVersion(8));
    assert_eq!(ids(&table.expire(Duration::ZERO)), []);
    table.hold_to_newest(WeightsVersion(9));
    assert_eq!(ids(&table.expire(Duration::ZERO)), [0]);
}

#[test]
fn a_trajectory_removed_in_quarantine_counts_no_items() {
    let mut table = table(TableSettings { window: window(2, 2), ..by(Selector::Uniform) }, &["FF"]);
    assert_eq!(table.quarantine(id(0)), QuarantineChange::Changed { items: 2 });
    let insertion = table.insert(trajectory(1, "FF"), Duration::ZERO);
    assert_eq!(insertion.removed, [Removed { id: id(0), items: 0 }]);
    assert_eq!(table.quarantined(), 0);
}
