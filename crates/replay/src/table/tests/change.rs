use super::*;

#[test]
fn a_change_between_any_two_selectors_keeps_priorities_and_quarantines() {
    for (first, second) in SELECTORS.iter().flat_map(|&first| SELECTORS.map(|second| (first, second))) {
        let mut table = table(by(first), &["FF", "F", "FFF"]);
        let key = |sequence, ply| ItemKey { trajectory: id(sequence), ply };
        let priorities = [(key(0, 1), 5.0), (key(1, 0), 4.0), (key(2, 2), 0.5)];
        table.update_priorities(&priorities).unwrap();
        let _ = table.quarantine(id(1));
        table.change(by(second));
        assert_eq!((table.items(), table.quarantined(), table.settings.selector), (5, 1, second));
        table.change(by(Selector::MaxHeap));
        let _ = table.release(id(1));
        let set = if first.uses_priorities() { priorities.to_vec() } else { Vec::new() };
        for (key, priority) in table.priorities() {
            let expected = set.iter().find(|(other, _)| *other == key).map_or(1.0, |(_, priority)| *priority);
            assert_eq!(priority, expected, "{key} from {first:?} by way of {second:?}");
        }
        assert_eq!(draw(&mut table, 1), [if first.uses_priorities() { (0, 1) } else { (0, 0) }]);
    }
}

#[test]
fn a_new_bound_holds_from_the_next_insert_on() {
    let mut table = table(by(Selector::Uniform), &["FF", "FF", "FF"]);
    let settings = TableSettings { window: window(2, 3), ..by(Selector::Uniform) };
    table.change(settings);
    assert_eq!((table.items(), table.window_items()), (6, 3));
    assert_eq!(ids(&table.insert(trajectory(3, "F"), Duration::ZERO).removed), [0, 1]);
    assert_eq!(ids(&table.expire(Duration::ZERO)), []);
}
