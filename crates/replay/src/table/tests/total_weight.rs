use super::*;

#[test]
fn each_item_weighs_one_under_a_selector_without_weights() {
    for selector in [Selector::Uniform, Selector::MaxHeap] {
        assert_eq!(table(by(selector), &["FF", "FfF"]).total_weight(), 4.0, "{selector:?}");
    }
    assert_eq!(table(prioritised(0.5), &[]).total_weight(), 0.0);
}

#[test]
fn only_items_in_the_window_count_towards_the_total_weight() {
    let settings = TableSettings { window: window(2, 1000), ..prioritised(1.0) };
    let table = table(settings, &["FFFFFFFF"]);
    assert!(table.window_items() < 8, "{}", table.window_items());
    assert_eq!(table.total_weight(), table.window_items() as f64);
}

#[test]
fn the_weight_of_an_item_divided_by_the_total_weight_is_its_probability() {
    let mut table = table(prioritised(0.5), &["FFFF"]);
    let key = |ply| ItemKey { trajectory: id(0), ply };
    table.update_priorities(&[(key(0), 4.0), (key(1), 9.0), (key(2), 16.0), (key(3), 0.0)]).unwrap();
    assert_eq!(table.total_weight(), 2.0 + 3.0 + 4.0);
    let mut rng = rng();
    for _ in 0..20 {
        let drawn = table.sample(&mut rng).unwrap();
        assert!((drawn.probability * 9.0 - (drawn.ply() + 2) as f64).abs() < 1e-12, "{drawn:?}");
    }
}
