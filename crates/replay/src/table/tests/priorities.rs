use super::*;

fn key(sequence: u64, ply: usize) -> ItemKey {
    ItemKey { trajectory: id(sequence), ply }
}

fn kept(table: &Table) -> Vec<(ItemKey, f64)> {
    table.priorities().collect()
}

#[test]
fn a_new_item_starts_with_the_greatest_priority_ever_set() {
    let mut table = table(prioritised(1.0), &["F"]);
    assert_eq!(table.initial_priority(), 1.0);
    table.update_priorities(&[(key(0, 0), 5.0)]).unwrap();
    table.update_priorities(&[(key(0, 0), 2.0)]).unwrap();
    let _ = table.insert(trajectory(1, "F"), Duration::ZERO);
    assert_eq!((table.entries[1].priority(0), table.priority_max), (Some(5.0), 5.0));
}

#[test]
fn a_greatest_priority_of_zero_leaves_the_initial_priority_at_one() {
    let mut table = table(prioritised(1.0), &["F"]);
    table.update_priorities(&[(key(0, 0), 0.0)]).unwrap();
    assert_eq!(table.initial_priority(), 1.0);
}

#[test]
fn an_update_with_one_invalid_priority_changes_nothing() {
    let mut table = table(prioritised(1.0), &["FF"]);
    table.update_priorities(&[(key(0, 1), 3.0)]).unwrap();
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        let refused = table.update_priorities(&[(key(0, 0), 9.0), (key(0, 1), bad)]).unwrap_err();
        assert_eq!(refused.key, key(0, 1));
        assert_eq!((kept(&table), table.priority_max), (vec![(key(0, 0), 1.0), (key(0, 1), 3.0)], 3.0));
    }
}

#[test]
fn keys_that_are_not_held_are_counted_and_ignored() {
    let mut table = table(TableSettings { window: window(1, 1), ..prioritised(1.0) }, &["F", "of"]);
    let _ = table.insert(trajectory(2, "fF"), Duration::ZERO);
    let update = table.update_priorities(&[(key(0, 0), 2.0), (key(2, 0), 2.0), (key(2, 1), 2.0), (key(9, 0), 2.0)]);
    assert_eq!(update, Ok(PriorityUpdate { updated: 1, unknown: 3, unused: 0 }));
}

#[test]
fn a_repeated_priority_update_changes_nothing_and_the_last_value_of_an_item_is_used() {
    let mut table = table(prioritised(1.0), &["FF"]);
    let update = [(key(0, 0), 2.0), (key(0, 1), 4.0), (key(0, 0), 6.0)];
    table.update_priorities(&update).unwrap();
    let once = (kept(&table), table.tree.as_ref().unwrap().sum(0));
    table.update_priorities(&update).unwrap();
    assert_eq!((kept(&table), table.tree.as_ref().unwrap().sum(0)), once);
    assert_eq!(once, (vec![(key(0, 0), 6.0), (key(0, 1), 4.0)], 10.0));
}

/// If each key took O(plies), this would take minutes.
#[test]
fn the_keys_of_one_request_may_all_name_items_of_the_longest_trajectory() {
    let plies = 50_000;
    let steps: String = (0..plies).map(|ply| if ply % 3 == 0 { 'F' } else { 'f' }).collect();
    let capacity = TableSettings { window: window(1, 100_000), ..prioritised(1.0) };
    let mut table = table(capacity, &["F", &steps]);
    let updates: Vec<_> = (0..plies).map(|ply| (key(1, ply), 2.0)).collect();
    for _ in 0..3 {
        let update = table.update_priorities(&updates).unwrap();
        let items = plies.div_ceil(3);
        assert_eq!((update.updated as usize, update.unknown as usize), (items, plies - items));
    }
    let held = updates.iter().filter(|(key, _)| table.holds_item(*key)).count();
    assert_eq!(held, plies.div_ceil(3));
}

#[test]
fn a_selector_without_priorities_uses_none() {
    let mut table = table(by(Selector::Uniform), &["FF"]);
    let update = table.update_priorities(&[(key(0, 0), 2.0)]);
    assert_eq!(update, Ok(PriorityUpdate { unused: 1, ..PriorityUpdate::default() }));
    assert_eq!(kept(&table), []);
}
